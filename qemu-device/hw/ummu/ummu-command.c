/*
 * UMMU: what the commands of an MCMDQ do.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Invalidations are rows of a table: which entries a command names.  With
 * 'strict' off a configuration invalidation also drops the translations and
 * permissions of its scope (always legal); with 'strict' on a command drops
 * exactly what it names, so that software that relies on more is found out.
 */
#include "qemu/osdep.h"
#include "ummu-internal.h"
#include "trace.h"

#define REASON_NONE    UMMU_MCMDQ_ERR_REASON_NONE
#define REASON_ILLEGAL UMMU_MCMDQ_ERR_REASON_ILLEGAL
#define REASON_ABORT   UMMU_MCMDQ_ERR_REASON_FETCH_ABORT

static const char *const command_names[256] = {
#define COMMAND_NAME(_code, _name) [_code] = #_name,
    UMMU_CMD_NAMES(COMMAND_NAME)
#undef COMMAND_NAME
};

const char *ummu_command_name(uint8_t opcode)
{
    return command_names[opcode] ? command_names[opcode] : "CMD_UNKNOWN";
}

/* ---- TLBI --------------------------------------------------------------- */

enum {
    TLBI_EL1 = 1 << 0,
    TLBI_EL2 = 1 << 1,
    TLBI_S1 = 1 << 2,
    TLBI_S2 = 1 << 3,
    TLBI_TAG = 1 << 4,
    TLBI_TID = 1 << 5,
    TLBI_ASID = 1 << 6,
    TLBI_VMID = 1 << 7,
    TLBI_RANGE = 1 << 8,
    /*
     * Drivers use some commands named after stage 1 also for contexts that have
     * only stage 2 (the address is then an IPA): drop those entries as well.
     */
    TLBI_ALSO_S2 = 1 << 9,
};

static const uint16_t tlbi_rows[256] = {
    [UMMU_CMD_TLBI_OS_ALL] = TLBI_EL1 | TLBI_S1 | TLBI_TAG,
    [UMMU_CMD_TLBI_OS_TID] = TLBI_EL1 | TLBI_S1 | TLBI_TAG | TLBI_TID,
    [UMMU_CMD_TLBI_OS_VA] = TLBI_EL1 | TLBI_S1 | TLBI_TAG | TLBI_TID |
                            TLBI_RANGE | TLBI_ALSO_S2,
    [UMMU_CMD_TLBI_OS_VAA] = TLBI_EL1 | TLBI_S1 | TLBI_TAG | TLBI_RANGE,
    [UMMU_CMD_TLBI_HYP_ALL] = TLBI_EL2 | TLBI_S1,
    [UMMU_CMD_TLBI_HYP_TID] = TLBI_EL2 | TLBI_S1 | TLBI_TID,
    [UMMU_CMD_TLBI_HYP_VA] = TLBI_EL2 | TLBI_S1 | TLBI_TID | TLBI_RANGE,
    [UMMU_CMD_TLBI_HYP_VAA] = TLBI_EL2 | TLBI_S1 | TLBI_RANGE,
    [UMMU_CMD_TLBI_S1S2_VMALL] = TLBI_S1 | TLBI_S2 | TLBI_TAG,
    [UMMU_CMD_TLBI_S2_IPA] = TLBI_S2 | TLBI_TAG | TLBI_RANGE,
    [UMMU_CMD_TLBI_NS_OS_ALL] = TLBI_EL1 | TLBI_S1 | TLBI_S2,
    [UMMU_CMD_TLBI_OS_ALL_U] = TLBI_EL1 | TLBI_S1 | TLBI_VMID,
    [UMMU_CMD_TLBI_OS_ASID_U] = TLBI_EL1 | TLBI_S1 | TLBI_VMID | TLBI_ASID |
                                TLBI_ALSO_S2,
    [UMMU_CMD_TLBI_OS_VA_U] = TLBI_EL1 | TLBI_S1 | TLBI_VMID | TLBI_ASID |
                              TLBI_RANGE | TLBI_ALSO_S2,
    [UMMU_CMD_TLBI_OS_VAA_U] = TLBI_EL1 | TLBI_S1 | TLBI_VMID | TLBI_RANGE,
    [UMMU_CMD_TLBI_HYP_ASID_U] = TLBI_EL2 | TLBI_S1 | TLBI_ASID,
    [UMMU_CMD_TLBI_HYP_VA_U] = TLBI_EL2 | TLBI_S1 | TLBI_ASID | TLBI_RANGE,
    [UMMU_CMD_TLBI_S1S2_VMALL_U] = TLBI_S1 | TLBI_S2 | TLBI_VMID,
    [UMMU_CMD_TLBI_S2_IPA_U] = TLBI_S2 | TLBI_VMID | TLBI_RANGE,
};

