/*
 * UMMU: kernel command queues (MCMDQ): registers, running, errors.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A doorbell runs the queue inside the register write: software that polls CI
 * or the memory of its CMD_SYNC finds the result at once.  A run handles at
 * most one ring of entries, and a ring has at most 2^19.  What the commands do
 * is in ummu-command.c.
 */
#include "qemu/osdep.h"
#include "ummu-internal.h"
#include "trace.h"

#define PI_MASK (R_MCMDQ_PI_WR_IDX_WRAP_MASK | R_MCMDQ_PI_ERRACK_MASK | \
                 R_MCMDQ_PI_EN_MASK)
#define CI_SW_MASK (R_MCMDQ_CI_RD_IDX_WRAP_MASK | R_MCMDQ_CI_ERR_MASK | \
                    R_MCMDQ_CI_ERR_REASON_MASK)

static unsigned mcmdq_log2(const UmmuMcmdq *q)
{
    return MIN(FIELD_EX64(q->base, MCMDQ_BASE, LOG2SIZE), UMMU_RING_LOG2_MAX);
}

static bool mcmdq_enabled(const UmmuMcmdq *q)
{
    return q->pi & R_MCMDQ_PI_EN_MASK;
}

static bool mcmdq_error_pending(const UmmuMcmdq *q)
{
    return FIELD_EX32(q->ci, MCMDQ_CI, ERR) !=
           FIELD_EX32(q->pi, MCMDQ_PI, ERRACK);
}

static uint64_t mcmdq_slot_addr(const UmmuMcmdq *q, uint32_t ci)
{
    return (q->base & R_MCMDQ_BASE_ADDR_MASK) +
           (uint64_t)(ci & ((1u << mcmdq_log2(q)) - 1)) * CMD_SIZE;
}

static void mcmdq_set_ci(UmmuMcmdq *q, uint32_t ci)
{
    q->ci = FIELD_DP32(q->ci, MCMDQ_CI, RD_IDX_WRAP, ci);
}

static bool mcmdq_sync_waits(const UmmuState *s, unsigned qi)
{
    return s->mcmdq_pending[qi / 64] & (1ull << (qi % 64));
}

static void mcmdq_set_sync_waits(UmmuState *s, unsigned qi, bool on)
{
    uint64_t bit = 1ull << (qi % 64);

    s->mcmdq_pending[qi / 64] = (s->mcmdq_pending[qi / 64] & ~bit) |
                                (on ? bit : 0);
}

/* CI stays on the bad entry; the queue stops until ERRACK equals ERR. */
static void mcmdq_fail(UmmuState *s, unsigned qi, unsigned reason)
{
    UmmuMcmdq *q = &s->mcmdq[qi];

    q->ci ^= R_MCMDQ_CI_ERR_MASK;
    q->ci = FIELD_DP32(q->ci, MCMDQ_CI, ERR_REASON, reason);
    s->cnt.command_errors++;
    ummu_guest_error(s, "MCMDQ %u stopped at index 0x%x: %s", qi,
                     FIELD_EX32(q->ci, MCMDQ_CI, RD_IDX_WRAP),
                     reason == UMMU_MCMDQ_ERR_REASON_ILLEGAL ?
                     "illegal command" : "command fetch abort");
    ummu_glb_err_raise(s, R_UMMU_GLB_ERR_MCMD_QUE_ERR_MASK);
}

/*
 * Completion of a CMD_SYNC.  All commands act when they are executed, so there
 * is nothing to wait for; CI moves first since software computes it from here.
 */
static void mcmdq_complete_sync(UmmuState *s, unsigned qi,
                                const uint64_t w[CMD_WORDS])
{
    unsigned cm = FIELD_EX64(w[0], CMD_SYNC_W0, CM);
    uint64_t addr = w[1] & R_CMD_SYNC_W1_MSIADDR_MASK;
    uint32_t data = FIELD_EX64(w[0], CMD_SYNC_W0, MSIDATA);

    s->cnt.syncs++;
    trace_ummu_sync(ummu_id(s), qi, cm, addr, data);
    if (cm == UMMU_SYNC_CM_USI && ummu_message(s, addr, data) != MEMTX_OK) {
        ummu_glb_err_raise(s, R_UMMU_GLB_ERR_USI_MCMD_QUE_ABT_ERR_MASK);
    }
    /* SEV: virtual CPUs leave WFE by themselves, no signal is needed. */
}

typedef enum McmdqStep { MCMDQ_NEXT, MCMDQ_STOP } McmdqStep;

