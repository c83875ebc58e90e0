/*
 * UMMU: resolution of one request.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Three steps with one function each: decode (entity, context, effective
 * attributes), decide (permission table, then page tables), record (event,
 * stall, answer; ummu-record.c).  Order of results: configuration, E_bit of
 * the context, MAPT, MATT.  A MAPT refusal must win over a page fault, or a
 * forbidden request of a stall-capable context would be paged in.
 *
 * A request is answered for the longest prefix that passes and is physically
 * contiguous, within a bounded number of pieces.  A refusal behind the first
 * byte is not recorded here: the client comes back at that byte.
 */
#include "qemu/osdep.h"
#include "ummu-cache.h"
#include "trace.h"

#define UMMU_MERGE_MAX  64      /* pieces (nodes and leaves) per answer */

/* ---- decode: entity and context ----------------------------------------- */

static void ummu_count_cfg(UmmuXlate *x, bool hit)
{
    if (!x->probe) {
        *(hit ? &x->s->cnt.cfg_hit : &x->s->cnt.cfg_miss) += 1;
        if (!hit) {
            ummu_pmu_count(x->s, UMMU_PMU_CNTX_MISS, x->tag, x->req->tid, 1, 0);
        }
    }
}

static bool ummu_get_tecte(UmmuXlate *x)
{
    UmmuState *s = x->s;

    if (!ummu_kv_lookup(s, x->req->eid_lo, x->req->eid_hi, &x->tag) ||
        x->tag >> ummu_tect_log2size(s)) {
        return ummu_refuse(&x->fault, UMMU_EVT_BAD_DSTEID);
    }
    x->te = ummu_tecte_cached(s->caches, x->tag);
    ummu_count_cfg(x, x->te != NULL);
    if (x->te) {
        return true;
    }
    if (!ummu_tecte_fetch(s, x->tag, &x->te_copy, &x->fault)) {
        return false;
    }
    x->te = &x->te_copy;
    if (!x->probe) {
        ummu_tecte_insert(s, x->tag, x->te);
    }
    return true;
}

static bool ummu_get_tcte(UmmuXlate *x)
{
    UmmuState *s = x->s;
    uint32_t tid = x->req->tid;

    /* The bound belongs to the TECTE: it counts for a cached TCTE as well. */
    if (tid >> x->te->tct_num || !x->te->tct_num) {
        return ummu_refuse(&x->fault, UMMU_EVT_BAD_TOKENID);
    }
    x->tc = ummu_tcte_cached(s->caches, x->tag, tid);
    ummu_count_cfg(x, x->tc != NULL);
    if (x->tc) {
        return true;
    }
    if (!ummu_tcte_fetch(s, x->te, tid, &x->tc_copy, &x->fault)) {
        return false;
    }
    x->tc = &x->tc_copy;
    if (!x->probe) {
        ummu_tcte_insert(s, x->tag, tid, x->tc);
    }
    return true;
}

/* Privilege and instruction attributes after the entity's overrides. */
static bool ummu_get_need(UmmuXlate *x)
{
    const UmmuRequest *req = x->req;
    const UmmuTecte *te = x->te;
    bool inst = te->inst_sel == 3 || (te->inst_sel < 2 && req->instruction);
    bool read = req->access == UMMU_ACCESS_READ;

    /* No secure translation here, and no such thing as a fetch that writes. */
    if (te->secure || (req->instruction && !read)) {
        return ummu_refuse(&x->fault, UMMU_EVT_UT);
    }
    x->need = (UmmuNeed) {
        .priv = te->priv_sel == 3 || (te->priv_sel < 2 && req->privileged),
        .exec = inst && read,
        .read = !(inst && read) && req->access != UMMU_ACCESS_WRITE,
        .write = !read,
    };
    return true;
}

