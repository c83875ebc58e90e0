/*
 * UMMU: user command queues and their control pages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A process rings with a 16-bit store to its own page; the queue runs inside
 * that store, because user libraries wait for a completion for microseconds
 * only.  The four indices live here, rings and identity in the context table,
 * which is read again at each doorbell: nothing about a queue is cached, so
 * after a release there is nothing left that could touch its old rings.
 *
 * Once a queue has run, UCMDQ_CI and UCPLQ_PI belong to the device until the
 * queue is released or has failed; the set-up writes of the kernel come before.
 */
#include "qemu/osdep.h"
#include "ummu-internal.h"
#include "trace.h"

/* A user queue's context, decoded for one run. */
typedef struct UqContext {
    uint64_t addr;                 /* of the context itself */
    uint64_t status_word;          /* word 0 as in memory */
    unsigned status;
    uint64_t cmd_base, cpl_base;
    unsigned cmd_log2, cpl_log2;
    uint16_t tag;
    uint32_t tid;
} UqContext;

typedef enum UqStep { UQ_NEXT, UQ_BLOCKED, UQ_FAILED } UqStep;

static uint32_t uq_count(const UmmuState *s)
{
    unsigned log2 = UMMU_REG64_FIELD(s, UMMU_MAPT_CMDQ_CTXT_BADDR, LOG2SIZE);

    return MIN(1u << MIN(log2, 16), s->cfg.user_queues);
}

static bool uq_read_context(UmmuState *s, uint32_t qid, UqContext *c)
{
    uint64_t w[MAPT_CMDQ_CTX_WORDS];

    c->addr = (ummu_reg64(s, A_UMMU_MAPT_CMDQ_CTXT_BADDR) &
               R_UMMU_MAPT_CMDQ_CTXT_BADDR_ADDR_MASK) +
              (uint64_t)qid * MAPT_CMDQ_CTX_SIZE;
    if (ummu_table_read(s, c->addr, w, sizeof(w),
                        UMMU_FETCH_UCTX) != MEMTX_OK) {
        return false;
    }
    c->status_word = w[0];
    w[0] = le64_to_cpu(w[0]);
    w[1] = le64_to_cpu(w[1]);
    c->status = FIELD_EX64(w[0], MAPT_CMDQ_CTX_W0, STATUS);
    c->cmd_base = w[0] & R_MAPT_CMDQ_CTX_W0_UCMDQ_BASE_MASK;
    c->cpl_base = w[1] & R_MAPT_CMDQ_CTX_W1_UCPLQ_BASE_MASK;
    /* Above the capability: as the capability (V17). */
    c->cmd_log2 = MIN(FIELD_EX64(w[0], MAPT_CMDQ_CTX_W0, UCMDQ_QSIZE),
                      s->cfg.ucmdq_log2);
    c->cpl_log2 = MIN(FIELD_EX64(w[1], MAPT_CMDQ_CTX_W1, UCPLQ_QSIZE),
                      s->cfg.ucplq_log2);
    c->tag = FIELD_EX64(le64_to_cpu(w[2]), MAPT_CMDQ_CTX_W2, TECTE_TAG);
    c->tid = FIELD_EX64(le64_to_cpu(w[4]), MAPT_CMDQ_CTX_W4, TID);
    return true;
}

/* ---- running ------------------------------------------------------------ */

static bool uq_cpl_full(const UmmuUqueue *q, const UqContext *c)
{
    uint16_t mask = (2u << c->cpl_log2) - 1;

    return ((q->cpl_pi - q->cpl_ci) & mask) >= (1u << c->cpl_log2);
}

/* The completion names its command by the index *with* the wrap bit. */
static bool uq_complete(UmmuState *s, uint32_t qid, const UqContext *c,
                        uint16_t ci, unsigned status)
{
    UmmuUqueue *q = &s->uq[qid];
    uint32_t cpl = FIELD_DP32(0, UCPL_W0, STATUS, status);
    uint64_t addr = c->cpl_base +
                    (q->cpl_pi & ((1u << c->cpl_log2) - 1)) * UCPL_SIZE;

    trace_ummu_user_completion(ummu_id(s), qid, ci, status);
    cpl = cpu_to_le32(FIELD_DP32(cpl, UCPL_W0, CMDQ_CI, ci));
    if (ummu_mem_write(s, addr, &cpl, sizeof(cpl)) != MEMTX_OK) {
        return false;
    }
    q->cpl_pi = (q->cpl_pi + 1) & ((2u << c->cpl_log2) - 1);
    s->cnt.user_completions++;
    return true;
}