/*
 * GS = 0, or a device without range invalidation: the one 4 KiB page at ADDR,
 * which drops a larger entry around it as well.  Sizes fit: at most 32 << 31
 * pages of 64 KiB are 2^52 bytes; the end saturates at the top.
 */
static void tlbi_range(UmmuState *s, const uint64_t w[CMD_WORDS],
                       UmmuTlbInv *inv)
{
    unsigned gs = FIELD_EX64(w[1], CMD_TLBI_RANGE_W1, GS);
    uint64_t addr = w[1] & R_CMD_TLBI_RANGE_W1_ADDR_MASK;
    uint64_t size = 0x1000;

    if (gs && s->cfg.range_tlbi) {
        unsigned page_shift = 10 + 2 * gs;

        addr &= ~((1ull << page_shift) - 1);
        size = (FIELD_EX64(w[0], CMD_TLBI_RANGE_W0, NUM) + 1)
               << FIELD_EX64(w[0], CMD_TLBI_RANGE_W0, SCALE) << page_shift;
    } else if (gs) {
        ummu_guest_error(s, "TLBI with a range, the capability is off");
    }
    inv->by_range = true;
    inv->first = addr;
    inv->last = addr + size - 1 < addr ? UINT64_MAX : addr + size - 1;
    inv->leaf = FIELD_EX64(w[0], CMD_TLBI_RANGE_W0, LEAF);
}

static unsigned cmd_tlbi(UmmuState *s, uint64_t slot,
                         const uint64_t w[CMD_WORDS])
{
    uint16_t row = tlbi_rows[FIELD_EX64(w[0], CMD_W0, OPCODE)];
    UmmuTlbInv inv = {
        .s1 = row & TLBI_S1,
        .s2 = row & TLBI_S2,
        .by_regime = row & (TLBI_EL1 | TLBI_EL2),
        .regime = row & TLBI_EL2 ? UMMU_REGIME_EL2 : UMMU_REGIME_EL1,
        .by_tag = row & TLBI_TAG,
        .by_tid = row & TLBI_TID,
        .by_asid = row & TLBI_ASID,
        .by_vmid = row & TLBI_VMID,
        .tid = FIELD_EX64(w[0], CMD_TLBI_OS_TID_W0, TID),
        .asid = FIELD_EX64(w[0], CMD_TLBI_OS_ASID_U_W0, ASID),
        .vmid = FIELD_EX64(w[0], CMD_TLBI_OS_ASID_U_W0, VMID),
    };

    inv.tag_first = FIELD_EX64(w[2], CMD_TECTE_TAG_W2, TECTE_TAG);
    inv.tag_last = inv.tag_first;
    if (row & TLBI_RANGE) {
        tlbi_range(s, w, &inv);
    }
    s->cnt.tlbi++;
    ummu_pmu_count(s, UMMU_PMU_TLBI, inv.tag_first, inv.tid, 1, 0);
    ummu_tlb_invalidate(s, &inv);
    if (row & TLBI_ALSO_S2) {
        inv.s1 = inv.by_tid = inv.by_asid = false;
        inv.s2 = true;
        ummu_tlb_invalidate(s, &inv);
    }
    return REASON_NONE;
}

/* ---- PLBI --------------------------------------------------------------- */

