/*
 * UMMU: page table walks (MATT), stage 1, stage 2 and nested.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * VMSAv8-64 descriptors.  The walker knows neither registers nor queues: it
 * gets decoded geometry, an address and the access, and returns a leaf or a
 * fault.  It keeps no walk cache, so a TLB invalidation has nothing else to
 * drop.  Every loop is bounded by the number of levels; a descriptor that other
 * agents keep changing is given up after a few attempts.
 */
#include "qemu/osdep.h"
#include "ummu-xlate.h"
#include "trace.h"

#define DESC_VALID          (1ull << 0)
#define DESC_TABLE          (1ull << 1)    /* at level 3: page */
#define DESC_AP_USER        (1ull << 6)    /* stage 2: read */
#define DESC_AP_RO          (1ull << 7)    /* stage 2: write (opposite sense) */
#define DESC_AF             (1ull << 10)
#define DESC_DBM            (1ull << 51)
#define DESC_CONT           (1ull << 52)
#define DESC_PXN            (1ull << 53)
#define DESC_UXN            (1ull << 54)
#define DESC_PXN_TABLE      (1ull << 59)
#define DESC_UXN_TABLE      (1ull << 60)
#define DESC_AP_TABLE_USER  (1ull << 61)   /* 1: no unprivileged access below */
#define DESC_AP_TABLE_RO    (1ull << 62)   /* 1: no write below */
#define DESC_ADDR_BITS      48
#define DESC_UPDATE_TRIES   8
#define CONT_LOG2_MAX       7

/* One stage of one walk. */
typedef struct UmmuStage {
    UmmuState *s;
    const UmmuStageCfg *cfg;
    const UmmuTecte *te;
    const UmmuTcte *tc;          /* stage 1 only: permission switches */
    UmmuNeed need;
    uint64_t ia;
    uint8_t cls;                 /* what a fault was about to access */
    bool stage2;
} UmmuStage;

static bool ummu_s2_leaf(UmmuState *s, const UmmuTecte *te, uint64_t ipa,
                         const UmmuNeed *need, uint8_t cls, UmmuLeaf *leaf,
                         UmmuFault *f);

static bool ummu_stage_fault(const UmmuStage *w, UmmuFault *f, uint8_t event,
                             uint64_t ftaddr, bool ttrnw)
{
    *f = (UmmuFault) {
        .event = event, .cls = w->cls, .s2 = w->stage2, .ttrnw = ttrnw,
        .ipa = w->stage2 ? w->ia : 0, .ftaddr = ftaddr,
    };
    return false;
}

/* A bus error is always about the table, whatever the walk was for. */
static bool ummu_walk_abort(const UmmuStage *w, UmmuFault *f, uint64_t ftaddr,
                            bool ttrnw)
{
    ummu_stage_fault(w, f, UMMU_EVT_A_PTW_EABT, ftaddr, ttrnw);
    f->cls = UMMU_CLS_WALK;
    return false;
}

unsigned ummu_s1_start_level(unsigned gran, unsigned insize)
{
    unsigned stride = gran - 3;

    return 4 - (insize - gran + stride - 1) / stride;
}

static unsigned ummu_level_shift(unsigned gran, unsigned level)
{
    return gran + (gran - 3) * (3 - level);
}

static bool ummu_block_legal(unsigned gran, unsigned level)
{
    return level == 2 || (level == 1 && gran == 12);
}

/* Contiguous entries: 16 with 4 KiB; 128 and 32 with 16 KiB; 32 with 64 KiB. */
static unsigned ummu_cont_log2(unsigned gran, unsigned level)
{
    return gran == 12 ? 4 : gran == 14 && level == 3 ? 7 : 5;
}

/*
 * Read one descriptor; in nested mode a stage 1 descriptor lies at an IPA.
 * @pa is where it was found.
 */
