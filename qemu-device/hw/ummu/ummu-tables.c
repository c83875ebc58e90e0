/*
 * UMMU: target entity and target context tables.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Fetch (linear and two-level), legality and decoding of TECTE and TCTE.  An
 * entry is decoded only after it was found valid and legal, so the decoded
 * structs never hold an impossible geometry.
 */
#include "qemu/osdep.h"
#include "ummu-xlate.h"
#include "trace.h"

#define TE(word, field)  FIELD_EX64(w[word], TECTE_W##word, field)
#define TC(word, field)  FIELD_EX64(w[word], TCTE_W##word, field)

/* SZ of the small-table extension: at most 48 (47 with 64 KiB pages). */
#define UMMU_SZ_MIN       16
#define UMMU_SZ_MAX       48
#define UMMU_SZ_MAX_64K   47
#define UMMU_S2_CONCAT    4      /* log2 of concatenated start tables */

static unsigned ummu_gran_log2(unsigned tg)
{
    return tg == 0 ? 12 : tg == 1 ? 16 : 14;
}

static unsigned ummu_pas_bits(unsigned code)
{
    static const uint8_t bits[] = { 32, 36, 40, 42, 44, 48 };

    return code < ARRAY_SIZE(bits) ? bits[code] : 0;
}

static bool ummu_sz_legal(const UmmuState *s, unsigned sz, unsigned tg)
{
    return ummu_cap_granule(s, tg) && sz >= UMMU_SZ_MIN &&
           sz <= (tg == 1 ? UMMU_SZ_MAX_64K : UMMU_SZ_MAX);
}

/* ---- stage 2 part of the TECTE ------------------------------------------ */

/* VTCR.SL0 coding; -1 for a code the granule does not have. */
static int ummu_s2_level(unsigned gran, unsigned sl)
{
    static const int8_t level_4k[] = { 2, 1, 0, 3 };
    static const int8_t level_16k[] = { 3, 2, 1, -1 };
    static const int8_t level_64k[] = { 3, 2, 1, -1 };

    return gran == 12 ? level_4k[sl] : gran == 14 ? level_16k[sl]
                                                  : level_64k[sl];
}

static bool ummu_s2_legal(const UmmuState *s, const uint64_t w[8])
{
    unsigned tsz = TE(2, NS_S2_TSZ), gran, insize;
    int level, bits;

    if ((TE(2, S2_HDF) && !TE(2, S2_HAF)) || !ummu_pas_bits(TE(2, S2_PAS)) ||
        !ummu_sz_legal(s, tsz, TE(2, NS_S2_TG))) {
        return false;
    }
    gran = ummu_gran_log2(TE(2, NS_S2_TG));
    insize = 64 - tsz;
    level = ummu_s2_level(gran, TE(2, NS_S2_SL));
    if (level < 0) {
        return false;
    }
    /* The start level must resolve at least one bit, at most 16 tables wide. */
    bits = (int)insize - (int)(gran + (gran - 3) * (3 - level));
    return bits >= 1 && bits <= (int)(gran - 3) + UMMU_S2_CONCAT;
}

static uint64_t ummu_table_align(const UmmuStageCfg *cfg, uint64_t base)
{
    unsigned shift = cfg->gran + (cfg->gran - 3) * (3 - cfg->level);
    unsigned log2 = cfg->insize - shift + 3;

    /* Bits below the table's own size are not part of the base (as in ARM). */
    return base & ~(((uint64_t)1 << MAX(log2, 6)) - 1);
}

static void ummu_s2_decode(const UmmuState *s, const uint64_t w[8],
                           UmmuStageCfg *cfg)
{
    cfg->gran = ummu_gran_log2(TE(2, NS_S2_TG));
    cfg->insize = 64 - TE(2, NS_S2_TSZ);
    cfg->level = ummu_s2_level(cfg->gran, TE(2, NS_S2_SL));
    cfg->outsize = MIN(ummu_pas_bits(TE(2, S2_PAS)), ummu_cap_oas(s));
    cfg->base = ummu_table_align(cfg, TE(3, NS_S2_MATT) << 4);
    cfg->big = TE(2, S2_ENDI);
    cfg->haf = TE(2, S2_HAF) && ummu_cap_httu(s) >= 1;
    cfg->hdf = TE(2, S2_HDF) && ummu_cap_httu(s) >= 2;
    cfg->affd = TE(2, S2_AFFD);
    cfg->had = true;             /* stage 2 tables have no hierarchical bits */
}

/* ---- TECTE -------------------------------------------------------------- */

static bool ummu_mode_has_s1(unsigned mode)
{
    return mode == UMMU_ST_MODE_S1 || mode == UMMU_ST_MODE_NESTED;
}

