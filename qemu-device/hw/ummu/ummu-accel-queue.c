/*
 * ummu-accel: the engine.  Scheduling, rings, parking, completions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "ummu-accel.h"
#include "trace.h"

#define ACCEL_SLICE_BYTES  (256 * 1024)  /* of one queue, then the next */
#define ACCEL_RING_COST    64            /* of a descriptor or a completion */
#define ACCEL_DESC_FLAGS   (ACCEL_DESC_FLAG_INT | ACCEL_DESC_FLAG_FENCE_BEFORE)
/* Bits of an operand's attribute word that mean nothing. */
#define ACCEL_ATTR_RESERVED  0xfcf00000u

/* ---- small facts --------------------------------------------------------- */

unsigned accel_sq_log2(const AccelQueue *q)
{
    return MIN(FIELD_EX32(q->regs[R_ACCEL_Q_SIZE_NR], ACCEL_Q_SIZE, SQ_LOG2),
               ACCEL_MAX_LOG2SIZE);
}

unsigned accel_cq_log2(const AccelQueue *q)
{
    return MIN(FIELD_EX32(q->regs[R_ACCEL_Q_SIZE_NR], ACCEL_Q_SIZE, CQ_LOG2),
               ACCEL_MAX_LOG2SIZE);
}

/* Entries between two indices that carry a wrap bit at @log2. */
static uint32_t accel_distance(uint32_t from, uint32_t to, unsigned log2)
{
    return (to - from) & ((2u << log2) - 1);
}

static uint32_t accel_next(uint32_t index, unsigned log2)
{
    return (index + 1) & ((2u << log2) - 1);
}

static bool accel_cq_full(const AccelQueue *q)
{
    unsigned log2 = accel_cq_log2(q);

    return accel_distance(q->bell[R_ACCEL_DB_CQ_CI_NR],
                          q->bell[R_ACCEL_DB_CQ_PI_NR], log2) == 1u << log2;
}

static bool accel_sq_empty(const AccelQueue *q)
{
    return q->bell[R_ACCEL_DB_SQ_PI_NR] == q->bell[R_ACCEL_DB_SQ_CI_NR];
}

bool accel_queue_busy(const AccelQueue *q)
{
    return q->state == ACCEL_Q_STATE_RUNNING &&
           (q->job.phase != ACCEL_PHASE_IDLE || q->job.parked);
}

/* Has work that could go on now or at job.wake_ns. */
static bool accel_has_work(const AccelQueue *q)
{
    if (q->state != ACCEL_Q_STATE_RUNNING || q->job.parked ||
        !FIELD_EX32(q->s->regs[R_ACCEL_CTRL_NR], ACCEL_CTRL, EN)) {
        return false;
    }
    switch (q->job.phase) {
    case ACCEL_PHASE_IDLE:
        return !accel_sq_empty(q);
    case ACCEL_PHASE_COMPLETE:
        return !accel_cq_full(q);
    default:
        return true;
    }
}

/* ---- parts of a job's life ----------------------------------------------- */

static void accel_job_clear(AccelQueue *q)
{
    q->job = (AccelJob) { .phase = ACCEL_PHASE_IDLE };
}

/* Nothing of the job may come back later: forget its stall. */
static void accel_unpark(AccelQueue *q)
{
    if (q->job.parked) {
        ummu_client_cancel_stall(q->s->client, q->job.stag);
        q->job.parked = false;
    }
}

void accel_queue_error(AccelQueue *q, uint8_t event, uint64_t va)
{
    AccelState *s = q->s;

    accel_unpark(q);
    accel_job_clear(q);
    q->state = ACCEL_Q_STATE_ERROR;
    q->event = event;
    q->regs[R_ACCEL_Q_ERR_ADDR_NR] = va;
    s->cnt.queue_errors++;
    trace_ummu_accel_queue_error(accel_id(s), q->number, event, va);
    if (FIELD_EX32(q->regs[R_ACCEL_Q_CTRL_NR], ACCEL_Q_CTRL, INT_EN)) {
        accel_interrupt(s, q->number);
    }
}

static void accel_fetch(AccelQueue *q)
{
    uint32_t ci = q->bell[R_ACCEL_DB_SQ_CI_NR];
    unsigned log2 = accel_sq_log2(q);
    uint64_t va = q->regs[R_ACCEL_Q_SQ_BASE_NR] +
                  (uint64_t)(ci & ((1u << log2) - 1)) * ACCEL_DESC_SIZE;
    uint64_t raw[ACCEL_DESC_WORDS];

    q->s->budget -= MIN(q->s->budget, ACCEL_RING_COST);
    switch (accel_ring_read(q, va, raw, sizeof(raw))) {
    case ACCEL_REACH_WAIT:
        return;
    case ACCEL_REACH_FAIL:
        accel_queue_error(q, q->job.event, va);
        return;
    default:
        break;
    }
    accel_job_clear(q);
    for (unsigned i = 0; i < ACCEL_DESC_WORDS; i++) {
        q->job.desc[i] = le64_to_cpu(raw[i]);
    }
    q->job.phase = ACCEL_PHASE_RUN;
    q->job.sq_index = ci;
    q->bell[R_ACCEL_DB_SQ_CI_NR] = accel_next(ci, log2);
    q->s->cnt.jobs_started++;
}