/* 5.1 to 5.3.  A mode of 0..3 is refused without an event. */
static bool ummu_decode(UmmuXlate *x)
{
    if (!ummu_get_tecte(x)) {
        return false;
    }
    if (x->te->mode == UMMU_ST_MODE_BYPASS) {
        return true;
    }
    if (!x->te->has_s1 && !x->te->has_s2) {
        return ummu_refuse(&x->fault, 0);
    }
    if (!ummu_get_need(x)) {
        return false;
    }
    if (!x->te->has_s1) {
        return true;
    }
    if (!ummu_get_tcte(x)) {
        return false;
    }
    if (x->tc->e_bit && !x->req->e_bit) {
        return ummu_refuse(&x->fault, UMMU_EVT_EBIT_DENY);
    }
    return true;
}

/* ---- decide: permission table ------------------------------------------- */

static bool ummu_mapt_refuse(UmmuXlate *x, UmmuMaptVerdict verdict)
{
    return ummu_refuse(&x->fault, verdict == UMMU_MAPT_EBIT ?
                       UMMU_EVT_EBIT_DENY : UMMU_EVT_P_PERMISSION);
}

static bool ummu_mapt_walk(UmmuXlate *x, uint64_t addr, uint64_t *last)
{
    UmmuState *s = x->s;
    UmmuMaptVerdict verdict;
    UmmuMaptEntry e QEMU_UNINITIALIZED;

    ummu_pmu_count(s, UMMU_PMU_PPTW_REQ, x->tag, x->req->tid, 1, 0);
    if (!ummu_mapt_find(s, x->te, x->tc, addr, &e, &x->fault)) {
        return false;
    }
    verdict = ummu_mapt_check(&e, x->req);
    if (verdict != UMMU_MAPT_PASS) {
        return ummu_mapt_refuse(x, verdict);
    }
    if (!x->probe) {
        ummu_plb_insert(s, x->tag, x->req->tid, &e);
    }
    *last = e.last;
    return true;
}

/* Does the table permit the access at @addr, and up to where (inclusive)? */
static bool ummu_mapt_piece(UmmuXlate *x, uint64_t addr, uint64_t *last)
{
    UmmuState *s = x->s;
    UmmuPlbLine *l = ummu_plb_find(s->caches, x->tag, x->req->tid,
                                   x->tc->mapt_table, addr);
    UmmuMaptVerdict verdict;

    if (!x->probe) {
        *(l ? &s->cnt.plb_hit : &s->cnt.plb_miss) += 1;
        ummu_pmu_count(s, UMMU_PMU_PLB_HIT, x->tag, x->req->tid, l != NULL, 1);
    }
    if (!l) {
        return ummu_mapt_walk(x, addr, last);
    }
    verdict = ummu_mapt_check(&l->e, x->req);
    if (verdict == UMMU_MAPT_PASS) {
        *last = l->e.last;
        return true;
    }
    if (verdict != UMMU_MAPT_TOKEN || !ummu_positive_plb(s)) {
        return ummu_mapt_refuse(x, verdict);
    }
    /* Positive PLB: a token mismatch is decided on the node in memory. */
    if (!x->probe) {
        ummu_assoc_remove(&s->caches->plb, &l->line);
        s->cnt.plb_drop++;
        s->cnt.plb_rewalk++;
    }
    return ummu_mapt_walk(x, addr, last);
}

/* ---- decide: page tables ------------------------------------------------ */

static bool ummu_perm_cached(const UmmuXlate *x, uint16_t attr)
{
    return !(x->need.write && (attr & UMMU_ATTR_CLEAN)) &&
           (!x->tc || ummu_perm_s1(attr, x->tc, &x->need)) &&
           (!x->te->has_s2 || ummu_perm_s2(attr, &x->need));
}

/*
 * Contexts that follow CPU broadcasts (ASH = 0) are never cached: the model
 * does not see the CPUs' TLBI.
 */
static bool ummu_may_cache_leaf(const UmmuXlate *x)
{
    return !x->probe && !(x->s->cfg.tlb_broadcast && x->tc && !x->tc->ash);
}

/* Stage 1 with its own walk; MATT_BYPASS leaves the input to stage 2. */
static bool ummu_walks_s1(const UmmuXlate *x)
{
    return x->tc && !x->tc->bypass;
}

