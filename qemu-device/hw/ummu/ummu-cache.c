/*
 * UMMU: configuration cache, TLB and PLB, update side.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Geometry and keys: ummu-cache.h.  Only positive results are ever inserted
 * (software sends no invalidation for a new grant, mapping or context), so a
 * caller inserts after every check has passed.  A line is dropped when a
 * predicate names it, when its set is full, or at reset; nothing else.
 */
#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "ummu-cache.h"
#include "trace.h"

#define CHAIN_NIL   UINT32_MAX
#define CHAIN_HEAD  0x80000000u    /* prev: the low bits are a bucket */

enum { CHAIN_TID, CHAIN_SPACE };   /* SPACE: ASID (TLB) or tag (others) */

/* Stands for "no recent line"; nothing ever matches it. */
static UmmuLine no_line = { .k0 = UMMU_KEY_FREE, .k1 = UMMU_KEY_FREE };

static UmmuLine *ummu_line(const UmmuAssoc *a, uint32_t i)
{
    return (UmmuLine *)(a->lines + (size_t)i * a->stride);
}

static uint32_t ummu_key_tid(const UmmuLine *l)
{
    return extract64(l->k0, 0, UMMU_TID_BITS);
}

static uint32_t ummu_key_tag(const UmmuLine *l)
{
    return extract64(l->k0, UMMU_KEY_TAG_SHIFT, 16);
}

static uint32_t ummu_key_asid(const UmmuLine *l)
{
    return extract64(l->k0, UMMU_KEY_ASID_SHIFT, 16);
}

/* ---- the array ---------------------------------------------------------- */

static uint32_t ummu_bucket(const UmmuAssoc *a, uint32_t key)
{
    return (key * 0x9e3779b1u >> 7) & a->bucket_mask;
}

static void ummu_assoc_clear(UmmuAssoc *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        ummu_line(a, i)->k0 = UMMU_KEY_FREE;
        ummu_line(a, i)->index = i;
    }
    for (unsigned c = 0; a->count && c < UMMU_CHAINS; c++) {
        memset(a->heads[c], 0xff, (a->bucket_mask + 1) * sizeof(uint32_t));
    }
    memset(a->class_used, 0, sizeof(a->class_used));
    a->class_mask = 0;
    a->used = 0;
}

static void ummu_assoc_init(UmmuAssoc *a, uint32_t entries, size_t stride)
{
    uint32_t sets;

    *a = (UmmuAssoc) { .stride = stride, .recent = &no_line };
    if (!entries) {
        return;
    }
    a->ways = MIN(entries, UMMU_CACHE_WAYS);
    sets = pow2floor(entries / a->ways);
    a->set_mask = sets - 1;
    a->count = sets * a->ways;
    a->bucket_mask = pow2ceil(a->count) - 1;
    a->lines = g_malloc0(a->count * stride);
    a->victim = g_malloc0(sets);
    for (unsigned c = 0; c < UMMU_CHAINS; c++) {
        a->heads[c] = g_new(uint32_t, a->bucket_mask + 1);
    }
    ummu_assoc_clear(a);
}

static void ummu_assoc_free(UmmuAssoc *a)
{
    for (unsigned c = 0; c < UMMU_CHAINS; c++) {
        g_free(a->heads[c]);
    }
    g_free(a->victim);
    g_free(a->lines);
    *a = (UmmuAssoc) { 0 };
}

static void ummu_chain_unlink(UmmuAssoc *a, UmmuLine *l, unsigned c)
{
    uint32_t next = l->next[c], prev = l->prev[c];

    if (prev & CHAIN_HEAD) {
        a->heads[c][prev & ~CHAIN_HEAD] = next;
    } else {
        ummu_line(a, prev)->next[c] = next;
    }
    if (next != CHAIN_NIL) {
        ummu_line(a, next)->prev[c] = prev;
    }
}