/* Tag and TID come from the context: that is what isolates users. */
static void uq_plbi(UmmuState *s, const UqContext *c,
                    const uint32_t w[UCMD_WORDS], bool by_va)
{
    UmmuPlbInv inv = {
        .by_tag = true, .tag_first = c->tag, .tag_last = c->tag,
        .by_tid = true, .tid = c->tid,
    };

    if (by_va) {
        ummu_plbi_range((uint64_t)w[3] << 32 | w[2],
                        FIELD_EX32(w[1], UCMD_W1, RANGE), &inv);
    }
    s->cnt.plbi++;
    ummu_pmu_count(s, UMMU_PMU_PLBI, inv.tag_first, inv.tid, 1, 0);
    ummu_plb_invalidate(s, &inv);
}

static unsigned uq_execute(UmmuState *s, const UqContext *c,
                           const uint32_t w[UCMD_WORDS])
{
    switch (FIELD_EX32(w[0], UCMD_W0, OPCODE)) {
    case UCMD_PSYNC:
        return UMMU_UCPL_STATUS_SUCCESS;
    case UCMD_PLBI_USR_ALL:
        uq_plbi(s, c, w, false);
        return UMMU_UCPL_STATUS_SUCCESS;
    case UCMD_PLBI_USR_VA:
        uq_plbi(s, c, w, true);
        return UMMU_UCPL_STATUS_SUCCESS;
    default:
        return UMMU_UCPL_STATUS_BAD_COMMAND;
    }
}

static bool uq_known(uint32_t opcode)
{
    return opcode == UCMD_PSYNC || opcode == UCMD_PLBI_USR_ALL ||
           opcode == UCMD_PLBI_USR_VA;
}

static UqStep uq_step(UmmuState *s, uint32_t qid, const UqContext *c)
{
    UmmuUqueue *q = &s->uq[qid];
    uint32_t w[UCMD_WORDS];
    unsigned status, opcode, i;
    bool wants_cpl;
    uint64_t addr = c->cmd_base +
                    (uint64_t)(q->ci & ((1u << c->cmd_log2) - 1)) * UCMD_SIZE;

    if (ummu_table_read(s, addr, w, sizeof(w), UMMU_FETCH_UCMD) != MEMTX_OK) {
        return UQ_FAILED;
    }
    for (i = 0; i < UCMD_WORDS; i++) {
        w[i] = le32_to_cpu(w[i]);
    }
    opcode = FIELD_EX32(w[0], UCMD_W0, OPCODE);
    /* A wrong command is always reported, or its sender would wait for ever. */
    wants_cpl = FIELD_EX32(w[0], UCMD_W0, CQE_EN) || !uq_known(opcode);
    if (wants_cpl && uq_cpl_full(q, c)) {
        return UQ_BLOCKED;
    }
    s->cnt.user_commands++;
    trace_ummu_user_command(ummu_id(s), qid, q->ci, opcode, c->tag, c->tid);
    status = uq_execute(s, c, w);
    if (status == UMMU_UCPL_STATUS_BAD_COMMAND) {
        ummu_guest_error(s, "user queue %u: unknown opcode 0x%x", qid, opcode);
    }
    if (wants_cpl && !uq_complete(s, qid, c, q->ci, status)) {
        return UQ_FAILED;
    }
    q->ci = (q->ci + 1) & ((2u << c->cmd_log2) - 1);
    return UQ_NEXT;
}

/* Stop, and say so in the context; the compare keeps a newer set-up intact. */
static void uq_fail(UmmuState *s, uint32_t qid, const UqContext *c)
{
    uint64_t word = FIELD_DP64(le64_to_cpu(c->status_word), MAPT_CMDQ_CTX_W0,
                               STATUS, 2);
    bool swapped;

    s->uq[qid].state = UMMU_UQ_ERROR;
    s->cnt.user_errors++;
    ummu_guest_error(s, "user queue %u: ring cannot be accessed", qid);
    ummu_table_cmpxchg64(s, c->addr, c->status_word, cpu_to_le64(word),
                         &swapped);
}

static void uq_consume(UmmuState *s, uint32_t qid, const UqContext *c,
                       uint16_t todo)
{
    UmmuUqueue *q = &s->uq[qid];
    UqStep step = UQ_NEXT;

    q->state = UMMU_UQ_LIVE;
    q->ci &= (2u << c->cmd_log2) - 1;
    q->cpl_pi &= (2u << c->cpl_log2) - 1;
    while (todo-- && step == UQ_NEXT) {
        step = uq_step(s, qid, c);
    }
    if (step == UQ_BLOCKED) {
        q->state = UMMU_UQ_BLOCKED;
    } else if (step == UQ_FAILED) {
        uq_fail(s, qid, c);
    }
}