static bool ummu_canonical(uint64_t ia, unsigned bits, bool s1)
{
    uint64_t upper = ia >> bits;

    return upper == 0 || (s1 && upper == UINT64_MAX >> bits);
}

/*
 * A request that goes on behind a page will need the next ones: keep those that
 * one read of the table gives.  Not with an armed injection: it counts reads.
 */
static void ummu_cache_ahead(UmmuXlate *x, uint64_t low, unsigned bits,
                             const UmmuLeaf *leaf)
{
    uint64_t page = 1ull << leaf->shift, first = low & ~(page - 1);
    uint64_t done = low - extract64(x->req->uba, 0, bits) + (page - low % page);
    uint64_t want = x->req->len;
    uint64_t more = want > done ? (want - done - 1) / page + 1 : 0;
    UmmuLeaf leaves[UMMU_WALK_AHEAD] QEMU_UNINITIALIZED;
    unsigned n;

    if (!leaf->desc_pa || !more || x->s->inject.table_error_nth ||
        !x->s->cfg.tlb_entries) {
        return;
    }
    /* A start table may end before its line of descriptors does. */
    more = MIN(more, ((1ull << bits) - first) / page - 1);
    n = ummu_walk_ahead(x->s, x->tc, leaf, MIN(more, UMMU_WALK_AHEAD), leaves);
    for (unsigned i = 0; i < n; i++) {
        ummu_tlb_insert(x->s, &x->space, x->te, first + (i + 1) * page, bits,
                        &leaves[i]);
    }
}

/* @pa of @ia and how many bytes from there the same leaf covers. */
static bool ummu_matt_piece(UmmuXlate *x, uint64_t ia, uint64_t *pa,
                            uint64_t *len)
{
    UmmuState *s = x->s;
    bool s1 = ummu_walks_s1(x);
    unsigned bits = s1 ? x->tc->s1.insize : x->te->s2.insize;
    UmmuLeaf leaf QEMU_UNINITIALIZED;
    UmmuTlbLine *l = NULL;
    uint64_t low, off;

    if (!s1 && !x->te->has_s2) {
        *pa = ia;
        *len = ia ? -ia : UINT64_MAX;
        return true;
    }
    low = extract64(ia, 0, bits);
    if (ummu_canonical(ia, bits, s1)) {
        l = ummu_tlb_find(s->caches, &x->space, low);
    }
    if (!x->probe) {
        *(l ? &s->cnt.tlb_hit : &s->cnt.tlb_miss) += 1;
        ummu_pmu_count(s, UMMU_PMU_TLB_HIT, x->tag, x->req->tid, l != NULL, 1);
    }
    if (l && likely(ummu_perm_cached(x, l->attr))) {
        off = extract64(low, 0, l->shift);
        *pa = l->pa + off;
        *len = (1ull << l->shift) - off;
        return true;
    }
    /*
     * A cached leaf that refuses decides nothing: software may have raised the
     * right without an invalidation, and a clean page needs its dirty update.
     */
    if (!ummu_walk(s, x->te, x->tc, ia, &x->need, &leaf, &x->fault)) {
        return false;
    }
    if (ummu_may_cache_leaf(x)) {
        ummu_tlb_insert(s, &x->space, x->te, low, bits, &leaf);
        if (s1 && !x->te->has_s2) {
            ummu_cache_ahead(x, low, bits, &leaf);
        }
    }
    *pa = leaf.pa;
    *len = (1ull << leaf.shift) - extract64(low, 0, leaf.shift);
    return true;
}

/* ---- decide: the answer ------------------------------------------------- */

static uint64_t ummu_mapt_extent(uint64_t uba, uint64_t last)
{
    return last - extract64(uba, 0, UMMU_MAPT_ADDR_BITS) + 1;
}