static void ummu_chain_link(UmmuAssoc *a, UmmuLine *l, unsigned c, uint32_t key)
{
    uint32_t bucket = ummu_bucket(a, key), *head = &a->heads[c][bucket];

    l->next[c] = *head;
    l->prev[c] = CHAIN_HEAD | bucket;
    if (*head != CHAIN_NIL) {
        ummu_line(a, *head)->prev[c] = l->index;
    }
    *head = l->index;
}

/* Line to hold a key: the same one, a free one, or the set's next victim. */
static UmmuLine *ummu_assoc_place(UmmuAssoc *a, uint64_t k0, uint64_t k1)
{
    uint32_t set = ummu_key_set(k0, k1) & a->set_mask;
    UmmuLine *l, *free_line = NULL;

    for (uint32_t i = 0; i < a->ways; i++) {
        l = ummu_line(a, set * a->ways + i);
        if (ummu_line_is(l, k0, k1)) {
            return l;
        }
        if (!free_line && l->k0 == UMMU_KEY_FREE) {
            free_line = l;
        }
    }
    if (free_line) {
        return free_line;
    }
    l = ummu_line(a, set * a->ways + a->victim[set]);
    a->victim[set] = a->victim[set] + 1u < a->ways ? a->victim[set] + 1 : 0;
    return l;
}

static void ummu_class_add(UmmuAssoc *a, uint64_t k0)
{
    unsigned class = extract64(k0, UMMU_KEY_CLASS_SHIFT, 6);

    a->used++;
    a->class_used[class]++;
    a->class_mask |= 1ull << class;
}

static void ummu_class_sub(UmmuAssoc *a, uint64_t k0)
{
    unsigned class = extract64(k0, UMMU_KEY_CLASS_SHIFT, 6);

    a->used--;
    if (--a->class_used[class] == 0) {
        a->class_mask &= ~(1ull << class);
    }
}

void ummu_assoc_remove(UmmuAssoc *a, UmmuLine *l)
{
    for (unsigned c = 0; c < UMMU_CHAINS; c++) {
        ummu_chain_unlink(a, l, c);
    }
    ummu_class_sub(a, l->k0);
    l->k0 = UMMU_KEY_FREE;
}

/* The part of k0 that decides about chains: TID, tag, ASID. */
static bool ummu_same_chains(uint64_t a, uint64_t b)
{
    return !extract64(a ^ b, 0, UMMU_KEY_EL2);
}

/* NULL when the cache is off. */
static void *ummu_assoc_insert(UmmuAssoc *a, uint64_t k0, uint64_t k1,
                               uint32_t tid, uint32_t space, uint64_t *inserts,
                               uint64_t *evictions)
{
    bool linked = false;
    UmmuLine *l;

    if (!a->count) {
        return NULL;
    }
    l = ummu_assoc_place(a, k0, k1);
    if (l->k0 != UMMU_KEY_FREE) {
        *evictions += !ummu_line_is(l, k0, k1);
        linked = ummu_same_chains(l->k0, k0);
        if (linked) {
            ummu_class_sub(a, l->k0);
        } else {
            ummu_assoc_remove(a, l);
        }
    }
    l->k0 = k0;
    l->k1 = k1;
    if (!linked) {
        ummu_chain_link(a, l, CHAIN_TID, tid);
        ummu_chain_link(a, l, CHAIN_SPACE, space);
    }
    ummu_class_add(a, k0);
    (*inserts)++;
    return l;
}

typedef bool UmmuLineMatch(const UmmuLine *l, const void *inv);

static size_t ummu_assoc_drop_chain(UmmuAssoc *a, unsigned c, uint32_t key,
                                    UmmuLineMatch *match, const void *inv)
{
    size_t dropped = 0;
    uint32_t i, next;

    if (!a->used) {
        return 0;
    }
    for (i = a->heads[c][ummu_bucket(a, key)]; i != CHAIN_NIL; i = next) {
        UmmuLine *l = ummu_line(a, i);

        next = l->next[c];
        if (match(l, inv)) {
            ummu_assoc_remove(a, l);
            dropped++;
        }
    }
    return dropped;
}