void ummu_plbi_range(uint64_t addr, unsigned log2, UmmuPlbInv *inv)
{
    const uint64_t top = (1ull << UMMU_MAPT_ADDR_BITS) - 1;
    uint64_t size;

    addr &= top;
    if (log2 >= UMMU_MAPT_ADDR_BITS) {
        inv->by_range = false;
        return;
    }
    /* Software does not align the start: take both readings of the range. */
    size = 1ull << log2;
    inv->by_range = true;
    inv->first = addr & ~(size - 1);
    inv->last = MIN(addr + size - 1, top);
}

static unsigned cmd_plbi(UmmuState *s, uint64_t slot,
                         const uint64_t w[CMD_WORDS])
{
    UmmuPlbInv inv = { .by_tag = true };
    uint8_t opcode = FIELD_EX64(w[0], CMD_W0, OPCODE);

    inv.tag_first = FIELD_EX64(w[2], CMD_TECTE_TAG_W2, TECTE_TAG);
    inv.tag_last = inv.tag_first;
    if (opcode != UMMU_CMD_PLBI_OS_EID) {
        inv.by_tid = true;
        inv.tid = FIELD_EX64(w[0], CMD_PLBI_OS_EIDTID_W0, TID);
    }
    if (opcode == UMMU_CMD_PLBI_OS_VA) {
        ummu_plbi_range(w[1], FIELD_EX64(w[0], CMD_PLBI_OS_VA_W0, RANGE), &inv);
    }
    if (opcode == UMMU_CMD_PLBI_OS_N) {
        if (!s->cfg.free_bit) {
            return REASON_ILLEGAL;
        }
        inv.by_next = true;
        inv.next_index = FIELD_EX64(w[1], CMD_PLBI_OS_N_W1, NEXT_LVL_INDEX);
        inv.next_offset = FIELD_EX64(w[1], CMD_PLBI_OS_N_W1, NEXT_LVL_OFFSET);
    }
    s->cnt.plbi++;
    ummu_pmu_count(s, UMMU_PMU_PLBI, inv.tag_first, inv.tid, 1, 0);
    ummu_plb_invalidate(s, &inv);
    return REASON_NONE;
}

/* ---- CFGI --------------------------------------------------------------- */

/* Translations and permissions that were found through the configuration. */
static void cfgi_dependents(UmmuState *s, const UmmuCfgInv *cfg)
{
    const UmmuTlbInv tlb = {
        .s1 = true, .s2 = true,
        .by_tag = cfg->by_tag, .tag_first = cfg->tag_first,
        .tag_last = cfg->tag_last,
        .by_tid = cfg->by_tid, .tid = cfg->tid,
    };
    const UmmuPlbInv plb = {
        .by_tag = cfg->by_tag, .tag_first = cfg->tag_first,
        .tag_last = cfg->tag_last,
        .by_tid = cfg->by_tid, .tid = cfg->tid,
    };

    ummu_tlb_invalidate(s, &tlb);
    ummu_plb_invalidate(s, &plb);
}

/* 2^(RANGE + 1) aligned tags in 64-bit arithmetic; 30 and 31 are everything. */
static void cfgi_tect_range(const uint64_t w[CMD_WORDS], UmmuCfgInv *inv)
{
    unsigned range = FIELD_EX64(w[0], CMD_CFGI_TECT_RANGE_W0, RANGE);
    uint64_t count = 2ull << range;

    if (range >= 30) {
        inv->by_tag = false;
        inv->tcte = true;
        return;
    }
    inv->tag_first &= ~(uint32_t)(count - 1);
    inv->tag_last = inv->tag_first + count - 1;
}