static bool accel_is_bound(const AccelQueue *q, uint32_t tid)
{
    for (uint32_t i = 0; i < q->tid_count; i++) {
        if (q->tids[i] == tid) {
            return true;
        }
    }
    return false;
}

/* All a descriptor can be refused for without touching memory. */
static bool accel_check(AccelQueue *q, AccelJob *job, const AccelOpInfo *op)
{
    int bad;

    if (!op) {
        accel_job_fail(job, ACCEL_STATUS_BAD_OP, ACCEL_OPERAND_NONE, 0, 0);
        return false;
    }
    if (ACCEL_DESC_EX(job, 0, FLAGS) & ~ACCEL_DESC_FLAGS) {
        accel_job_fail(job, ACCEL_STATUS_BAD_DESC, ACCEL_OPERAND_NONE, 0, 0);
        return false;
    }
    for (unsigned i = 0; i < ACCEL_OPERANDS; i++) {
        if (op->operands & 1 << i &&
            job->desc[3 + 2 * i] & ACCEL_ATTR_RESERVED) {
            accel_job_fail(job, ACCEL_STATUS_BAD_DESC, i, 0, 0);
            return false;
        }
    }
    bad = op->check ? op->check(job) : ACCEL_CHECK_OK;
    if (bad != ACCEL_CHECK_OK) {
        accel_job_fail(job, ACCEL_STATUS_BAD_DESC, bad, 0, 0);
        return false;
    }
    for (unsigned i = 0; i < ACCEL_OPERANDS; i++) {
        AccelOperand operand = accel_operand(job, i);

        if (op->operands & 1 << i && !accel_is_bound(q, operand.tid)) {
            accel_job_fail(job, ACCEL_STATUS_NOT_BOUND, i, 0, operand.va);
            return false;
        }
    }
    return true;
}

static void accel_work(AccelQueue *q)
{
    AccelJob *job = &q->job;
    const AccelOpInfo *op = accel_op_info(ACCEL_DESC_EX(job, 0, OPCODE));
    AccelStep step = ACCEL_STEP_DONE;

    if (!job->checked) {
        job->checked = accel_check(q, job, op);
        trace_ummu_accel_job(accel_id(q->s), q->number, job->sq_index,
                             op ? op->name : "?", job->desc[1], job->checked);
    }
    if (job->checked) {
        step = op->step(q, job);
    }
    if (step == ACCEL_STEP_DONE) {
        job->phase = ACCEL_PHASE_COMPLETE;
        job->retries = 0;
        q->s->cnt.jobs_failed += job->status != ACCEL_STATUS_OK;
    }
}

static void accel_complete(AccelQueue *q)
{
    AccelState *s = q->s;
    AccelJob *job = &q->job;
    unsigned log2 = accel_cq_log2(q);
    uint32_t pi = q->bell[R_ACCEL_DB_CQ_PI_NR];
    uint64_t va = q->regs[R_ACCEL_Q_CQ_BASE_NR] +
                  (uint64_t)(pi & ((1u << log2) - 1)) * ACCEL_CPL_SIZE;
    /* The outcome must survive an access that has to wait. */
    AccelJob outcome = *job;
    bool wants_int = ACCEL_DESC_EX(job, 0, FLAGS) & ACCEL_DESC_FLAG_INT;
    uint64_t w0 = 0, cpl[ACCEL_CPL_WORDS];

    w0 = FIELD_DP64(w0, ACCEL_CPL_W0, COOKIE, ACCEL_DESC_EX(job, 0, COOKIE));
    w0 = FIELD_DP64(w0, ACCEL_CPL_W0, STATUS, job->status);
    w0 = FIELD_DP64(w0, ACCEL_CPL_W0, OPERAND, job->operand);
    w0 = FIELD_DP64(w0, ACCEL_CPL_W0, EVENT, job->event);
    w0 = FIELD_DP64(w0, ACCEL_CPL_W0, SQ_INDEX, job->sq_index);
    cpl[0] = cpu_to_le64(w0);
    cpl[1] = cpu_to_le64(job->fault_addr);
    cpl[2] = cpu_to_le64(job->pos);
    cpl[3] = cpu_to_le64(job->result);

    s->budget -= MIN(s->budget, ACCEL_RING_COST);
    switch (accel_ring_write(q, va, cpl, sizeof(cpl))) {
    case ACCEL_REACH_WAIT:
        q->job.status = outcome.status;
        q->job.operand = outcome.operand;
        q->job.event = outcome.event;
        q->job.fault_addr = outcome.fault_addr;
        return;
    case ACCEL_REACH_FAIL:
        accel_queue_error(q, q->job.event, va);
        return;
    default:
        break;
    }
    trace_ummu_accel_complete(accel_id(s), q->number, job->sq_index,
                              job->status, job->event, job->fault_addr,
                              job->pos);
    s->regs[R_ACCEL_JOBS_DONE_NR]++;
    accel_job_clear(q);
    q->bell[R_ACCEL_DB_CQ_PI_NR] = accel_next(pi, log2);
    if (wants_int &&
        FIELD_EX32(q->regs[R_ACCEL_Q_CTRL_NR], ACCEL_Q_CTRL, INT_EN)) {
        accel_interrupt(s, q->number);
    }
}