static bool ummu_mode_has_s2(unsigned mode)
{
    return mode == UMMU_ST_MODE_S2 || mode == UMMU_ST_MODE_NESTED;
}

/*
 * Of a valid entry; the stage fields count only in modes that use them.  Bypass
 * is always there: HW_BYPASS only tells the driver that it may use it.  AA64 is
 * not looked at, since there is only one format.
 */
bool ummu_tecte_legal(const UmmuState *s, const uint64_t w[8])
{
    unsigned mode = TE(0, ST_MODE);

    if (ummu_mode_has_s1(mode) && !ummu_cap_s1(s)) {
        return false;
    }
    if (ummu_mode_has_s2(mode)) {
        return ummu_cap_s2(s) && ummu_s2_legal(s, w);
    }
    return true;
}

void ummu_tecte_decode(const UmmuState *s, const uint64_t w[8], UmmuTecte *te)
{
    unsigned mode = TE(0, ST_MODE);

    *te = (UmmuTecte) {
        .mode = mode,
        .has_s1 = ummu_mode_has_s1(mode),
        .has_s2 = ummu_mode_has_s2(mode),
        .regime = TE(0, TCRC_SEL) & 2 ? UMMU_REGIME_EL2 : UMMU_REGIME_EL1,
        .priv_sel = TE(0, PRIV_SEL),
        .inst_sel = TE(0, INST_SEL),
        .secure = TE(0, SECURE_SEL) == 2,
        .mapt_en = TE(0, MAPT_EN),
        .vmid = TE(0, S2_VMID),
        /* An exponent above the capability acts as the capability (V17). */
        .tct_num = MIN(TE(1, TCT_NUM), (uint64_t)s->cfg.tokenid_size),
        .tct_fmt = TE(1, TCT_FMT),
        .tct_ptr = TE(1, TCT_PTR) << 6,
        .stall_ok = !TE(1, TCT_STALL_DISABLE) && s->cfg.stall_model != 1,
        .mtm_en = TE(1, TCT_MTM_EN) && s->cfg.mtm,
        .mtmc_ptr = TE(5, MTMC_PTR) << 12,
        .s2_fbs = TE(2, S2_FBS) || s->cfg.stall_model == 2,
        .s2_fbr = TE(2, S2_FBR),
        .s2_ptw = TE(2, S2_PTW),
    };
    if (te->has_s2) {
        ummu_s2_decode(s, w, &te->s2);
    }
}

static bool ummu_table_fault(UmmuFault *f, uint8_t event, uint64_t addr)
{
    *f = (UmmuFault) {
        .event = event, .cls = UMMU_CLS_TCT, .ftaddr = addr, .ttrnw = true,
    };
    return false;
}

static void ummu_words_to_cpu(uint64_t *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        w[i] = le64_to_cpu(w[i]);
    }
}

/* Address of the TECTE of @tag. */
static bool ummu_tecte_addr(UmmuState *s, uint32_t tag, uint64_t *addr,
                            UmmuFault *f)
{
    uint64_t base = ummu_tect_base(s), desc, at;
    unsigned split = UMMU_REG_FIELD(s, UMMU_TECT_BASE_CFG, SPLIT);
    unsigned fmt = UMMU_REG_FIELD(s, UMMU_TECT_BASE_CFG, FMT);
    uint32_t index;

    if (tag >> ummu_tect_log2size(s)) {
        return ummu_refuse(f, UMMU_EVT_BAD_DSTEID);
    }
    if (fmt == 0) {
        *addr = base + (uint64_t)tag * TECTE_SIZE;
        return true;
    }
    if (!s->cfg.tect_two_level) {
        return ummu_refuse(f, UMMU_EVT_BAD_DSTEID);
    }
    at = base + (uint64_t)(tag >> split) * TECT_L1_DESC_SIZE;
    if (ummu_table_read(s, at, &desc, 8, UMMU_FETCH_TECT) != MEMTX_OK) {
        return ummu_table_fault(f, UMMU_EVT_TECT_FETCH, at);
    }
    desc = le64_to_cpu(desc);
    index = tag & (((uint64_t)1 << split) - 1);
    if (!FIELD_EX64(desc, TECT_L1_DESC_W0, V) ||
        index >> FIELD_EX64(desc, TECT_L1_DESC_W0, L2TECTE_NUM)) {
        return ummu_refuse(f, UMMU_EVT_BAD_DSTEID);
    }
    *addr = (FIELD_EX64(desc, TECT_L1_DESC_W0, L2PTR) << 6) +
            (uint64_t)index * TECTE_SIZE;
    return true;
}

