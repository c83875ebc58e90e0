/*
 * UMMU: configuration cache, TLB and PLB, look-up side.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * DOC: shape
 *
 * Each cache is a set-associative array of fixed-size lines; a full set loses
 * one line, round robin.  A line carries a key of two words, and hangs on two
 * chains, so that an invalidation of one token (chain 0: TID) or of one address
 * space or entity (chain 1: ASID in the TLB, tag in the others) visits only the
 * lines of that chain and not the cache.  Anything wider scans the cache once.
 *
 * The set index takes the low bits of the page number as they are: neighbouring
 * pages never fight for a set.
 *
 * Sizes of lines differ, so look-ups are given the line size as a constant.  A
 * size of 0 leaves an array without ways: every look-up misses.
 *
 * DOC: PLB geometry
 *
 * A line is one MAPT node and its own range.  A node's range lies inside the
 * span of its level, so (level, address / span) names the node: one line per
 * node whatever the size of its range, and a look-up is one probe per level
 * that has lines at all.  The line of the single-entry mode is "level" 4.
 *
 * DOC: TLB geometry
 *
 * A line is one leaf (or contiguous group) of the final translation; the log2
 * of its size is part of the key and a look-up makes one probe per size that is
 * present.  The stage 1 leaf can be larger than the line (nested mode): the
 * line remembers that extent for invalidations by address.
 */
#ifndef HW_UMMU_CACHE_H
#define HW_UMMU_CACHE_H

#include "ummu-xlate.h"

#define UMMU_KEY_FREE        UINT64_MAX
#define UMMU_KEY_CLASS_SHIFT 56
#define UMMU_KEY_CLASSES     64
#define UMMU_CACHE_WAYS      4
#define UMMU_CHAINS          2

typedef struct UmmuLine {
    uint64_t k0, k1;
    uint32_t next[UMMU_CHAINS], prev[UMMU_CHAINS];
    uint32_t index;             /* its own number, never changes */
} UmmuLine;

typedef struct UmmuAssoc {
    UmmuLine *recent;           /* found last; never NULL, but may be free */
    uint8_t *lines;
    uint64_t class_mask;        /* classes (bits 61:56 of k0) with lines */
    uint32_t set_mask, ways;
    uint32_t used, count;
    uint32_t bucket_mask;
    uint32_t *heads[UMMU_CHAINS];
    uint8_t *victim;            /* next way to lose, per set */
    size_t stride;
    uint32_t class_used[UMMU_KEY_CLASSES];
} UmmuAssoc;

typedef struct UmmuTecteLine {
    UmmuLine line;
    UmmuTecte te;
} UmmuTecteLine;

typedef struct UmmuTcteLine {
    UmmuLine line;
    UmmuTcte tc;
} UmmuTcteLine;

typedef struct UmmuTlbLine {
    UmmuLine line;
    uint64_t pa;                /* of the line's first byte */
    uint16_t attr;
    uint8_t shift, s1_shift;
    uint8_t insize;             /* input address bits, for range compares */
    bool has_s1, has_s2;
} UmmuTlbLine;

typedef struct UmmuPlbLine {
    UmmuLine line;
    UmmuMaptEntry e;
} UmmuPlbLine;

struct UmmuCaches {
    UmmuAssoc tecte, tcte, tlb, plb;
};

/* What a TLB key holds besides the address. */
typedef struct UmmuTlbSpace {
    uint64_t k0;                /* without the class */
    uint64_t vmid;              /* in place in k1 */
} UmmuTlbSpace;

enum {
    UMMU_KEY_TAG_SHIFT = 20,
    UMMU_KEY_ASID_SHIFT = 36,
    UMMU_KEY_EL2 = 52,
    UMMU_KEY_S2 = 53,           /* stage 2 only: no TID, no ASID */
    UMMU_KEY_VMID_SHIFT = 48,   /* in k1 */
};

static inline uint32_t ummu_key_set(uint64_t k0, uint64_t k1)
{
    uint64_t h = (k0 ^ k0 >> 32) * 0x9e3779b97f4a7c15ull;

    return (uint32_t)(k1 ^ k1 >> 24 ^ k1 >> 48) + (uint32_t)(h >> 40);
}

static inline bool ummu_line_is(const UmmuLine *l, uint64_t k0, uint64_t k1)
{
    return l->k0 == k0 && l->k1 == k1;
}

/* Clients ask for the same entity, context and range again and again. */
static inline void *ummu_assoc_find(UmmuAssoc *a, size_t stride, uint64_t k0,
                                    uint64_t k1)
{
    uint8_t *p;

    if (ummu_line_is(a->recent, k0, k1)) {
        return a->recent;
    }
    p = a->lines + (ummu_key_set(k0, k1) & a->set_mask) * a->ways * stride;
    for (uint32_t i = 0; i < a->ways; i++, p += stride) {
        if (ummu_line_is((UmmuLine *)p, k0, k1)) {
            a->recent = (UmmuLine *)p;
            return p;
        }
    }
    return NULL;
}

