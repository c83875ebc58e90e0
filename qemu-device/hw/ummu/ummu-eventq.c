/*
 * UMMU: event records, global errors, interrupts.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "ummu-internal.h"
#include "trace.h"

static const char *const event_names[256] = {
#define EVENT_NAME(_code, _name) [_code] = #_name,
    UMMU_EVT_NAMES(EVENT_NAME)
#undef EVENT_NAME
};

const char *ummu_event_name(uint8_t code)
{
    return event_names[code] ? event_names[code] : "EVT_UNKNOWN";
}

/* ---- what a record holds ------------------------------------------------ */

enum {
    FILL_TAG = 1 << 0,      /* TECTE_TAG */
    FILL_TID = 1 << 1,
    FILL_IADDR = 1 << 2,
    FILL_RNW = 1 << 3,
    FILL_PRIV = 1 << 4,     /* PNU and IND */
    FILL_FTADDR = 1 << 5,
    FILL_CLS = 1 << 6,      /* CLS, S2, IPA, NSIPA */
    FILL_STALL = 1 << 7,    /* STALL, STAG */
    FILL_EID = 1 << 8,      /* EID instead of the tag: none exists */
    FILL_REASON = 1 << 9,

    FILL_ADDRESS_FAULT = FILL_TAG | FILL_TID | FILL_IADDR | FILL_CLS |
                         FILL_RNW | FILL_PRIV | FILL_STALL,
    FILL_MAPT_FAULT = FILL_TAG | FILL_TID | FILL_IADDR | FILL_RNW,
    FILL_CONFIG_FAULT = FILL_TAG | FILL_TID | FILL_IADDR,
    FILL_FETCH_ABORT = FILL_TAG | FILL_TID | FILL_FTADDR,
};

static uint32_t ummu_event_fill(uint8_t code)
{
    switch (code) {
    case UMMU_EVT_UT:
        return FILL_CONFIG_FAULT | FILL_RNW | FILL_PRIV;
    case UMMU_EVT_BAD_DSTEID:
        return FILL_EID | FILL_TID | FILL_IADDR;
    case UMMU_EVT_TECT_FETCH:
    case UMMU_EVT_TCT_FETCH:
    case UMMU_EVT_VMS_FETCH:
        return FILL_FETCH_ABORT;
    case UMMU_EVT_BAD_TECT:
    case UMMU_EVT_BAD_TOKENID:
    case UMMU_EVT_BAD_TCT:
    case UMMU_EVT_TBU_CONFLICT:
        return FILL_CONFIG_FAULT;
    case UMMU_EVT_A_PTW_EABT:
        return (FILL_ADDRESS_FAULT & ~FILL_STALL) | FILL_FTADDR;
    case UMMU_EVT_A_TRANSLATION:
    case UMMU_EVT_A_ADDR_SIZE:
    case UMMU_EVT_ACCESS:
    case UMMU_EVT_A_PERMISSION:
        return FILL_ADDRESS_FAULT;
    case UMMU_EVT_CFG_CONFLICT:
        return FILL_TAG | FILL_TID;
    case UMMU_EVT_P_PTW_EABT:
        return FILL_MAPT_FAULT | FILL_FTADDR;
    case UMMU_EVT_P_CFG_ERROR:
    case UMMU_EVT_P_PERMISSION:
    case UMMU_EVT_EBIT_DENY:
        return FILL_MAPT_FAULT;
    case UMMU_EVT_CREATE_DSTEID_TECT_RELATION_RESULT:
    case UMMU_EVT_DELETE_DSTEID_TECT_RELATION_RESULT:
        return FILL_EID | FILL_REASON;
    default:
        return 0;
    }
}

/* Words of the record that say what was accessed, and how. */
static void ummu_event_pack_access(const UmmuEvent *ev, uint32_t fill,
                                   uint64_t w[EVT_WORDS])
{
    w[0] = FIELD_DP64(w[0], EVT_W0, CODE, ev->code);
    if (fill & FILL_RNW) {
        w[0] = FIELD_DP64(w[0], EVT_W0, RNW, ev->rnw);
    }
    if (fill & FILL_PRIV) {
        w[0] = FIELD_DP64(w[0], EVT_W0, PNU, ev->pnu);
        w[0] = FIELD_DP64(w[0], EVT_W0, IND, ev->ind);
    }
    if (fill & FILL_CLS) {
        w[0] = FIELD_DP64(w[0], EVT_W0, CLS, ev->cls);
        w[0] = FIELD_DP64(w[0], EVT_W0, S2, ev->s2);
        w[0] = FIELD_DP64(w[0], EVT_W0, NSIPA, ev->nsipa);
        w[2] = ev->ipa & R_EVT_W2_IPA_MASK;
    }
    if ((fill & FILL_STALL) && ev->stall) {
        w[0] = FIELD_DP64(w[0], EVT_W0, STALL, 1);
        w[1] = FIELD_DP64(w[1], EVT_W1, STAG, ev->stag);
    }
}