static void uq_run(UmmuState *s, uint32_t qid)
{
    UmmuUqueue *q = &s->uq[qid];
    UqContext c;
    uint16_t mask, todo;

    if (!ummu_mapt_enabled(s) || qid >= uq_count(s)) {
        ummu_guest_error(s, "doorbell of user queue %u: %s", qid,
                         ummu_mapt_enabled(s) ? "beyond the context table"
                                              : "MAPT_EN is 0");
        return;
    }
    if (!uq_read_context(s, qid, &c)) {
        q->state = UMMU_UQ_ERROR;
        s->cnt.user_errors++;
        ummu_guest_error(s, "user queue %u: context cannot be read", qid);
        return;
    }
    if (c.status != 1) {
        ummu_guest_error(s, "doorbell of user queue %u with context status %u",
                         qid, c.status);
        return;
    }
    mask = (2u << c.cmd_log2) - 1;
    todo = (q->pi - q->ci) & mask;
    if (todo > (1u << c.cmd_log2)) {
        ummu_guest_error(s, "user queue %u: PI 0x%x is more than a ring ahead "
                         "of CI 0x%x", qid, q->pi, q->ci);
    } else if (todo) {
        uq_consume(s, qid, &c, todo);
    }
}

/* ---- control pages ------------------------------------------------------ */

static unsigned uq_page_shift(const UmmuState *s)
{
    return UMMU_REG_FIELD(s, UMMU_UMCMD_PAGE_SEL, PAGE_MODEL_SEL_EN) ? 12 : 16;
}

/* Index register at @off of the pages; NULL for holes and bad sizes. */
static uint16_t *uq_register(UmmuState *s, hwaddr off, unsigned size,
                             uint32_t *qid, uint32_t *reg)
{
    uint64_t page = off >> uq_page_shift(s);
    UmmuUqueue *q;

    *reg = off & ((1u << uq_page_shift(s)) - 1);
    if (page >= s->cfg.user_queues || (size != 2 && size != 4)) {
        return NULL;
    }
    *qid = page;
    q = &s->uq[page];
    switch (*reg) {
    case A_UCMDQ_PI:
        return &q->pi;
    case A_UCMDQ_CI:
        return &q->ci;
    case A_UCPLQ_PI:
        return &q->cpl_pi;
    case A_UCPLQ_CI:
        return &q->cpl_ci;
    default:
        return NULL;
    }
}

uint64_t ummu_ucmdq_read(UmmuState *s, hwaddr off, unsigned size)
{
    uint32_t qid, reg;
    uint16_t *r = uq_register(s, off, size, &qid, &reg);

    if (!r) {
        ummu_guest_error(s, "bad read of %u bytes at control page offset 0x%"
                         HWADDR_PRIx, size, off);
        return 0;
    }
    trace_ummu_user_read(ummu_id(s), qid, reg, *r);
    return *r;
}

void ummu_ucmdq_write(UmmuState *s, hwaddr off, uint64_t val, unsigned size)
{
    uint32_t qid, reg;
    uint16_t *r = uq_register(s, off, size, &qid, &reg);
    UmmuUqueue *q;

    if (!r) {
        ummu_guest_error(s, "bad write of %u bytes at control page offset 0x%"
                         HWADDR_PRIx, size, off);
        return;
    }
    q = &s->uq[qid];
    trace_ummu_user_write(ummu_id(s), qid, reg, val);
    if ((reg == A_UCMDQ_CI || reg == A_UCPLQ_PI) &&
        (q->state == UMMU_UQ_LIVE || q->state == UMMU_UQ_BLOCKED)) {
        ummu_guest_error(s, "user queue %u: write to a device-owned index",
                         qid);
        return;
    }
    *r = val;
    if (reg == A_UCMDQ_PI ||
        (reg == A_UCPLQ_CI && q->state == UMMU_UQ_BLOCKED)) {
        uq_run(s, qid);
    }
}

void ummu_ucmdq_release(UmmuState *s, uint32_t qid)
{
    if (qid >= s->cfg.user_queues) {
        ummu_guest_error(s, "release of user queue %u, which does not exist",
                         qid);
        return;
    }
    memset(&s->uq[qid], 0, sizeof(s->uq[qid]));
    trace_ummu_user_release(ummu_id(s), qid);
}

void ummu_ucmdq_reset(UmmuState *s)
{
    memset(s->uq, 0, s->cfg.user_queues * sizeof(*s->uq));
}