static size_t ummu_assoc_drop_scan(UmmuAssoc *a, UmmuLineMatch *match,
                                   const void *inv)
{
    size_t dropped = 0;

    for (uint32_t i = 0; a->used && i < a->count; i++) {
        UmmuLine *l = ummu_line(a, i);

        if (l->k0 != UMMU_KEY_FREE && match(l, inv)) {
            ummu_assoc_remove(a, l);
            dropped++;
        }
    }
    return dropped;
}

/* ---- configuration cache ------------------------------------------------ */

void ummu_tecte_insert(UmmuState *s, uint32_t tag, const UmmuTecte *te)
{
    UmmuTecteLine *l;

    l = ummu_assoc_insert(&s->caches->tecte,
                          (uint64_t)tag << UMMU_KEY_TAG_SHIFT, tag, 0, tag,
                          &s->cnt.cfg_insert, &s->cnt.cfg_evict);
    if (l) {
        l->te = *te;
        trace_ummu_cache_insert(ummu_id(s), "tecte", tag, 0, 0, 0);
    }
}

void ummu_tcte_insert(UmmuState *s, uint32_t tag, uint32_t tid,
                      const UmmuTcte *tc)
{
    UmmuTcteLine *l;

    l = ummu_assoc_insert(&s->caches->tcte,
                          tid | (uint64_t)tag << UMMU_KEY_TAG_SHIFT, tid, tid,
                          tag, &s->cnt.cfg_insert, &s->cnt.cfg_evict);
    if (l) {
        l->tc = *tc;
        trace_ummu_cache_insert(ummu_id(s), "tcte", tag, tid, 0, 0);
    }
}

static bool ummu_tag_in(const UmmuLine *l, bool by_tag, uint32_t first,
                        uint32_t last)
{
    uint32_t tag = ummu_key_tag(l);

    return !by_tag || (tag >= first && tag <= last);
}

static bool ummu_tecte_match(const UmmuLine *l, const void *opaque)
{
    const UmmuCfgInv *inv = opaque;

    return ummu_tag_in(l, inv->by_tag, inv->tag_first, inv->tag_last);
}

static bool ummu_tcte_match(const UmmuLine *l, const void *opaque)
{
    const UmmuCfgInv *inv = opaque;

    return (!inv->by_tid || ummu_key_tid(l) == inv->tid) &&
           ummu_tag_in(l, inv->by_tag, inv->tag_first, inv->tag_last);
}

size_t ummu_cfg_invalidate(UmmuState *s, const UmmuCfgInv *inv)
{
    bool one_tag = inv->by_tag && inv->tag_first == inv->tag_last;
    UmmuCaches *c = s->caches;
    size_t n = 0;

    if (inv->tecte) {
        n += one_tag ? ummu_assoc_drop_chain(&c->tecte, CHAIN_SPACE,
                                             inv->tag_first, ummu_tecte_match,
                                             inv) :
                       ummu_assoc_drop_scan(&c->tecte, ummu_tecte_match, inv);
    }
    if (inv->tcte) {
        if (inv->by_tid) {
            n += ummu_assoc_drop_chain(&c->tcte, CHAIN_TID, inv->tid,
                                       ummu_tcte_match, inv);
        } else if (one_tag) {
            n += ummu_assoc_drop_chain(&c->tcte, CHAIN_SPACE, inv->tag_first,
                                       ummu_tcte_match, inv);
        } else {
            n += ummu_assoc_drop_scan(&c->tcte, ummu_tcte_match, inv);
        }
    }
    s->cnt.cfg_drop += n;
    trace_ummu_cache_drop(ummu_id(s), "config", n);
    return n;
}

/* ---- TLB ---------------------------------------------------------------- */