static unsigned cmd_cfgi(UmmuState *s, uint64_t slot,
                         const uint64_t w[CMD_WORDS])
{
    uint8_t opcode = FIELD_EX64(w[0], CMD_W0, OPCODE);
    bool tect = opcode == UMMU_CMD_CFGI_TECT ||
                opcode == UMMU_CMD_CFGI_TECT_RANGE;
    UmmuCfgInv inv = {
        .tecte = tect,
        .tcte = !tect,
        .by_tag = true,
        .by_tid = opcode == UMMU_CMD_CFGI_TCT,
        .tid = FIELD_EX64(w[0], CMD_CFGI_TCT_W0, TID),
    };

    inv.tag_first = inv.tag_last = (uint32_t)w[2];
    if (opcode == UMMU_CMD_CFGI_TECT_RANGE) {
        cfgi_tect_range(w, &inv);
    }
    s->cnt.cfgi++;
    ummu_pmu_count(s, UMMU_PMU_CFGI, inv.tag_first, inv.tid, 1, 0);
    if (!s->cfg.strict) {
        inv.tcte = true;
        cfgi_dependents(s, &inv);
    }
    ummu_cfg_invalidate(s, &inv);
    return REASON_NONE;
}

/* ---- stalls ------------------------------------------------------------- */

static unsigned cmd_stall_resume(UmmuState *s, uint64_t slot,
                                 const uint64_t w[CMD_WORDS])
{
    uint16_t stag = FIELD_EX64(w[1], CMD_STALL_RESUME_W1, TAG);
    uint16_t tag = FIELD_EX64(w[2], CMD_STALL_RESUME_W2, TECT_TAG);
    /* Neither bit, or both: abort. */
    bool retry = FIELD_EX64(w[0], CMD_STALL_RESUME_W0, RETRY) &&
                 !FIELD_EX64(w[0], CMD_STALL_RESUME_W0, ABORT);

    if (s->inject.drop_resumes) {
        s->inject.drop_resumes--;
        trace_ummu_inject(ummu_id(s), "stall answer dropped", stag);
    } else if (!ummu_stall_resume(s, stag, tag, retry)) {
        ummu_guest_error(s, "CMD_STALL_RESUME for STAG %u, tag %u: not stalled",
                         stag, tag);
    }
    return REASON_NONE;
}

static unsigned cmd_stall_term(UmmuState *s, uint64_t slot,
                               const uint64_t w[CMD_WORDS])
{
    ummu_stall_terminate(s, FIELD_EX64(w[2], CMD_STALL_TERM_W2, TECT_TAG));
    return REASON_NONE;
}

/* ---- DstEID bindings ---------------------------------------------------- */

static unsigned cmd_kvtbl(UmmuState *s, uint64_t slot,
                          const uint64_t w[CMD_WORDS])
{
    bool create = FIELD_EX64(w[0], CMD_W0, OPCODE) == UMMU_CMD_CREATE_KVTBL;
    uint16_t tag = FIELD_EX64(w[0], CMD_CREATE_KVTBL_W0, TECTE_TAG);
    uint32_t index = FIELD_EX64(w[0], CMD_CREATE_KVTBL_W0, KV_INDEX);
    UmmuEvent ev = {
        .code = create ? UMMU_EVT_CREATE_DSTEID_TECT_RELATION_RESULT
                       : UMMU_EVT_DELETE_DSTEID_TECT_RELATION_RESULT,
        .eid_lo = w[2],
        .eid_hi = w[3],
    };

    ev.reason = create ? ummu_kv_create(s, w[2], w[3], tag, index)
                       : ummu_kv_delete(s, w[2], w[3], tag, index);
    if (FIELD_EX64(w[0], CMD_CREATE_KVTBL_W0, EVT_EN)) {
        ummu_event_record(s, &ev);
    }
    return REASON_NONE;
}

/* ---- NULL_OP ------------------------------------------------------------ */

#define SUB_OP_CHECK_PA_CONTINUITY   1
#define SUB_OP_CHECK_UBMEM_VMMU      2
#define CONTINUITY_ORDER_MAX         36   /* 4 KiB << 36 = 2^48 */

/* Guest physical memory is contiguous wherever it is memory at all. */
static bool pa_contiguous(UmmuState *s, const uint64_t w[CMD_WORDS])
{
    uint64_t addr = w[1] & R_CMD_NULL_OP_W1_ADDR_MASK;
    unsigned order = FIELD_EX64(w[0], CMD_NULL_OP_W0, SIZE_ORDER);

    return order <= CONTINUITY_ORDER_MAX &&
           ummu_pa_is_memory(s, addr, 0x1000ull << order);
}

