/*
 * ummu-accel: saved state.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A stream is as untrusted as a register write: what the engine relies on is
 * checked after the load.
 */
#include "qemu/osdep.h"
#include "hw/pci/msix.h"
#include "ummu-accel.h"

static const VMStateDescription vmstate_accel_job = {
    .name = "ummu-accel/job",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT8(phase, AccelJob),
        VMSTATE_UINT64_ARRAY(desc, AccelJob, ACCEL_DESC_WORDS),
        VMSTATE_UINT32(sq_index, AccelJob),
        VMSTATE_BOOL(checked, AccelJob),
        VMSTATE_UINT64(pos, AccelJob),
        VMSTATE_UINT64(result, AccelJob),
        VMSTATE_UINT8(status, AccelJob),
        VMSTATE_UINT8(operand, AccelJob),
        VMSTATE_UINT8(event, AccelJob),
        VMSTATE_UINT64(fault_addr, AccelJob),
        VMSTATE_UINT64(k_pos, AccelJob),
        VMSTATE_UINT64_ARRAY(acc, AccelJob, ACCEL_GEMM_TILE),
        VMSTATE_BOOL(parked, AccelJob),
        VMSTATE_UINT16(stag, AccelJob),
        VMSTATE_UINT32(retries, AccelJob),
        VMSTATE_INT64(wake_ns, AccelJob),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_accel_queue = {
    .name = "ummu-accel/queue",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64_ARRAY(regs, AccelQueue, ACCEL_Q_REG_COUNT),
        VMSTATE_UINT64_ARRAY(bell, AccelQueue, ACCEL_DB_REG_COUNT),
        VMSTATE_UINT8(state, AccelQueue),
        VMSTATE_UINT8(event, AccelQueue),
        VMSTATE_UINT32_ARRAY(tids, AccelQueue, ACCEL_MAX_TIDS),
        VMSTATE_UINT32(tid_count, AccelQueue),
        VMSTATE_STRUCT(job, AccelQueue, 1, vmstate_accel_job, AccelJob),
        VMSTATE_END_OF_LIST()
    },
};

/* Position of a job inside what its descriptor asks for. */
static bool accel_job_valid(const AccelJob *job)
{
    const AccelOpInfo *op = accel_op_info(ACCEL_DESC_EX(job, 0, OPCODE));
    uint64_t end = ACCEL_DESC_EX(job, 1, LENGTH);

    if (job->phase >= ACCEL_PHASES || (job->checked && !op)) {
        return false;
    }
    if (job->phase != ACCEL_PHASE_RUN || !job->checked) {
        return true;
    }
    if (op->check && op->check(job) != ACCEL_CHECK_OK) {
        return false;
    }
    if (ACCEL_DESC_EX(job, 0, OPCODE) == ACCEL_OP_GEMM) {
        end = ACCEL_DESC_EX(job, 1, M) * ACCEL_DESC_EX(job, 1, N) * 4;
        return job->pos <= end && job->pos % 4 == 0 &&
               job->k_pos <= ACCEL_DESC_EX(job, 1, K);
    }
    if (ACCEL_DESC_EX(job, 0, OPCODE) == ACCEL_OP_ATOMIC) {
        return job->pos == 0;
    }
    return job->pos <= end;
}

static bool accel_queue_valid(const AccelQueue *q)
{
    unsigned sq = accel_sq_log2(q), cq = accel_cq_log2(q);
    const uint64_t *bell = q->bell;
    uint32_t submitted = (bell[R_ACCEL_DB_SQ_PI_NR] -
                          bell[R_ACCEL_DB_SQ_CI_NR]) & ((2u << sq) - 1);
    uint32_t completed = (bell[R_ACCEL_DB_CQ_PI_NR] -
                          bell[R_ACCEL_DB_CQ_CI_NR]) & ((2u << cq) - 1);

    return q->state <= ACCEL_Q_STATE_ERROR && q->tid_count <= ACCEL_MAX_TIDS &&
           bell[R_ACCEL_DB_SQ_PI_NR] < 2u << sq &&
           bell[R_ACCEL_DB_SQ_CI_NR] < 2u << sq &&
           bell[R_ACCEL_DB_CQ_PI_NR] < 2u << cq &&
           bell[R_ACCEL_DB_CQ_CI_NR] < 2u << cq &&
           submitted <= 1u << sq && completed <= 1u << cq &&
           accel_job_valid(&q->job);
}

/*
 * The UMMU was loaded before (migration priority), so parked jobs can claim
 * their stalls.  One whose stall is gone was answered: it tries again.
 */
static int accel_post_load(void *opaque, int version_id)
{
    AccelState *s = opaque;

    if (s->next_queue >= s->cfg.queues) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < s->cfg.queues; i++) {
        AccelJob *job = &s->queue[i].job;

        if (!accel_queue_valid(&s->queue[i])) {
            return -EINVAL;
        }
        if (job->parked && !ummu_client_claim_stall(s->client, job->stag)) {
            job->parked = false;
        }
    }
    /* What the command line says holds, not what the stream says. */
    s->regs[R_ACCEL_EID_LO_NR] = s->eid_lo;
    s->regs[R_ACCEL_EID_HI_NR] = s->eid_hi;
    accel_kick(s);
    return 0;
}

const VMStateDescription accel_vmstate = {
    .name = "ummu-accel",
    .version_id = 1,
    .minimum_version_id = 1,
    .post_load = accel_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_PCI_DEVICE(parent_obj, AccelState),
        VMSTATE_MSIX(parent_obj, AccelState),
        VMSTATE_UINT32_EQUAL(cfg.queues, AccelState,
                             "ummu-accel: another number of queues"),
        VMSTATE_UINT64_EQUAL(cfg.vram_size, AccelState,
                             "ummu-accel: another vram-size"),
        VMSTATE_UINT64_ARRAY(regs, AccelState, ACCEL_REG_COUNT),
        VMSTATE_STRUCT_VARRAY_UINT32(queue, AccelState, cfg.queues, 1,
                                     vmstate_accel_queue, AccelQueue),
        VMSTATE_UINT32(next_queue, AccelState),
        VMSTATE_UINT64(cnt.turns, AccelState),
        VMSTATE_UINT64(cnt.turn_bytes_peak, AccelState),
        VMSTATE_UINT64(cnt.jobs_started, AccelState),
        VMSTATE_UINT64(cnt.jobs_failed, AccelState),
        VMSTATE_UINT64(cnt.jobs_aborted, AccelState),
        VMSTATE_UINT64(cnt.parks, AccelState),
        VMSTATE_UINT64(cnt.retries, AccelState),
        VMSTATE_UINT64(cnt.queue_errors, AccelState),
        VMSTATE_UINT64(cnt.interrupts, AccelState),
        VMSTATE_UINT64(cnt.guest_errors, AccelState),
        VMSTATE_END_OF_LIST()
    },
};