/* Drop one line that a look-up has just returned. */
void ummu_assoc_remove(UmmuAssoc *a, UmmuLine *line);

static inline const UmmuTecte *ummu_tecte_cached(UmmuCaches *c, uint32_t tag)
{
    uint64_t k0 = (uint64_t)tag << UMMU_KEY_TAG_SHIFT;
    UmmuTecteLine *l = ummu_assoc_find(&c->tecte, sizeof(*l), k0, tag);

    return l ? &l->te : NULL;
}

static inline const UmmuTcte *ummu_tcte_cached(UmmuCaches *c, uint32_t tag,
                                               uint32_t tid)
{
    UmmuTcteLine *l = ummu_assoc_find(&c->tcte, sizeof(*l), tid |
                                      (uint64_t)tag << UMMU_KEY_TAG_SHIFT, tid);

    return l ? &l->tc : NULL;
}

static inline UmmuTlbSpace ummu_tlb_space(const UmmuTecte *te,
                                          const UmmuTcte *tc, uint32_t tag,
                                          uint32_t tid)
{
    UmmuTlbSpace sp = { .k0 = (uint64_t)tag << UMMU_KEY_TAG_SHIFT };

    if (te->has_s1) {
        bool el2 = te->regime == UMMU_REGIME_EL2;

        sp.k0 |= tid | (uint64_t)tc->asid << UMMU_KEY_ASID_SHIFT |
                 (uint64_t)el2 << UMMU_KEY_EL2;
        sp.vmid = el2 ? 0 : (uint64_t)te->vmid << UMMU_KEY_VMID_SHIFT;
    } else {
        sp.k0 |= 1ull << UMMU_KEY_S2;
        sp.vmid = (uint64_t)te->vmid << UMMU_KEY_VMID_SHIFT;
    }
    return sp;
}

static inline UmmuTlbLine *ummu_tlb_find(UmmuCaches *c,
                                         const UmmuTlbSpace *sp, uint64_t ia)
{
    for (uint64_t m = c->tlb.class_mask; m; m &= m - 1) {
        unsigned shift = ctz64(m);
        uint64_t k0 = sp->k0 | (uint64_t)shift << UMMU_KEY_CLASS_SHIFT;
        UmmuTlbLine *l = ummu_assoc_find(&c->tlb, sizeof(*l), k0,
                                         ia >> shift | sp->vmid);

        if (l) {
            return l;
        }
    }
    return NULL;
}

/* Lines of the mode in use only; upper levels first, as the walk would. */
static inline UmmuPlbLine *ummu_plb_find(UmmuCaches *c, uint32_t tag,
                                         uint32_t tid, bool table,
                                         uint64_t addr)
{
    uint64_t who = tid | (uint64_t)tag << UMMU_KEY_TAG_SHIFT;
    uint64_t m = c->plb.class_mask & (table ? 0xf : 1 << UMMU_MAPT_SINGLE);

    for (; m; m &= m - 1) {
        unsigned level = ctz64(m);
        uint64_t k0 = who | (uint64_t)level << UMMU_KEY_CLASS_SHIFT;
        UmmuPlbLine *l = ummu_assoc_find(&c->plb, sizeof(*l), k0,
                                         addr >> ummu_mapt_span(level));

        if (l && addr >= l->e.first && addr <= l->e.last) {
            return l;
        }
    }
    return NULL;
}

/* ---- one request (ummu-resolve.c, ummu-record.c) ------------------------ */

/* Working state of one request. */
typedef struct UmmuXlate {
    UmmuState *s;
    UmmuClient *c;
    const UmmuRequest *req;
    UmmuPieces *more;           /* NULL: one part is enough */
    const UmmuTecte *te;
    const UmmuTcte *tc;         /* NULL without a stage 1 */
    UmmuTecte te_copy;          /* storage when the cache has no line */
    UmmuTcte tc_copy;
    UmmuTlbSpace space;
    UmmuNeed need;
    uint32_t tag;
    bool translating;           /* refused by MATT: fault policy applies */
    bool probe;
    UmmuFault fault;
} UmmuXlate;

/* A refusal, x->fault: event or not, stall or not; fills @res. */
void ummu_record(UmmuXlate *x, UmmuResult *res);

/* ---- filling (ummu-cache.c) --------------------------------------------- */

void ummu_tecte_insert(UmmuState *s, uint32_t tag, const UmmuTecte *te);
void ummu_tcte_insert(UmmuState *s, uint32_t tag, uint32_t tid,
                      const UmmuTcte *tc);
void ummu_tlb_insert(UmmuState *s, const UmmuTlbSpace *sp, const UmmuTecte *te,
                     uint64_t ia, unsigned insize, const UmmuLeaf *leaf);
void ummu_plb_insert(UmmuState *s, uint32_t tag, uint32_t tid,
                     const UmmuMaptEntry *e);

#endif