static bool ummu_desc_read(const UmmuStage *w, uint64_t addr, uint64_t *pa,
                           uint64_t *raw, UmmuFault *f)
{
    UmmuState *s = w->s;

    *pa = addr;
    if (!w->stage2 &&
        !ummu_table_ipa(s, w->te, addr, UMMU_CLS_WALK, pa, f)) {
        return false;
    }
    if (ummu_table_read(s, *pa, raw, 8, w->stage2 ? UMMU_FETCH_MATT_S2 :
                        UMMU_FETCH_MATT_S1) != MEMTX_OK) {
        return ummu_walk_abort(w, f, *pa, true);
    }
    if (!s->probing) {
        *(w->stage2 ? &s->cnt.s2_steps : &s->cnt.s1_steps) += 1;
    }
    return true;
}

static uint64_t ummu_desc_cpu(const UmmuStageCfg *cfg, uint64_t raw)
{
    return cfg->big ? be64_to_cpu(raw) : le64_to_cpu(raw);
}

static uint64_t ummu_desc_raw(const UmmuStageCfg *cfg, uint64_t desc)
{
    return cfg->big ? cpu_to_be64(desc) : cpu_to_le64(desc);
}

static uint16_t ummu_attr_s1(const UmmuStageCfg *cfg, uint64_t desc,
                             uint64_t hier)
{
    bool no_write = hier & DESC_AP_TABLE_RO;
    uint16_t attr = 0;

    if ((desc & DESC_AP_USER) && !(hier & DESC_AP_TABLE_USER)) {
        attr |= UMMU_ATTR_USER;
    }
    if (no_write) {
        attr |= UMMU_ATTR_RO;
    } else if (desc & DESC_AP_RO) {
        attr |= cfg->hdf && (desc & DESC_DBM) ? UMMU_ATTR_CLEAN : UMMU_ATTR_RO;
    }
    if ((desc & DESC_UXN) || (hier & DESC_UXN_TABLE)) {
        attr |= UMMU_ATTR_UXN;
    }
    if ((desc & DESC_PXN) || (hier & DESC_PXN_TABLE)) {
        attr |= UMMU_ATTR_PXN;
    }
    return attr;
}

static uint16_t ummu_attr_s2(const UmmuStageCfg *cfg, uint64_t desc)
{
    /* XN[1:0]: 0 all, 1 unprivileged only, 2 none, 3 privileged only. */
    static const uint16_t xn[] = {
        0, UMMU_ATTR_S2_PXN, UMMU_ATTR_S2_PXN | UMMU_ATTR_S2_UXN,
        UMMU_ATTR_S2_UXN,
    };
    uint16_t attr = xn[extract64(desc, 53, 2)];

    if (!(desc & DESC_AP_USER)) {
        attr |= UMMU_ATTR_S2_NR;
    }
    if (!(desc & DESC_AP_RO)) {
        attr |= cfg->hdf && (desc & DESC_DBM) ? UMMU_ATTR_CLEAN :
                                                UMMU_ATTR_S2_NW;
    }
    /* MemAttr[3:2] = 0 (with FWB: MemAttr[2] = 0) is Device memory. */
    if (!extract64(desc, 4, 2)) {
        attr |= UMMU_ATTR_S2_DEVICE;
    }
    return attr;
}

static bool ummu_stage_perm(const UmmuStage *w, uint16_t attr)
{
    return w->stage2 ? ummu_perm_s2(attr, &w->need) :
                       ummu_perm_s1(attr, w->tc, &w->need);
}

/*
 * Access flag, permission and dirty state of a leaf, in this order.  @desc_new
 * is what memory must hold before the access may happen.
 */
static bool ummu_leaf_check(const UmmuStage *w, uint64_t desc, uint64_t hier,
                            uint64_t pa, uint64_t *desc_new, uint16_t *attr,
                            UmmuFault *f)
{
    const UmmuStageCfg *cfg = w->cfg;

    *desc_new = desc;
    if (!(desc & DESC_AF)) {
        if (cfg->haf) {
            *desc_new |= DESC_AF;
        } else if (!cfg->affd) {
            return ummu_stage_fault(w, f, UMMU_EVT_ACCESS, pa, true);
        }
    }
    *attr = w->stage2 ? ummu_attr_s2(cfg, desc) : ummu_attr_s1(cfg, desc, hier);
    if (!ummu_stage_perm(w, *attr)) {
        return ummu_stage_fault(w, f, UMMU_EVT_A_PERMISSION, pa, true);
    }
    if (w->need.write && (*attr & UMMU_ATTR_CLEAN)) {
        *desc_new = w->stage2 ? *desc_new | DESC_AP_RO :
                                *desc_new & ~DESC_AP_RO;
        *attr &= ~UMMU_ATTR_CLEAN;
    }
    return true;
}