static void ummu_event_pack(const UmmuEvent *ev, uint64_t w[EVT_WORDS])
{
    uint32_t fill = ummu_event_fill(ev->code);
    unsigned i;

    memset(w, 0, EVT_SIZE);
    ummu_event_pack_access(ev, fill, w);
    if (fill & FILL_TID) {
        w[0] = FIELD_DP64(w[0], EVT_W0, TID, ev->tid);
    }
    if (fill & FILL_REASON) {
        w[1] = FIELD_DP64(w[1], EVT_W1, REASON, ev->reason);
    }
    if (fill & FILL_IADDR) {
        w[3] = ev->iaddr;
    }
    if (fill & FILL_TAG) {
        w[4] = FIELD_DP64(w[4], EVT_W4, TECTE_TAG, ev->tag);
    }
    if (fill & FILL_EID) {
        w[4] = ev->eid_lo;
        w[5] = ev->eid_hi;
    }
    if (fill & FILL_FTADDR) {
        w[6] = ev->ftaddr & R_EVT_W6_FTADDR_MASK;
    }
    for (i = 0; i < EVT_WORDS; i++) {
        w[i] = cpu_to_le64(w[i]);
    }
}

/* ---- the queue ---------------------------------------------------------- */

static unsigned ummu_eventq_log2(const UmmuState *s)
{
    return MIN(UMMU_REG64_FIELD(s, UMMU_EVENT_QUE_BASE, LOG2SIZE),
               s->cfg.eventq_log2);
}

static uint32_t ummu_eventq_used(const UmmuState *s)
{
    uint32_t mask = (2u << ummu_eventq_log2(s)) - 1;

    return (UMMU_REG_FIELD(s, UMMU_EVENT_QUE_PI, WR_IDX_WRAP) -
            UMMU_REG_FIELD(s, UMMU_EVENT_QUE_CI, RD_IDX_WRAP)) & mask;
}

/* More entries than the ring has: a wrong CI.  Full, never overwrite. */
static bool ummu_eventq_full(const UmmuState *s)
{
    return s->inject.eventq_full ||
           ummu_eventq_used(s) >= (1u << ummu_eventq_log2(s));
}

bool ummu_eventq_has_room(const UmmuState *s)
{
    return ummu_eventq_enabled(s) && !ummu_eventq_full(s);
}

static void ummu_eventq_lost(UmmuState *s, const UmmuEvent *ev, const char *why)
{
    s->cnt.events_lost++;
    trace_ummu_event_lost(ummu_id(s), ummu_event_name(ev->code), why);
}

static void ummu_eventq_overflow(UmmuState *s, const UmmuEvent *ev)
{
    if (UMMU_REG_FIELD(s, UMMU_EVENT_QUE_PI, OVFLG) ==
        UMMU_REG_FIELD(s, UMMU_EVENT_QUE_CI, OVFLG_RESP)) {
        s->regs[R_UMMU_EVENT_QUE_PI] ^= R_UMMU_EVENT_QUE_PI_OVFLG_MASK;
    }
    ummu_eventq_lost(s, ev, "queue full");
}

bool ummu_event_record(UmmuState *s, const UmmuEvent *ev)
{
    unsigned log2 = ummu_eventq_log2(s);
    uint32_t pi = UMMU_REG_FIELD(s, UMMU_EVENT_QUE_PI, WR_IDX_WRAP);
    uint64_t words[EVT_WORDS];
    uint64_t addr;

    ummu_count_fault(s, ev->code, ev->tag, ev->tid);
    if (!ummu_eventq_enabled(s)) {
        s->cnt.events_dropped++;
        trace_ummu_event_lost(ummu_id(s), ummu_event_name(ev->code),
                              "EVENTQ_EN is 0");
        return false;
    }
    if (ummu_eventq_full(s)) {
        ummu_eventq_overflow(s, ev);
        return false;
    }
    ummu_event_pack(ev, words);
    /* Bit 5 of the base is not part of a 64-byte aligned address. */
    addr = ummu_reg64(s, A_UMMU_EVENT_QUE_BASE) &
           R_UMMU_EVENT_QUE_BASE_ADDR_MASK & ~(uint64_t)(EVT_SIZE - 1);
    addr += (uint64_t)(pi & ((1u << log2) - 1)) * EVT_SIZE;
    if (ummu_mem_write(s, addr, words, EVT_SIZE) != MEMTX_OK) {
        ummu_eventq_lost(s, ev, "queue write aborted");
        ummu_glb_err_raise(s, R_UMMU_GLB_ERR_EVENT_QUE_ABT_ERR_MASK);
        return false;
    }
    pi = (pi + 1) & ((2u << log2) - 1);
    s->regs[R_UMMU_EVENT_QUE_PI] = FIELD_DP32(s->regs[R_UMMU_EVENT_QUE_PI],
                                              UMMU_EVENT_QUE_PI, WR_IDX_WRAP,
                                              pi);
    s->cnt.events++;
    trace_ummu_event(ummu_id(s), ummu_event_name(ev->code), ev->tag, ev->tid,
                     ev->iaddr, ev->rnw, ev->stall, ev->stag);
    ummu_interrupt(s, UMMU_VEC_EVENTQ);
    return true;
}