/* A leaf behind the answer: part of it, a part of its own, or no more room. */
static bool ummu_add_part(UmmuXlate *x, UmmuResult *res, uint64_t pa,
                          uint64_t len)
{
    UmmuPieces *more = x->more;
    UmmuPiece *last = more && more->n ? &more->piece[more->n - 1] : NULL;

    if (last ? pa == last->pa + last->len : pa == res->pa + res->len) {
        *(last ? &last->len : &res->len) += len;
        return true;
    }
    if (!more || more->n == more->max) {
        return false;
    }
    more->piece[more->n++] = (UmmuPiece) { .pa = pa, .len = len };
    return true;
}

/*
 * Grow the answer over following nodes and leaves.  Look-ahead only: what
 * refuses ends the prefix.  Not with an armed injection, which has to hit a
 * request and not a guess.
 */
static void ummu_merge(UmmuXlate *x, uint64_t mapt_len, uint64_t len,
                       UmmuResult *res)
{
    uint64_t total = res->len, pa = 0, piece = 0, last;

    for (unsigned i = 0; i < UMMU_MERGE_MAX && total < len &&
         !x->s->inject.table_error_nth; i++) {
        uint64_t next = x->req->uba + total, part;

        if (total == mapt_len) {
            if (!extract64(next, 0, UMMU_MAPT_ADDR_BITS) ||
                !ummu_mapt_piece(x, extract64(next, 0, UMMU_MAPT_ADDR_BITS),
                                 &last)) {
                break;
            }
            mapt_len += ummu_mapt_extent(next, last);
        }
        if (!piece && !ummu_matt_piece(x, next, &pa, &piece)) {
            break;
        }
        part = MIN(MIN(piece, mapt_len - total), len - total);
        if (!ummu_add_part(x, res, pa, part)) {
            break;
        }
        pa += part;
        piece -= part;
        total += part;
    }
}

/* 5.4 and 5.5.  On success fills pa and len of @res. */
static bool ummu_decide(UmmuXlate *x, UmmuResult *res)
{
    const UmmuRequest *req = x->req;
    uint64_t low = extract64(req->uba, 0, UMMU_MAPT_ADDR_BITS);
    uint64_t room = -req->uba;      /* bytes up to 2^64; 0 means all of them */
    uint64_t len = room ? MIN(req->len, room) : req->len;
    uint64_t mapt_len = UINT64_MAX, matt_len, last;

    if (x->te->mode == UMMU_ST_MODE_BYPASS) {
        res->pa = req->uba;
        res->len = len;
        return true;
    }
    /* A request of length 0 is translated but needs no permission (S). */
    if (x->tc && x->tc->mapt_en && req->len && ummu_mapt_enabled(x->s)) {
        if (!ummu_mapt_piece(x, low, &last)) {
            return false;
        }
        mapt_len = ummu_mapt_extent(req->uba, last);
    }
    x->translating = true;
    x->space = ummu_tlb_space(x->te, x->tc, x->tag, req->tid);
    if (!ummu_matt_piece(x, req->uba, &res->pa, &matt_len)) {
        /* What a read-as-zero answer may cover. */
        res->len = MIN(MIN(len, mapt_len), 4096 - (req->uba & 4095));
        return false;
    }
    res->len = MIN(MIN(mapt_len, matt_len), len);
    if (res->len < len) {
        ummu_merge(x, mapt_len, len, res);
    }
    return true;
}

/* ---- entry -------------------------------------------------------------- */

/* UMMU_EN = 0: GBPA lets the address through or aborts, without any event. */
static void ummu_disabled(UmmuState *s, const UmmuRequest *req, bool probe,
                          UmmuResult *res)
{
    if (UMMU_REG_FIELD(s, UMMU_GBPA, ABORT)) {
        res->status = UMMU_RES_FAULT;
        res->fault_addr = req->uba;
        if (!probe) {
            s->cnt.responses_fault++;
            s->cnt.silent_faults++;
        }
        return;
    }
    res->status = UMMU_RES_OK;
    res->pa = req->uba;
    res->len = req->len;
}

/* Bytes that an answer covers. */
static uint64_t ummu_covered(const UmmuResult *res, const UmmuPieces *more)
{
    uint64_t len = res->len;

    for (unsigned i = 0; more && i < more->n; i++) {
        len += more->piece[i].len;
    }
    return len;
}