/* Store flag updates; sets @again if somebody else changed the descriptor. */
static bool ummu_leaf_update(const UmmuStage *w, uint64_t addr, uint64_t pa,
                             uint64_t desc, uint64_t desc_new, bool *again,
                             UmmuFault *f)
{
    UmmuState *s = w->s;
    uint64_t wpa = pa;
    bool swapped;

    *again = false;
    if (s->probing) {
        return true;
    }
    if (!w->stage2 && w->te->has_s2) {
        /* The update is a write to the IPA of the descriptor. */
        const UmmuNeed need = { .read = true, .write = true, .priv = true };
        UmmuLeaf leaf;

        if (!ummu_s2_leaf(s, w->te, addr, &need, UMMU_CLS_WALK, &leaf, f)) {
            f->ttrnw = false;
            return false;
        }
        wpa = leaf.pa;
    }
    if (ummu_table_cmpxchg64(s, wpa, ummu_desc_raw(w->cfg, desc),
                             ummu_desc_raw(w->cfg, desc_new),
                             &swapped) != MEMTX_OK) {
        return ummu_walk_abort(w, f, wpa, false);
    }
    *again = !swapped;
    if (swapped) {
        s->cnt.af_updates += !(desc & DESC_AF);
        s->cnt.dirty_updates += ((desc ^ desc_new) & DESC_AP_RO) != 0;
        trace_ummu_walk_update(ummu_id(s), w->stage2 ? 2 : 1, w->ia, wpa, desc,
                               desc_new);
    }
    return true;
}

static void ummu_leaf_fill(const UmmuStage *w, uint64_t desc, unsigned level,
                           UmmuLeaf *leaf)
{
    unsigned shift = ummu_level_shift(w->cfg->gran, level);

    leaf->pa = deposit64(extract64(desc, 0, DESC_ADDR_BITS), 0, shift, w->ia);
    leaf->shift = shift;
    leaf->desc_pa = 0;
}

/*
 * Contiguous hint: one leaf for the whole group.  Software that sets it
 * promises a group of equal neighbours; the promise is checked (one read of the
 * group), so that a broken group never maps what its descriptors do not say.
 */
static void ummu_leaf_contiguous(const UmmuStage *w, uint64_t pa, uint64_t desc,
                                 unsigned level, UmmuLeaf *leaf)
{
    const UmmuStageCfg *cfg = w->cfg;
    unsigned shift = leaf->shift, log2 = ummu_cont_log2(cfg->gran, level);
    uint64_t group[1 << CONT_LOG2_MAX] QEMU_UNINITIALIZED;
    uint64_t first = desc - (extract64(w->ia, shift, log2) << shift);

    if (shift + log2 > cfg->insize ||
        extract64(leaf->pa ^ w->ia, 0, shift + log2) ||
        ummu_table_read(w->s, pa & ~((8ull << log2) - 1), group, 8 << log2,
                        w->stage2 ? UMMU_FETCH_MATT_S2 :
                        UMMU_FETCH_MATT_S1) != MEMTX_OK) {
        return;
    }
    for (uint64_t i = 0; i < 1 << log2; i++) {
        if (ummu_desc_cpu(cfg, group[i]) != first + (i << shift)) {
            return;
        }
    }
    leaf->shift = shift + log2;
}