/* ---- global errors ------------------------------------------------------ */

static uint32_t ummu_glb_err_pending(const UmmuState *s)
{
    return ummu_reg32(s, A_UMMU_GLB_ERR) ^ ummu_reg32(s, A_UMMU_GLB_ERR_RESP);
}

/* Toggle what is not pending; true if something changed. */
static bool ummu_glb_err_toggle(UmmuState *s, uint32_t bit_mask)
{
    uint32_t fresh = bit_mask & ~ummu_glb_err_pending(s);

    s->regs[R_UMMU_GLB_ERR] ^= fresh;
    trace_ummu_glb_err(ummu_id(s), bit_mask, fresh, ummu_glb_err_pending(s));
    return fresh != 0;
}

void ummu_glb_err_raise(UmmuState *s, uint32_t bit_mask)
{
    if (ummu_glb_err_toggle(s, bit_mask)) {
        ummu_interrupt(s, UMMU_VEC_GLB_ERR);
    }
}

/* ---- interrupts --------------------------------------------------------- */

/* A failed message is an error itself; its own failure is not announced. */
static void ummu_interrupt_failed(UmmuState *s, UmmuVector vec)
{
    if (vec == UMMU_VEC_EVENTQ) {
        ummu_glb_err_raise(s, R_UMMU_GLB_ERR_USI_EVENT_QUE_ABT_ERR_MASK);
    } else {
        ummu_glb_err_toggle(s, R_UMMU_GLB_ERR_USI_GLB_ERR_ABT_ERR_MASK);
    }
}

void ummu_interrupt(UmmuState *s, UmmuVector vec)
{
    uint32_t enable = ummu_reg32(s, A_UMMU_GLB_INT_EN);
    bool eventq = vec == UMMU_VEC_EVENTQ;
    uint64_t addr;
    uint32_t data;

    if (!s->cfg.usi || !s->bus_ops ||
        !(enable & (eventq ? R_UMMU_GLB_INT_EN_EVENT_QUE_INT_EN_MASK
                           : R_UMMU_GLB_INT_EN_GLB_ERR_INT_EN_MASK))) {
        return;
    }
    addr = ummu_reg64(s, eventq ? A_UMMU_EVENT_QUE_USI_ADDR
                                : A_UMMU_GLB_ERR_INT_USI_ADDR);
    data = ummu_reg32(s, eventq ? A_UMMU_EVENT_QUE_USI_DATA
                                : A_UMMU_GLB_ERR_INT_USI_DATA);
    *(eventq ? &s->cnt.irq_event : &s->cnt.irq_error) += 1;
    trace_ummu_interrupt(ummu_id(s), eventq ? "EVENTQ" : "GLB_ERR", addr, data);
    if (!addr) {
        s->bus_ops->notify(s->bus, vec);
    } else if (ummu_message(s, addr, data) != MEMTX_OK) {
        ummu_interrupt_failed(s, vec);
    }
}

void ummu_interrupts_enabled(UmmuState *s, uint32_t newly_on)
{
    if ((newly_on & R_UMMU_GLB_INT_EN_EVENT_QUE_INT_EN_MASK) &&
        ummu_eventq_enabled(s) && ummu_eventq_used(s)) {
        ummu_interrupt(s, UMMU_VEC_EVENTQ);
    }
    if ((newly_on & R_UMMU_GLB_INT_EN_GLB_ERR_INT_EN_MASK) &&
        ummu_glb_err_pending(s)) {
        ummu_interrupt(s, UMMU_VEC_GLB_ERR);
    }
}