/* What one request added to the totals, for counters that watch it. */
static void ummu_count_work(const UmmuXlate *x, const UmmuCounters *before,
                            const UmmuResult *res)
{
    UmmuState *s = x->s;
    uint64_t len = ummu_covered(res, x->more);
    const struct {
        unsigned event;
        uint64_t n;
    } work[] = {
        { UMMU_PMU_STEPS_S1, s->cnt.s1_steps - before->s1_steps },
        { UMMU_PMU_STEPS_S2, s->cnt.s2_steps - before->s2_steps },
        { UMMU_PMU_STEPS_MAPT, s->cnt.mapt_steps - before->mapt_steps },
        { UMMU_PMU_BYTES_READ,
          x->req->access != UMMU_ACCESS_WRITE ? len : 0 },
        { UMMU_PMU_BYTES_WRITTEN,
          x->req->access != UMMU_ACCESS_READ ? len : 0 },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(work); i++) {
        ummu_pmu_add(s, work[i].event, x->tag, x->req->tid, work[i].n, 0);
    }
}

static void ummu_resolve_enabled(UmmuState *s, UmmuClient *c,
                                 const UmmuRequest *req, bool probe,
                                 UmmuResult *res, UmmuPieces *more)
{
    bool watched = unlikely(s->pmu.active) && !probe;
    UmmuCounters before QEMU_UNINITIALIZED;
    UmmuXlate x QEMU_UNINITIALIZED;

    /* Not cleared as a whole: the two copies are only storage. */
    x.s = s;
    x.c = c;
    x.req = req;
    x.more = more;
    x.te = NULL;
    x.tc = NULL;
    x.tag = 0;
    x.need = (UmmuNeed) {
        .priv = req->privileged, .exec = req->instruction,
    };
    x.translating = false;
    x.probe = probe;
    if (watched) {
        before = s->cnt;
    }
    if (ummu_decode(&x) && ummu_decide(&x, res)) {
        res->status = UMMU_RES_OK;
    } else {
        ummu_record(&x, res);
    }
    if (watched) {
        ummu_count_work(&x, &before, res);
    }
}

static void ummu_count_ok(UmmuState *s, const UmmuRequest *req, uint64_t len)
{
    s->cnt.responses_ok++;
    if (req->access != UMMU_ACCESS_WRITE) {
        s->cnt.bytes_read += len;
    }
    if (req->access != UMMU_ACCESS_READ) {
        s->cnt.bytes_written += len;
    }
}

void ummu_resolve(UmmuState *s, UmmuClient *c, const UmmuRequest *req,
                  bool probe, UmmuResult *res, UmmuPieces *more)
{
    bool was_probing = s->probing;

    *res = (UmmuResult) { 0 };
    s->probing = probe;
    if (!probe) {
        s->cnt.requests++;
        ummu_pmu_count(s, UMMU_PMU_REQ, 0, req->tid, 1, 0);
    }
    if (unlikely(!ummu_enabled(s))) {
        ummu_disabled(s, req, probe, res);
    } else {
        ummu_resolve_enabled(s, c, req, probe, res, more);
    }
    if (!probe) {
        if (res->status == UMMU_RES_OK) {
            ummu_count_ok(s, req, ummu_covered(res, more));
        }
        ummu_pmu_count(s, UMMU_PMU_RSP, 0, req->tid, 1, 0);
    }
    s->probing = was_probing;
    trace_ummu_resolve(ummu_id(s), req->eid_lo, req->tid, req->access, req->uba,
                       req->len, res->status, res->event, res->pa, res->len);
}

void ummu_translate(UmmuClient *c, const UmmuRequest *req, UmmuResult *res)
{
    ummu_resolve(c->ummu, c, req, false, res, NULL);
}

void ummu_translate_parts(UmmuClient *c, const UmmuRequest *req,
                          UmmuResult *res, UmmuPieces *more)
{
    more->n = 0;
    ummu_resolve(c->ummu, c, req, false, res, more);
}
