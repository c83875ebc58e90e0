/*
 * UMMU: performance counters.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Eight counter pairs in their own block behind the register frame.  Number
 * events count in CNT0; rate events count hits in CNT0 and all look-ups in
 * CNT1.  A filter compares TokenID and TECTE_TAG where the mask has ones.
 * Codes from 0xa0 on are the model's own: walk steps, bytes, stalls,
 * invalidations, and faults by event code.
 */
#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "ummu-internal.h"
#include "trace.h"

#define COM_CTRL_MASK (R_UMMU_PMU_COM_CTRL_EVENT_CODE_MASK | \
                       R_UMMU_PMU_COM_CTRL_EVENT_EN_MASK)
#define OVF_MASK (R_UMMU_PMU_OVF_INT_STS_CNT0_MASK | \
                  R_UMMU_PMU_OVF_INT_STS_CNT1_MASK)
#define USI_MPAM_MASK (R_UMMU_PMU_USI_MPAM_PARTID_MASK | \
                       R_UMMU_PMU_USI_MPAM_PMG_MASK | \
                       R_UMMU_PMU_USI_MPAM_NS_MASK)

/* ---- counting ----------------------------------------------------------- */

void ummu_pmu_update_active(UmmuState *s)
{
    unsigned i;

    s->pmu.active = false;
    if (!FIELD_EX32(s->pmu.glb_ctrl, UMMU_PMU_GLB_CTRL, ENABLE)) {
        return;
    }
    for (i = 0; i < UMMU_PMU_COUNTERS; i++) {
        s->pmu.active |= FIELD_EX32(s->pmu.counter[i].com_ctrl,
                                    UMMU_PMU_COM_CTRL, EVENT_EN);
    }
}

static bool pmu_filter_match(const UmmuPmuCounter *c, uint32_t tag,
                             uint32_t tid)
{
    uint32_t tid_wrong = tid ^ FIELD_EX32(c->filt_cond[0],
                                          UMMU_PMU_FILT_COND_L, TOKEN_ID);
    uint32_t tag_wrong = tag ^ FIELD_EX32(c->filt_cond[1],
                                          UMMU_PMU_FILT_COND_H, TECT_TAG);

    tid_wrong &= FIELD_EX32(c->filt_msk[0], UMMU_PMU_FILT_MSK_L, TOKEN_ID);
    tag_wrong &= FIELD_EX32(c->filt_msk[1], UMMU_PMU_FILT_MSK_H, TECT_TAG);
    return !tid_wrong && !tag_wrong;
}

static void pmu_overflow(UmmuState *s, UmmuPmuCounter *c, uint32_t bits)
{
    uint32_t fresh = bits & ~c->ovf_sts;

    c->ovf_sts |= bits;
    /* A mask bit of 1 keeps the overflow silent. */
    if ((fresh & ~c->ovf_msk) && s->pmu.int_en && s->cfg.usi &&
        s->pmu.ovf_usi_addr) {
        MemTxResult res = ummu_message(s, s->pmu.ovf_usi_addr,
                                       s->pmu.ovf_usi_data);

        trace_ummu_pmu_overflow(ummu_id(s), fresh, res == MEMTX_OK);
    }
}

void ummu_pmu_add(UmmuState *s, unsigned event, uint32_t tag, uint32_t tid,
                  uint64_t cnt0, uint64_t cnt1)
{
    unsigned i;

    for (i = 0; i < UMMU_PMU_COUNTERS; i++) {
        UmmuPmuCounter *c = &s->pmu.counter[i];
        uint32_t over = 0;

        if (!FIELD_EX32(c->com_ctrl, UMMU_PMU_COM_CTRL, EVENT_EN) ||
            FIELD_EX32(c->com_ctrl, UMMU_PMU_COM_CTRL, EVENT_CODE) != event ||
            !pmu_filter_match(c, tag, tid)) {
            continue;
        }
        if (uadd64_overflow(c->cnt[0], cnt0, &c->cnt[0])) {
            over |= R_UMMU_PMU_OVF_INT_STS_CNT0_MASK;
        }
        if (uadd64_overflow(c->cnt[1], cnt1, &c->cnt[1])) {
            over |= R_UMMU_PMU_OVF_INT_STS_CNT1_MASK;
        }
        if (over) {
            pmu_overflow(s, c, over);
        }
    }
}

/* ---- registers ---------------------------------------------------------- */

typedef struct PmuReg {
    uint32_t *w32;
    uint64_t *w64;
    uint64_t mask;
} PmuReg;

static bool pmu_find_global(UmmuState *s, hwaddr off, PmuReg *r)
{
    UmmuPmu *p = &s->pmu;

    switch (off) {
    case UMMU_PMU_GLB_CTRL:
        *r = (PmuReg){ .w32 = &p->glb_ctrl,
                       .mask = R_UMMU_PMU_GLB_CTRL_ENABLE_MASK };
        return true;
    case UMMU_PMU_OVF_USI_ADDR:
        *r = (PmuReg){ .w64 = &p->ovf_usi_addr,
                       .mask = R_UMMU_PMU_OVF_USI_ADDR_ADDR_MASK };
        return true;
    case UMMU_PMU_OVF_USI_DATA:
        *r = (PmuReg){ .w32 = &p->ovf_usi_data, .mask = UINT32_MAX };
        return true;
    case UMMU_PMU_OVF_USI_ATTR:
        *r = (PmuReg){ .w32 = &p->ovf_usi_attr,
                       .mask = R_UMMU_PMU_OVF_USI_ATTR_ATTR_MASK };
        return true;
    case UMMU_PMU_INT_EN:
        *r = (PmuReg){ .w32 = &p->int_en,
                       .mask = R_UMMU_PMU_INT_EN_OVF_EN_MASK };
        return true;
    case UMMU_PMU_USI_MPAM:
        *r = (PmuReg){ .w32 = &p->usi_mpam, .mask = USI_MPAM_MASK };
        return true;
    case UMMU_PMU_USI_IDX:
        *r = (PmuReg){ .w32 = &p->usi_idx, .mask = UINT32_MAX };
        return true;
    case UMMU_PMU_ICG_EN:
        *r = (PmuReg){ .w32 = &p->icg_en, .mask = R_UMMU_PMU_ICG_EN_ICG_MASK };
        return true;
    default:
        return false;
    }
}