static bool ummu_tecte_read(UmmuState *s, uint32_t tag, uint64_t w[8],
                            UmmuFault *f)
{
    uint64_t addr;

    if (!ummu_tecte_addr(s, tag, &addr, f)) {
        return false;
    }
    if (addr >> ummu_cap_oas(s) ||
        ummu_table_read(s, addr, w, TECTE_SIZE, UMMU_FETCH_TECT) != MEMTX_OK) {
        return ummu_table_fault(f, UMMU_EVT_TECT_FETCH, addr);
    }
    ummu_words_to_cpu(w, 8);
    if (!TE(0, V) || !ummu_tecte_legal(s, w)) {
        return ummu_refuse(f, UMMU_EVT_BAD_TECT);
    }
    return true;
}

bool ummu_tecte_fetch(UmmuState *s, uint32_t tag, UmmuTecte *te, UmmuFault *f)
{
    uint64_t w[8];

    if (!ummu_tecte_read(s, tag, w, f)) {
        return false;
    }
    ummu_tecte_decode(s, w, te);
    return true;
}

/* ---- TCTE --------------------------------------------------------------- */

/* Of a valid entry (5.2 step 5). */
bool ummu_tcte_legal(const UmmuState *s, const UmmuTecte *te,
                     const uint64_t w[8])
{
    unsigned rtgs = TC(0, RTGS);

    if (te->mapt_en && TC(0, MAPT_EN) && TC(0, MAPT_MODE) &&
        (rtgs == 0 || rtgs == 3)) {
        return false;
    }
    if ((TC(0, HDF) && !TC(0, HAF)) || TC(0, MAC_EN) ||
        (TC(0, FBS) && !te->stall_ok) || !ummu_pas_bits(TC(0, GPAS))) {
        return false;
    }
    return TC(0, MATT_BYPASS) || ummu_sz_legal(s, TC(1, SZ), TC(1, TGS));
}

static void ummu_s1_decode(const UmmuState *s, const UmmuTecte *te,
                           const uint64_t w[8], UmmuStageCfg *cfg)
{
    unsigned gpas = ummu_pas_bits(TC(0, GPAS));

    /* With stage 2 on the output is an IPA, not bounded by the OA size. */
    cfg->outsize = te->has_s2 ? gpas : MIN(gpas, ummu_cap_oas(s));
    cfg->big = TC(0, ENDI);
    cfg->haf = TC(0, HAF) && ummu_cap_httu(s) >= 1;
    cfg->hdf = TC(0, HDF) && ummu_cap_httu(s) >= 2;
    cfg->affd = TC(0, AFFD);
    cfg->had = TC(2, HAD);
    if (TC(0, MATT_BYPASS)) {
        return;                  /* the geometry is never looked at */
    }
    cfg->gran = ummu_gran_log2(TC(1, TGS));
    cfg->insize = 64 - TC(1, SZ);
    cfg->level = ummu_s1_start_level(cfg->gran, cfg->insize);
    cfg->base = ummu_table_align(cfg, TC(2, MATTBA) << 4);
}

void ummu_tcte_decode(const UmmuState *s, const UmmuTecte *te,
                      const uint64_t w[8], UmmuTcte *tc)
{
    *tc = (UmmuTcte) {
        .wxn = TC(0, WXN),
        .uwxn = TC(0, UWXN),
        .pan = TC(0, PAN),
        .fbs = (TC(0, FBS) || s->cfg.stall_model == 2) && te->stall_ok,
        .fbr = TC(0, FBR),
        .fba = TC(0, FBA),
        .ash = TC(0, ASH),
        .mapt_table = TC(0, MAPT_MODE),
        .rtgs = TC(0, RTGS),
        .mapt_en = TC(0, MAPT_EN) && te->mapt_en,
        .e_bit = TC(0, E_BIT),
        .bypass = TC(0, MATT_BYPASS),
        .asid = TC(0, ASID),
        .mtm_id = TC(1, MTM_ID),
        .mattwd = TC(1, MATTWD),
        .bba = TC(3, MAPT_BBA) << 5,
        .bb_log2 = 12 + TC(3, MAPT_BB_SZ),
        .bta = TC(4, MAPT_BTA) << 5,
        .bt_bytes = 4096u << TC(4, MAPT_BT_SZ),
    };
    ummu_s1_decode(s, te, w, &tc->s1);
    tc->mapt_bits = ummu_pas_bits(TC(0, GPAS));
}