/* Leaf found at @addr (@pa behind stage 2): decide, update, fill. */
static bool ummu_leaf_finish(const UmmuStage *w, uint64_t addr, uint64_t pa,
                             uint64_t raw, uint64_t hier, unsigned level,
                             bool *again, UmmuLeaf *leaf, UmmuFault *f)
{
    uint64_t desc = ummu_desc_cpu(w->cfg, raw), desc_new;

    ummu_leaf_fill(w, desc, level, leaf);
    if (leaf->pa >> w->cfg->outsize) {
        return ummu_stage_fault(w, f, UMMU_EVT_A_ADDR_SIZE, pa, true);
    }
    if (!ummu_leaf_check(w, desc, hier, pa, &desc_new, &leaf->attr, f)) {
        return false;
    }
    if (desc == desc_new) {
        if (desc & DESC_CONT) {
            ummu_leaf_contiguous(w, pa, desc, level, leaf);
        } else if (level == 3) {
            leaf->desc_pa = pa;
            leaf->hier = hier;
        }
        *again = false;
        return true;
    }
    return ummu_leaf_update(w, addr, pa, desc, desc_new, again, f);
}

/* One pass from the start table; @again asks for another one. */
static bool ummu_stage_pass(const UmmuStage *w, UmmuLeaf *leaf, bool *again,
                            UmmuFault *f)
{
    const UmmuStageCfg *cfg = w->cfg;
    uint64_t table = cfg->base, hier = 0;
    unsigned bits = cfg->insize - ummu_level_shift(cfg->gran, cfg->level);

    for (unsigned level = cfg->level; level <= 3; level++) {
        unsigned shift = ummu_level_shift(cfg->gran, level);
        uint64_t addr, pa, raw, desc;

        if (table >> cfg->outsize) {
            return ummu_stage_fault(w, f, UMMU_EVT_A_ADDR_SIZE, table, true);
        }
        addr = table + extract64(w->ia, shift, bits) * 8;
        if (!ummu_desc_read(w, addr, &pa, &raw, f)) {
            return false;
        }
        desc = ummu_desc_cpu(cfg, raw);
        trace_ummu_walk_step(ummu_id(w->s), w->stage2 ? 2 : 1, w->ia, level, pa,
                             desc);
        if (!(desc & DESC_VALID) ||
            (!(desc & DESC_TABLE) && !ummu_block_legal(cfg->gran, level))) {
            return ummu_stage_fault(w, f, UMMU_EVT_A_TRANSLATION, pa, true);
        }
        if (level == 3 || !(desc & DESC_TABLE)) {
            return ummu_leaf_finish(w, addr, pa, raw, hier, level, again, leaf,
                                    f);
        }
        table = extract64(desc, cfg->gran, DESC_ADDR_BITS - cfg->gran)
                << cfg->gran;
        hier |= cfg->had ? 0 : desc;
        bits = cfg->gran - 3;
    }
    g_assert_not_reached();      /* level 3 always returns */
}

static bool ummu_stage_walk(const UmmuStage *w, UmmuLeaf *leaf, UmmuFault *f)
{
    bool again = false;

    for (unsigned i = 0; i < DESC_UPDATE_TRIES; i++) {
        if (!ummu_stage_pass(w, leaf, &again, f)) {
            return false;
        }
        if (!again) {
            return true;
        }
    }
    return ummu_walk_abort(w, f, 0, false);
}

unsigned ummu_walk_ahead(UmmuState *s, const UmmuTcte *tc, const UmmuLeaf *leaf,
                         unsigned max, UmmuLeaf leaves[UMMU_WALK_AHEAD])
{
    const UmmuStageCfg *cfg = &tc->s1;
    unsigned room = (64 - leaf->desc_pa % 64) / 8 - 1, n;
    uint64_t raw[UMMU_WALK_AHEAD] QEMU_UNINITIALIZED;

    max = MIN(max, room);
    if (!max || ummu_table_read(s, leaf->desc_pa + 8, raw, max * 8,
                                UMMU_FETCH_MATT_S1) != MEMTX_OK) {
        return 0;
    }
    s->cnt.s1_steps++;
    for (n = 0; n < max; n++) {
        uint64_t desc = ummu_desc_cpu(cfg, raw[n]);
        uint64_t pa = extract64(desc, 0, DESC_ADDR_BITS) &
                      ~((1ull << cfg->gran) - 1);

        if ((desc & (DESC_VALID | DESC_TABLE | DESC_AF | DESC_CONT)) !=
            (DESC_VALID | DESC_TABLE | DESC_AF) || pa >> cfg->outsize) {
            break;
        }
        leaves[n].pa = pa;
        leaves[n].attr = ummu_attr_s1(cfg, desc, leaf->hier);
        leaves[n].shift = leaves[n].s1_shift = cfg->gran;
    }
    return n;
}