/* ---- turns --------------------------------------------------------------- */

/* One slice of one queue: at most @slice bytes, possibly several small jobs. */
static void accel_queue_slice(AccelQueue *q, uint64_t slice, int64_t now)
{
    AccelState *s = q->s;
    uint64_t bytes;

    s->budget = slice;
    s->cost_ns = 0;
    while (s->budget && accel_has_work(q) && q->job.wake_ns <= now) {
        uint64_t before = s->budget;

        if (q->job.phase == ACCEL_PHASE_IDLE) {
            accel_fetch(q);
        } else if (q->job.phase == ACCEL_PHASE_RUN) {
            accel_work(q);
        } else {
            accel_complete(q);
        }
        bytes = before - s->budget;
        if (s->cfg.bytes_per_us) {
            s->cost_ns += bytes * 1000 / s->cfg.bytes_per_us;
        }
        /* With costs, what follows happens only after they have passed. */
        if (s->cost_ns) {
            q->job.wake_ns = MAX(q->job.wake_ns, now + (int64_t)s->cost_ns);
            s->cost_ns = 0;
        }
    }
}

/* Earliest time at which any queue can go on; -1 if none has work. */
static int64_t accel_next_wake(AccelState *s)
{
    int64_t wake = -1;

    for (uint32_t i = 0; i < s->cfg.queues; i++) {
        AccelQueue *q = &s->queue[i];

        if (accel_has_work(q) && (wake < 0 || q->job.wake_ns < wake)) {
            wake = q->job.wake_ns;
        }
    }
    return wake;
}

/*
 * Always at least one tick ahead: a timer that is due "now" again would run
 * again before the main loop serves anybody else.
 */
void accel_kick(AccelState *s)
{
    int64_t wake = accel_next_wake(s);

    if (wake >= 0) {
        int64_t soonest = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) + 1;

        timer_mod(s->timer, MAX(wake, soonest));
    } else {
        timer_del(s->timer);
    }
}

void accel_engine_timer(void *opaque)
{
    AccelState *s = opaque;
    int64_t now = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
    uint64_t left = s->cfg.turn_bytes, used;
    bool progress = true;

    s->cnt.turns++;
    s->in_engine = true;
    while (left && progress) {
        progress = false;
        for (uint32_t i = 0; i < s->cfg.queues && left; i++) {
            AccelQueue *q = &s->queue[(s->next_queue + i) % s->cfg.queues];
            uint64_t slice = MIN(left, ACCEL_SLICE_BYTES);

            if (accel_has_work(q) && q->job.wake_ns <= now) {
                accel_queue_slice(q, slice, now);
                left -= slice - s->budget;
                progress = true;
            }
        }
        s->next_queue = (s->next_queue + 1) % s->cfg.queues;
    }
    used = s->cfg.turn_bytes - left;
    s->cnt.turn_bytes_peak = MAX(s->cnt.turn_bytes_peak, used);
    trace_ummu_accel_turn(accel_id(s), used);
    s->in_engine = false;
    accel_kick(s);
    accel_send_interrupts(s);
}

/* ---- what software does to a queue --------------------------------------- */

void accel_queue_start(AccelQueue *q)
{
    accel_job_clear(q);
    memset(q->bell, 0, sizeof(q->bell));
    q->state = ACCEL_Q_STATE_RUNNING;
    q->event = 0;
    q->regs[R_ACCEL_Q_ERR_ADDR_NR] = 0;
    trace_ummu_accel_queue_start(accel_id(q->s), q->number,
                                 q->regs[R_ACCEL_Q_SQ_BASE_NR],
                                 q->regs[R_ACCEL_Q_CQ_BASE_NR],
                                 accel_sq_log2(q), accel_cq_log2(q));
}