static McmdqStep mcmdq_step(UmmuState *s, unsigned qi, uint32_t ci,
                            bool sync_delayed)
{
    UmmuMcmdq *q = &s->mcmdq[qi];
    uint64_t slot = mcmdq_slot_addr(q, ci);
    uint32_t next = (ci + 1) & ((2u << mcmdq_log2(q)) - 1);
    uint64_t w[CMD_WORDS];
    unsigned i, reason;

    if (ummu_table_read(s, slot, w, sizeof(w), UMMU_FETCH_CMD) != MEMTX_OK) {
        mcmdq_fail(s, qi, UMMU_MCMDQ_ERR_REASON_FETCH_ABORT);
        return MCMDQ_STOP;
    }
    for (i = 0; i < CMD_WORDS; i++) {
        w[i] = le64_to_cpu(w[i]);
    }
    s->cnt.commands++;
    ummu_pmu_count(s, UMMU_PMU_CMD_SEND, 0, 0, 1, 0);
    reason = ummu_command_execute(s, qi, slot, w);
    if (reason != UMMU_MCMDQ_ERR_REASON_NONE) {
        mcmdq_fail(s, qi, reason);
        return MCMDQ_STOP;
    }
    if (FIELD_EX64(w[0], CMD_W0, OPCODE) != UMMU_CMD_SYNC) {
        mcmdq_set_ci(q, next);
        return MCMDQ_NEXT;
    }
    if (s->inject.sync_delay_ns && !sync_delayed) {
        mcmdq_set_sync_waits(s, qi, true);
        timer_mod(s->sync_timer, qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) +
                                 s->inject.sync_delay_ns);
        return MCMDQ_STOP;
    }
    mcmdq_set_ci(q, next);
    mcmdq_complete_sync(s, qi, w);
    return MCMDQ_NEXT;
}

static void mcmdq_run(UmmuState *s, unsigned qi, bool sync_delayed)
{
    UmmuMcmdq *q = &s->mcmdq[qi];
    uint32_t mask = (2u << mcmdq_log2(q)) - 1;
    uint32_t pi = FIELD_EX32(q->pi, MCMDQ_PI, WR_IDX_WRAP) & mask;
    uint32_t ci = FIELD_EX32(q->ci, MCMDQ_CI, RD_IDX_WRAP) & mask;

    if (!mcmdq_enabled(q) || mcmdq_error_pending(q) ||
        mcmdq_sync_waits(s, qi)) {
        return;
    }
    if (((pi - ci) & mask) > (1u << mcmdq_log2(q))) {
        ummu_guest_error(s, "MCMDQ %u: PI 0x%x is more than a ring ahead of CI "
                         "0x%x", qi, pi, ci);
        return;
    }
    while (ci != pi) {
        if (mcmdq_step(s, qi, ci, sync_delayed) == MCMDQ_STOP) {
            break;
        }
        sync_delayed = false;
        ci = (ci + 1) & mask;
    }
}

/* Timer of delayed CMD_SYNC completions (fault injection). */
void ummu_mcmdq_sync_expired(void *opaque)
{
    UmmuState *s = opaque;
    unsigned qi;

    for (qi = 0; qi < (1u << s->cfg.mcmdq_log2); qi++) {
        if (mcmdq_sync_waits(s, qi)) {
            mcmdq_set_sync_waits(s, qi, false);
            mcmdq_run(s, qi, true);
        }
    }
}

/* ---- registers ---------------------------------------------------------- */

static void mcmdq_enable(UmmuState *s, unsigned qi)
{
    UmmuMcmdq *q = &s->mcmdq[qi];

    unsigned log2 = FIELD_EX64(q->base, MCMDQ_BASE, LOG2SIZE);

    if (log2 > UMMU_RING_LOG2_MAX) {
        ummu_guest_error(s, "MCMDQ %u LOG2SIZE %u exceeds the limit, used as "
                         "%u", qi, log2, UMMU_RING_LOG2_MAX);
    }
    /* Off and on again leaves an error behind. */
    q->ci = FIELD_DP32(q->ci, MCMDQ_CI, ERR,
                       FIELD_EX32(q->pi, MCMDQ_PI, ERRACK));
    q->ci = FIELD_DP32(q->ci, MCMDQ_CI, ERR_REASON,
                       UMMU_MCMDQ_ERR_REASON_NONE);
    q->ci |= R_MCMDQ_CI_EN_RESP_MASK;
}