/* ---- stage 2 ------------------------------------------------------------ */

static bool ummu_s2_leaf(UmmuState *s, const UmmuTecte *te, uint64_t ipa,
                         const UmmuNeed *need, uint8_t cls, UmmuLeaf *leaf,
                         UmmuFault *f)
{
    const UmmuStage w = {
        .s = s, .cfg = &te->s2, .te = te, .need = *need, .ia = ipa,
        .cls = cls, .stage2 = true,
    };

    if (ipa >> te->s2.insize) {
        return ummu_stage_fault(&w, f, UMMU_EVT_A_TRANSLATION, 0, true);
    }
    return ummu_stage_walk(&w, leaf, f);
}

bool ummu_table_s2(UmmuState *s, const UmmuTecte *te, uint64_t ipa, uint8_t cls,
                   uint64_t *pa, UmmuFault *f)
{
    static const UmmuNeed need = { .read = true, .priv = true };
    UmmuLeaf leaf;

    if (!ummu_s2_leaf(s, te, ipa, &need, cls, &leaf, f)) {
        return false;
    }
    if (cls == UMMU_CLS_WALK && te->s2_ptw &&
        (leaf.attr & UMMU_ATTR_S2_DEVICE)) {
        *f = (UmmuFault) {
            .event = UMMU_EVT_A_PERMISSION, .cls = cls, .s2 = true,
            .ttrnw = true, .ipa = ipa,
        };
        return false;
    }
    *pa = leaf.pa;
    return true;
}

/* ---- whole translation -------------------------------------------------- */

/*
 * Input rule of 8.2: bits above the input size all 0 or all 1.  The walk uses
 * the low bits only; there is one table base for both halves.
 */
static bool ummu_s1_input(const UmmuTcte *tc, uint64_t ia)
{
    unsigned n = tc->s1.insize;
    uint64_t upper = ia >> n;

    return upper == 0 || upper == UINT64_MAX >> n;
}

static bool ummu_s1_leaf(UmmuState *s, const UmmuTecte *te, const UmmuTcte *tc,
                         uint64_t ia, const UmmuNeed *need, UmmuLeaf *leaf,
                         UmmuFault *f)
{
    UmmuStage w = {
        .s = s, .cfg = &tc->s1, .te = te, .tc = tc, .need = *need, .ia = ia,
        .cls = UMMU_CLS_INPUT,
    };

    if (tc->bypass) {
        return true;             /* the caller's identity leaf */
    }
    if (!ummu_s1_input(tc, ia) || tc->mattwd) {
        return ummu_stage_fault(&w, f, UMMU_EVT_A_TRANSLATION, 0, true);
    }
    w.ia = extract64(ia, 0, tc->s1.insize);
    return ummu_stage_walk(&w, leaf, f);
}

bool ummu_walk(UmmuState *s, const UmmuTecte *te, const UmmuTcte *tc,
               uint64_t ia, const UmmuNeed *need, UmmuLeaf *leaf, UmmuFault *f)
{
    UmmuLeaf s2;

    *leaf = (UmmuLeaf) { .pa = ia, .attr = UMMU_ATTR_USER, .shift = 63 };
    if (te->has_s1 && !ummu_s1_leaf(s, te, tc, ia, need, leaf, f)) {
        return false;
    }
    leaf->s1_shift = leaf->shift;
    if (!te->has_s2) {
        return true;
    }
    if (!ummu_s2_leaf(s, te, leaf->pa, need, UMMU_CLS_INPUT, &s2, f)) {
        return false;
    }
    leaf->pa = s2.pa;
    leaf->shift = MIN(leaf->shift, s2.shift);
    leaf->attr |= s2.attr;
    return true;
}