void accel_queue_stop(AccelQueue *q)
{
    if (accel_queue_busy(q)) {
        q->s->cnt.jobs_aborted++;
    }
    accel_unpark(q);
    accel_job_clear(q);
    q->state = ACCEL_Q_STATE_DISABLED;
    q->event = 0;
    q->tid_count = 0;
}

void accel_queue_doorbell(AccelQueue *q, uint32_t pi)
{
    unsigned log2 = accel_sq_log2(q);
    uint32_t ci = q->bell[R_ACCEL_DB_SQ_CI_NR];

    if (q->state != ACCEL_Q_STATE_RUNNING) {
        accel_guest_error(q->s, "queue %u: doorbell while not running",
                          q->number);
        return;
    }
    /* More than one turn ahead would name slots twice. */
    if (pi >> (log2 + 1) || accel_distance(ci, pi, log2) > 1u << log2) {
        accel_guest_error(q->s, "queue %u: bad submission index 0x%x, read "
                          "index 0x%x", q->number, pi, ci);
        accel_queue_error(q, 0, 0);
        return;
    }
    q->bell[R_ACCEL_DB_SQ_PI_NR] = pi;
    accel_kick(q->s);
}

void accel_queue_cq_consumed(AccelQueue *q, uint32_t ci)
{
    unsigned log2 = accel_cq_log2(q);

    if (q->state != ACCEL_Q_STATE_RUNNING) {
        accel_guest_error(q->s, "queue %u: completion index while not running",
                          q->number);
        return;
    }
    if (ci >> (log2 + 1) ||
        accel_distance(ci, q->bell[R_ACCEL_DB_CQ_PI_NR], log2) > 1u << log2) {
        accel_guest_error(q->s, "queue %u: bad completion read index 0x%x",
                          q->number, ci);
        accel_queue_error(q, 0, 0);
        return;
    }
    q->bell[R_ACCEL_DB_CQ_CI_NR] = ci;
    accel_kick(q->s);
}

bool accel_queue_uses(const AccelQueue *q, uint32_t tid)
{
    const AccelJob *job = &q->job;
    const AccelOpInfo *op;

    if (job->phase != ACCEL_PHASE_RUN) {
        return false;
    }
    op = accel_op_info(ACCEL_DESC_EX(job, 0, OPCODE));
    for (unsigned i = 0; op && i < ACCEL_OPERANDS; i++) {
        if (op->operands & 1 << i && accel_operand(job, i).tid == tid) {
            return true;
        }
    }
    return false;
}

static void accel_unbind(AccelQueue *q, uint32_t tid)
{
    for (uint32_t i = 0; i < q->tid_count; i++) {
        if (q->tids[i] == tid) {
            q->tids[i] = q->tids[--q->tid_count];
            break;
        }
    }
    if (accel_queue_uses(q, tid)) {
        accel_unpark(q);
        accel_job_fail(&q->job, ACCEL_STATUS_ABORTED, ACCEL_OPERAND_NONE, 0, 0);
        q->job.phase = ACCEL_PHASE_COMPLETE;
        q->job.wake_ns = 0;
        q->s->cnt.jobs_aborted++;
        accel_kick(q->s);
    }
}

void accel_queue_bind(AccelQueue *q, uint32_t tid, bool add)
{
    bool full = false;

    if (!add) {
        accel_unbind(q, tid);
    } else if (!accel_is_bound(q, tid)) {
        full = q->tid_count == ACCEL_MAX_TIDS;
        if (!full) {
            q->tids[q->tid_count++] = tid;
        }
    }
    q->regs[R_ACCEL_Q_TID_BIND_NR] =
        FIELD_DP32(q->regs[R_ACCEL_Q_TID_BIND_NR], ACCEL_Q_TID_BIND, FULL,
                   full);
    trace_ummu_accel_bind(accel_id(q->s), q->number, tid, add, full);
}

/* ---- answers to stalls --------------------------------------------------- */

void accel_stall_done(void *opaque, uint16_t stag, bool retry)
{
    AccelState *s = opaque;

    for (uint32_t i = 0; i < s->cfg.queues; i++) {
        AccelQueue *q = &s->queue[i];
        AccelJob *job = &q->job;

        if (!job->parked || job->stag != stag) {
            continue;
        }
        trace_ummu_accel_unpark(accel_id(s), q->number, stag, retry);
        job->parked = false;
        if (!retry && job->phase == ACCEL_PHASE_RUN) {
            job->status = ACCEL_STATUS_FAULT;
            job->phase = ACCEL_PHASE_COMPLETE;
            s->cnt.jobs_failed++;
        } else if (!retry) {
            accel_queue_error(q, job->event, job->fault_addr);
        }
        accel_kick(s);
        accel_send_interrupts(s);
        return;
    }
}