/* Address of the TCTE; @pa is behind stage 2 already. */
static bool ummu_tcte_addr(UmmuState *s, const UmmuTecte *te, uint32_t tid,
                           uint64_t *pa, UmmuFault *f)
{
    unsigned split = te->tct_fmt == UMMU_TCT_FMT_L2_64 ? 6 : 10;
    uint64_t desc, at;

    if (te->tct_num == 0 || tid >> te->tct_num) {
        return ummu_refuse(f, UMMU_EVT_BAD_TOKENID);
    }
    if (te->tct_fmt == UMMU_TCT_FMT_LINEAR) {
        return ummu_table_ipa(s, te, te->tct_ptr + (uint64_t)tid * TCTE_SIZE,
                              UMMU_CLS_TCT, pa, f);
    }
    if (te->tct_fmt == UMMU_TCT_FMT_RESERVED || !s->cfg.tct_two_level) {
        return ummu_refuse(f, UMMU_EVT_BAD_TECT);
    }
    at = te->tct_ptr + (uint64_t)(tid >> split) * TCT_L1_DESC_SIZE;
    if (!ummu_table_ipa(s, te, at, UMMU_CLS_TCT, &at, f)) {
        return false;
    }
    if (ummu_table_read(s, at, &desc, 8, UMMU_FETCH_TCT) != MEMTX_OK) {
        return ummu_table_fault(f, UMMU_EVT_TCT_FETCH, at);
    }
    desc = le64_to_cpu(desc);
    if (!FIELD_EX64(desc, TCT_L1_DESC_W0, V)) {
        return ummu_refuse(f, UMMU_EVT_BAD_TOKENID);
    }
    at = (FIELD_EX64(desc, TCT_L1_DESC_W0, L2TCT_PTR) << 12) +
         (tid & ((1u << split) - 1)) * TCTE_SIZE;
    return ummu_table_ipa(s, te, at, UMMU_CLS_TCT, pa, f);
}

static bool ummu_tcte_read(UmmuState *s, const UmmuTecte *te, uint32_t tid,
                           uint64_t w[8], UmmuFault *f)
{
    uint64_t pa;

    if (!ummu_tcte_addr(s, te, tid, &pa, f)) {
        return false;
    }
    if (ummu_table_read(s, pa, w, TCTE_SIZE, UMMU_FETCH_TCT) != MEMTX_OK) {
        return ummu_table_fault(f, UMMU_EVT_TCT_FETCH, pa);
    }
    ummu_words_to_cpu(w, 8);
    if (!TC(0, V) || !ummu_tcte_legal(s, te, w)) {
        return ummu_refuse(f, UMMU_EVT_BAD_TCT);
    }
    return true;
}

/*
 * A guest's partition ids are mapped by the entity's table.  The model has no
 * use for the result, but a table that cannot be read is an error software
 * relies on.  A null pointer means that the entity has no such table.
 */
static bool ummu_mtm_fetch(UmmuState *s, const UmmuTecte *te,
                           const UmmuTcte *tc, UmmuFault *f)
{
    uint64_t at = te->mtmc_ptr + (tc->mtm_id & 31) * 2;
    uint16_t id;

    if (!te->mtm_en || !te->has_s2 || !te->mtmc_ptr) {
        return true;
    }
    if (ummu_table_read(s, at, &id, 2, UMMU_FETCH_TCT) != MEMTX_OK) {
        return ummu_table_fault(f, UMMU_EVT_VMS_FETCH, at);
    }
    return true;
}

bool ummu_tcte_fetch(UmmuState *s, const UmmuTecte *te, uint32_t tid,
                     UmmuTcte *tc, UmmuFault *f)
{
    uint64_t w[8];

    if (!ummu_tcte_read(s, te, tid, w, f)) {
        return false;
    }
    ummu_tcte_decode(s, te, w, tc);
    return ummu_mtm_fetch(s, te, tc, f);
}

/* ---- introspection ------------------------------------------------------ */

uint8_t ummu_peek_tecte(UmmuState *s, uint32_t tag, uint64_t out[8])
{
    bool was_probing = s->probing;
    UmmuFault f = { 0 };
    bool ok;

    s->probing = true;
    memset(out, 0, TECTE_SIZE);
    ok = ummu_tecte_read(s, tag, out, &f);
    s->probing = was_probing;
    return ok ? 0 : f.event;
}

uint8_t ummu_peek_tcte(UmmuState *s, uint32_t tag, uint32_t tid,
                       uint64_t out[8])
{
    bool was_probing = s->probing;
    UmmuFault f = { 0 };
    UmmuTecte te;
    bool ok;

    s->probing = true;
    memset(out, 0, TCTE_SIZE);
    ok = ummu_tecte_fetch(s, tag, &te, &f);
    if (ok && !te.has_s1) {
        ok = ummu_refuse(&f, UMMU_EVT_BAD_TOKENID);
    }
    ok = ok && ummu_tcte_read(s, &te, tid, out, &f);
    s->probing = was_probing;
    return ok ? 0 : f.event;
}