static unsigned cmd_null_op(UmmuState *s, uint64_t slot,
                            const uint64_t w[CMD_WORDS])
{
    unsigned sub_op = FIELD_EX64(w[0], CMD_NULL_OP_W0, SUB_OP);
    uint64_t answer = w[0];

    if (sub_op == SUB_OP_CHECK_PA_CONTINUITY) {
        answer = FIELD_DP64(answer, CMD_NULL_OP_W0, RESULT,
                            !pa_contiguous(s, w));
    } else if (sub_op == SUB_OP_CHECK_UBMEM_VMMU) {
        answer = FIELD_DP64(answer, CMD_NULL_OP_W0, RESULT, 0);
    } else {
        return REASON_ILLEGAL;
    }
    /* FLAG = 1 would tell the driver that a MAPT cannot grow here; it can. */
    answer = FIELD_DP64(answer, CMD_NULL_OP_W0, FLAG, 0);
    answer = cpu_to_le64(answer);
    return ummu_mem_write(s, slot, &answer, sizeof(answer)) == MEMTX_OK
           ? REASON_NONE : REASON_ABORT;
}

/* ---- dispatch ----------------------------------------------------------- */

static unsigned cmd_nothing(UmmuState *s, uint64_t slot,
                            const uint64_t w[CMD_WORDS])
{
    return REASON_NONE;
}

/* The queue completes the CMD_SYNC; only its reserved signal is judged here. */
static unsigned cmd_sync(UmmuState *s, uint64_t slot,
                         const uint64_t w[CMD_WORDS])
{
    return FIELD_EX64(w[0], CMD_SYNC_W0, CM) <= UMMU_SYNC_CM_SEV
           ? REASON_NONE : REASON_ILLEGAL;
}

typedef unsigned UmmuCommandFn(UmmuState *s, uint64_t slot,
                               const uint64_t w[CMD_WORDS]);

/* CMD_RESUME (0x44) is defined but never used: illegal, as unknown codes. */
static UmmuCommandFn *const commands[256] = {
    [UMMU_CMD_SYNC] = cmd_sync,
    [UMMU_CMD_STALL_RESUME] = cmd_stall_resume,
    [UMMU_CMD_STALL_TERM] = cmd_stall_term,
    [UMMU_CMD_PREFET_CFG] = cmd_nothing,
    [UMMU_CMD_CFGI_TECT] = cmd_cfgi,
    [UMMU_CMD_CFGI_TECT_RANGE] = cmd_cfgi,
    [UMMU_CMD_CFGI_TCT] = cmd_cfgi,
    [UMMU_CMD_CFGI_TCT_ALL] = cmd_cfgi,
    [UMMU_CMD_CFGI_VMS_PIDM] = cmd_nothing,
    [UMMU_CMD_PLBI_OS_EID] = cmd_plbi,
    [UMMU_CMD_PLBI_OS_EIDTID] = cmd_plbi,
    [UMMU_CMD_PLBI_OS_VA] = cmd_plbi,
    [UMMU_CMD_PLBI_OS_N] = cmd_plbi,
    [UMMU_CMD_CREATE_KVTBL] = cmd_kvtbl,
    [UMMU_CMD_DELETE_KVTBL] = cmd_kvtbl,
    [UMMU_CMD_NULL_OP] = cmd_null_op,
};

unsigned ummu_command_execute(UmmuState *s, unsigned qi, uint64_t slot,
                              const uint64_t w[CMD_WORDS])
{
    uint8_t opcode = FIELD_EX64(w[0], CMD_W0, OPCODE);
    UmmuCommandFn *fn = tlbi_rows[opcode] ? cmd_tlbi : commands[opcode];

    trace_ummu_command(ummu_id(s), qi, ummu_command_name(opcode), w[0], w[1],
                       w[2], w[3]);
    return fn ? fn(s, slot, w) : REASON_ILLEGAL;
}