void ummu_tlb_insert(UmmuState *s, const UmmuTlbSpace *sp, const UmmuTecte *te,
                     uint64_t ia, unsigned insize, const UmmuLeaf *leaf)
{
    uint64_t k0 = sp->k0 | (uint64_t)leaf->shift << UMMU_KEY_CLASS_SHIFT;
    UmmuLine key = { .k0 = k0 };
    UmmuTlbLine *l;

    l = ummu_assoc_insert(&s->caches->tlb, k0, ia >> leaf->shift | sp->vmid,
                          ummu_key_tid(&key), ummu_key_asid(&key),
                          &s->cnt.tlb_insert, &s->cnt.tlb_evict);
    if (!l) {
        return;
    }
    l->pa = leaf->pa & ~(((uint64_t)1 << leaf->shift) - 1);
    l->attr = leaf->attr;
    l->shift = leaf->shift;
    l->s1_shift = te->has_s1 ? leaf->s1_shift : leaf->shift;
    l->insize = insize;
    l->has_s1 = te->has_s1;
    l->has_s2 = te->has_s2;
    trace_ummu_cache_insert(ummu_id(s), "tlb", ummu_key_tag(&key),
                            ummu_key_tid(&key), ia, leaf->shift);
}

/*
 * Does [first, last] touch the line?  Compared inside the line's input size, so
 * that a sign-extended address meets the bits the walk used.  A range that
 * wraps there is two ranges.
 */
static bool ummu_tlb_range(const UmmuTlbLine *l, uint64_t first, uint64_t last)
{
    uint64_t mask = l->insize >= 64 ? UINT64_MAX : (1ull << l->insize) - 1;
    uint64_t size = 1ull << l->s1_shift;
    uint64_t a = (extract64(l->line.k1, 0, UMMU_KEY_VMID_SHIFT) << l->shift) &
                 ~(size - 1);
    uint64_t b = a + size - 1;

    if (last - first >= mask) {
        return true;
    }
    first &= mask;
    last &= mask;
    return first <= last ? first <= b && last >= a : first <= b || last >= a;
}

static bool ummu_tlb_match_s1(const UmmuTlbLine *l, const UmmuTlbInv *inv)
{
    return (!inv->by_tid || ummu_key_tid(&l->line) == inv->tid) &&
           (!inv->by_asid || ummu_key_asid(&l->line) == inv->asid) &&
           (!inv->by_range || ummu_tlb_range(l, inv->first, inv->last));
}

static bool ummu_tlb_match(const UmmuLine *line, const void *opaque)
{
    const UmmuTlbLine *l = (const UmmuTlbLine *)line;
    const UmmuTlbInv *inv = opaque;
    bool el2 = extract64(line->k0, UMMU_KEY_EL2, 1);

    if ((inv->by_regime && el2 != (inv->regime == UMMU_REGIME_EL2)) ||
        !ummu_tag_in(line, inv->by_tag, inv->tag_first, inv->tag_last)) {
        return false;
    }
    if (inv->by_vmid &&
        (el2 || line->k1 >> UMMU_KEY_VMID_SHIFT != inv->vmid)) {
        return false;
    }
    if (inv->s1 && l->has_s1 && ummu_tlb_match_s1(l, inv)) {
        return true;
    }
    if (!inv->s2 || !l->has_s2) {
        return false;
    }
    /* The IPA of a combined line is not known: it goes. */
    return l->has_s1 || !inv->by_range ||
           ummu_tlb_range(l, inv->first, inv->last);
}

size_t ummu_tlb_invalidate(UmmuState *s, const UmmuTlbInv *inv)
{
    UmmuAssoc *a = &s->caches->tlb;
    size_t n;

    if (!inv->s2 && inv->by_tid) {
        n = ummu_assoc_drop_chain(a, CHAIN_TID, inv->tid, ummu_tlb_match, inv);
    } else if (!inv->s2 && inv->by_asid) {
        n = ummu_assoc_drop_chain(a, CHAIN_SPACE, inv->asid, ummu_tlb_match,
                                  inv);
    } else {
        n = ummu_assoc_drop_scan(a, ummu_tlb_match, inv);
    }
    s->cnt.tlb_drop += n;
    trace_ummu_cache_drop(ummu_id(s), "tlb", n);
    return n;
}

/* ---- PLB ---------------------------------------------------------------- */