static bool pmu_find_counter(UmmuPmuCounter *c, hwaddr off, PmuReg *r)
{
    switch (off) {
    case UMMU_PMU_COM_CTRL:
        *r = (PmuReg){ .w32 = &c->com_ctrl, .mask = COM_CTRL_MASK };
        return true;
    case UMMU_PMU_OVF_INT_STS:
        *r = (PmuReg){ .w32 = &c->ovf_sts, .mask = OVF_MASK };
        return true;
    case UMMU_PMU_OVF_INT_MSK:
        *r = (PmuReg){ .w32 = &c->ovf_msk, .mask = OVF_MASK };
        return true;
    case UMMU_PMU_FILT_COND_L:
    case UMMU_PMU_FILT_COND_H:
        *r = (PmuReg){ .w32 = &c->filt_cond[(off & 4) / 4],
                       .mask = UINT32_MAX };
        return true;
    case UMMU_PMU_FILT_MSK_L:
    case UMMU_PMU_FILT_MSK_H:
        *r = (PmuReg){ .w32 = &c->filt_msk[(off & 4) / 4],
                       .mask = UINT32_MAX };
        return true;
    case UMMU_PMU_CNT0:
    case UMMU_PMU_CNT1:
        *r = (PmuReg){ .w64 = &c->cnt[off == UMMU_PMU_CNT1],
                       .mask = UINT64_MAX };
        return true;
    default:
        return false;
    }
}

/* A register of its own width, or half of a 64-bit one: @shift says which. */
static bool pmu_find(UmmuState *s, hwaddr off, unsigned size, PmuReg *r,
                     unsigned *shift)
{
    hwaddr n = off / UMMU_PMU_COUNTER_STRIDE;
    hwaddr in = off % UMMU_PMU_COUNTER_STRIDE;
    hwaddr base;
    unsigned half;

    for (half = 0; half <= 4 && in >= half; half += 4) {
        base = in - half;
        if (n == 0 ? !pmu_find_global(s, base, r)
                   : n > UMMU_PMU_COUNTERS ||
                     !pmu_find_counter(&s->pmu.counter[n - 1], base, r)) {
            continue;
        }
        *shift = half * 8;
        return size == 4 ? (r->w64 || !half) : (size == 8 && r->w64 && !half);
    }
    return false;
}

uint64_t ummu_pmu_read(UmmuState *s, hwaddr off, unsigned size)
{
    PmuReg r;
    unsigned shift;
    uint64_t val;

    if (!pmu_find(s, off, size, &r, &shift)) {
        ummu_guest_error(s, "bad read of %u bytes at PMU offset 0x%"
                         HWADDR_PRIx, size, off);
        return 0;
    }
    val = r.w64 ? *r.w64 >> shift : *r.w32;
    trace_ummu_reg_read(ummu_id(s), "PMU", off, size, val);
    return size == 4 ? (uint32_t)val : val;
}

static void pmu_clear(UmmuPmuCounter *c)
{
    c->cnt[0] = c->cnt[1] = 0;
    c->ovf_sts = 0;
}

static void pmu_written(UmmuState *s, hwaddr off, uint64_t val)
{
    hwaddr n = off / UMMU_PMU_COUNTER_STRIDE;
    unsigned i;

    if (off == UMMU_PMU_GLB_CTRL &&
        FIELD_EX32(val, UMMU_PMU_GLB_CTRL, CLR)) {
        for (i = 0; i < UMMU_PMU_COUNTERS; i++) {
            pmu_clear(&s->pmu.counter[i]);
        }
    }
    if (n && off % UMMU_PMU_COUNTER_STRIDE == UMMU_PMU_COM_CTRL &&
        FIELD_EX32(val, UMMU_PMU_COM_CTRL, EVENT_CLR)) {
        pmu_clear(&s->pmu.counter[n - 1]);
    }
    ummu_pmu_update_active(s);
}

void ummu_pmu_write(UmmuState *s, hwaddr off, uint64_t val, unsigned size)
{
    PmuReg r;
    unsigned shift;

    if (!pmu_find(s, off, size, &r, &shift)) {
        ummu_guest_error(s, "bad write of %u bytes at PMU offset 0x%"
                         HWADDR_PRIx, size, off);
        return;
    }
    trace_ummu_reg_write(ummu_id(s), "PMU", off, size, val);
    if (r.w64) {
        *r.w64 = (size == 8 ? val : deposit64(*r.w64, shift, 32, val)) & r.mask;
    } else if (off % UMMU_PMU_COUNTER_STRIDE == UMMU_PMU_OVF_INT_STS &&
               off >= UMMU_PMU_COUNTER_STRIDE) {
        *r.w32 &= val;             /* software clears bits, never sets them */
    } else {
        *r.w32 = val & r.mask;
    }
    pmu_written(s, off, val);
}

void ummu_pmu_reset(UmmuState *s)
{
    memset(&s->pmu, 0, sizeof(s->pmu));
}