static void mcmdq_write_pi(UmmuState *s, unsigned qi, uint32_t val)
{
    UmmuMcmdq *q = &s->mcmdq[qi];
    bool was_enabled = mcmdq_enabled(q);
    bool had_error = mcmdq_error_pending(q);

    q->pi = val & PI_MASK;
    if (!mcmdq_enabled(q)) {
        q->ci &= ~R_MCMDQ_CI_EN_RESP_MASK;
        mcmdq_set_sync_waits(s, qi, false);
        return;
    }
    if (!was_enabled) {
        mcmdq_enable(s, qi);
    } else if (had_error && !mcmdq_error_pending(q)) {
        q->ci = FIELD_DP32(q->ci, MCMDQ_CI, ERR_REASON,
                           UMMU_MCMDQ_ERR_REASON_NONE);
    } else if (!had_error && mcmdq_error_pending(q)) {
        ummu_guest_error(s, "MCMDQ %u: ERRACK changed without an error", qi);
    }
    mcmdq_run(s, qi, false);
}

uint64_t ummu_mcmdq_read(UmmuState *s, unsigned qi, hwaddr off, unsigned size)
{
    const UmmuMcmdq *q = &s->mcmdq[qi];
    uint64_t val = 0;

    if (size == 8 && off == A_MCMDQ_BASE) {
        val = q->base;
    } else if (size == 4 && off == A_MCMDQ_BASE) {
        val = (uint32_t)q->base;
    } else if (size == 4 && off == A_MCMDQ_BASE + 4) {
        val = q->base >> 32;
    } else if (size == 4 && off == A_MCMDQ_PI) {
        val = q->pi;
    } else if (size == 4 && off == A_MCMDQ_CI) {
        val = q->ci;
    } else {
        ummu_guest_error(s, "bad read of %u bytes at MCMDQ %u + 0x%"
                         HWADDR_PRIx, size, qi, off);
    }
    trace_ummu_mcmdq_read(ummu_id(s), qi, off, size, val);
    return val;
}

static uint64_t mcmdq_base_mask(void)
{
    return R_MCMDQ_BASE_LOG2SIZE_MASK | R_MCMDQ_BASE_ADDR_MASK |
           R_MCMDQ_BASE_RWA_MASK;
}

void ummu_mcmdq_write(UmmuState *s, unsigned qi, hwaddr off, uint64_t val,
                      unsigned size)
{
    UmmuMcmdq *q = &s->mcmdq[qi];

    trace_ummu_mcmdq_write(ummu_id(s), qi, off, size, val);
    if (size == 4 && off == A_MCMDQ_PI) {
        mcmdq_write_pi(s, qi, val);
    } else if (mcmdq_enabled(q)) {
        ummu_guest_error(s, "bad write to MCMDQ %u + 0x%" HWADDR_PRIx
                         " while it is enabled", qi, off);
    } else if (size == 8 && off == A_MCMDQ_BASE) {
        q->base = val & mcmdq_base_mask();
    } else if (size == 4 && off == A_MCMDQ_BASE) {
        q->base = deposit64(q->base, 0, 32, val) & mcmdq_base_mask();
    } else if (size == 4 && off == A_MCMDQ_BASE + 4) {
        q->base = deposit64(q->base, 32, 32, val) & mcmdq_base_mask();
    } else if (size == 4 && off == A_MCMDQ_CI) {
        q->ci = val & CI_SW_MASK;
    } else {
        ummu_guest_error(s, "bad write of %u bytes at MCMDQ %u + 0x%"
                         HWADDR_PRIx, size, qi, off);
    }
}

void ummu_mcmdq_reset(UmmuState *s)
{
    memset(s->mcmdq, 0, sizeof(s->mcmdq));
    memset(s->mcmdq_pending, 0, sizeof(s->mcmdq_pending));
    timer_del(s->sync_timer);
}

/* Drop bits that registers cannot hold; EN_RESP follows EN. */
int ummu_mcmdq_post_load(UmmuState *s)
{
    unsigned qi;

    for (qi = 0; qi < UMMU_MCMDQ_MAX; qi++) {
        UmmuMcmdq *q = &s->mcmdq[qi];

        q->base &= mcmdq_base_mask();
        q->pi &= PI_MASK;
        q->ci &= CI_SW_MASK;
        if (mcmdq_enabled(q)) {
            q->ci |= R_MCMDQ_CI_EN_RESP_MASK;
        } else {
            mcmdq_set_sync_waits(s, qi, false);
        }
    }
    return 0;
}