void ummu_plb_insert(UmmuState *s, uint32_t tag, uint32_t tid,
                     const UmmuMaptEntry *e)
{
    UmmuPlbLine *l;

    l = ummu_assoc_insert(&s->caches->plb,
                          tid | (uint64_t)tag << UMMU_KEY_TAG_SHIFT |
                          (uint64_t)e->level << UMMU_KEY_CLASS_SHIFT,
                          e->first >> ummu_mapt_span(e->level), tid, tag,
                          &s->cnt.plb_insert, &s->cnt.plb_evict);
    if (l) {
        l->e = *e;
        trace_ummu_cache_insert(ummu_id(s), "plb", tag, tid, e->first,
                                e->level);
    }
}

static bool ummu_plb_from(const UmmuMaptEntry *e, const UmmuPlbInv *inv)
{
    for (unsigned i = 0; i < e->depth; i++) {
        if (e->path[i].index == inv->next_index &&
            e->path[i].offset == inv->next_offset) {
            return true;
        }
    }
    return false;
}

static bool ummu_plb_match(const UmmuLine *line, const void *opaque)
{
    const UmmuMaptEntry *e = &((const UmmuPlbLine *)line)->e;
    const UmmuPlbInv *inv = opaque;

    return (!inv->by_tid || ummu_key_tid(line) == inv->tid) &&
           ummu_tag_in(line, inv->by_tag, inv->tag_first, inv->tag_last) &&
           (!inv->by_range || (e->first <= inv->last && e->last >= inv->first))
           && (!inv->by_next || ummu_plb_from(e, inv));
}

size_t ummu_plb_invalidate(UmmuState *s, const UmmuPlbInv *inv)
{
    UmmuAssoc *a = &s->caches->plb;
    size_t n;

    if (inv->by_tid) {
        n = ummu_assoc_drop_chain(a, CHAIN_TID, inv->tid, ummu_plb_match, inv);
    } else if (inv->by_tag && inv->tag_first == inv->tag_last) {
        n = ummu_assoc_drop_chain(a, CHAIN_SPACE, inv->tag_first,
                                  ummu_plb_match, inv);
    } else {
        n = ummu_assoc_drop_scan(a, ummu_plb_match, inv);
    }
    s->cnt.plb_drop += n;
    trace_ummu_cache_drop(ummu_id(s), "plb", n);
    return n;
}

/* ---- life cycle --------------------------------------------------------- */

void ummu_cache_init(UmmuState *s)
{
    UmmuCaches *c = g_new0(UmmuCaches, 1);

    ummu_assoc_init(&c->tecte, s->cfg.cfg_cache_entries, sizeof(UmmuTecteLine));
    ummu_assoc_init(&c->tcte, s->cfg.cfg_cache_entries, sizeof(UmmuTcteLine));
    ummu_assoc_init(&c->tlb, s->cfg.tlb_entries, sizeof(UmmuTlbLine));
    ummu_assoc_init(&c->plb, s->cfg.plb_entries, sizeof(UmmuPlbLine));
    s->caches = c;
}

void ummu_cache_reset(UmmuState *s)
{
    UmmuCaches *c = s->caches;

    ummu_assoc_clear(&c->tecte);
    ummu_assoc_clear(&c->tcte);
    ummu_assoc_clear(&c->tlb);
    ummu_assoc_clear(&c->plb);
}

void ummu_cache_free(UmmuState *s)
{
    UmmuCaches *c = s->caches;

    if (!c) {
        return;
    }
    ummu_assoc_free(&c->tecte);
    ummu_assoc_free(&c->tcte);
    ummu_assoc_free(&c->tlb);
    ummu_assoc_free(&c->plb);
    g_free(c);
    s->caches = NULL;
}

void ummu_cache_fill(UmmuState *s, uint32_t *cfg, uint32_t *tlb, uint32_t *plb)
{
    UmmuCaches *c = s->caches;

    *cfg = c->tecte.used + c->tcte.used;
    *tlb = c->tlb.used;
    *plb = c->plb.used;
}
