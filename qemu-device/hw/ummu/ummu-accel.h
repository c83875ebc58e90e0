/*
 * ummu-accel: an accelerator whose DMA is resolved by a UMMU; state and the
 * interfaces between its files.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * DOC: parts
 *
 *   ummu-accel.c          QOM, PCI function, properties, reset
 *   ummu-accel-regs.c     registers and doorbell pages
 *   ummu-accel-queue.c    engine: scheduling, rings, parking, completions
 *   ummu-accel-access.c   one operand piece: translate, host pointer
 *   ummu-accel-ops.c      COPY, FILL, COMPARE, CRC32C, ADD
 *   ummu-accel-compute.c  GEMM, GATHER, ATOMIC
 *   ummu-accel-vmstate.c  saved state
 *
 * DOC: locking
 *
 * One lock, the BQL: register accesses, the engine's timer, stall answers and
 * QOM accessors all hold it.  A translated piece is used before the BQL is
 * given up and before any command can run, so no invalidation can come between
 * the check and the access.
 *
 * DOC: engine
 *
 * A queue has one job at a time, its jobs run in order (FENCE holds by that).
 * Work is done by a timer on QEMU_CLOCK_VIRTUAL in turns of at most turn-bytes;
 * queues take slices of a turn in rotation.  A job keeps its position in units
 * that have fully happened, so a fault, a park, a save or an abort between two
 * slices loses and repeats nothing.
 *
 * DOC: copy order
 *
 * COPY behaves as if bytes were copied one by one in ascending order, whatever
 * the pieces.  For a destination above an overlapping source this repeats the
 * first bytes, as on engines that stream.
 */
#ifndef HW_UMMU_ACCEL_H
#define HW_UMMU_ACCEL_H

#include "hw/pci/pci_device.h"
#include "qemu/timer.h"
#include "migration/vmstate.h"
#include "ummu.h"
#include "accel-layout.h"

#define TYPE_UMMU_ACCEL "ummu-accel"
OBJECT_DECLARE_SIMPLE_TYPE(AccelState, UMMU_ACCEL)

#define ACCEL_QUEUES_MAX     64
#define ACCEL_MAX_LOG2SIZE   15   /* SQ_INDEX of a completion holds 16 bits */
#define ACCEL_MAX_TIDS       256
#define ACCEL_OPERANDS       3
#define ACCEL_OPERAND_NONE   15
#define ACCEL_GEMM_TILE      64   /* columns of C computed together */
#define ACCEL_COMPARE_EQUAL  UINT64_MAX

/* Register numbers: one per row of the generated lists. */
#define ACCEL_REG_NUMBER(name, ...) R_##name##_NR,
enum { ACCEL_REG_LIST(ACCEL_REG_NUMBER) ACCEL_REG_COUNT };
enum { ACCEL_QUEUE_BANK_REG_LIST(ACCEL_REG_NUMBER) ACCEL_Q_REG_COUNT };
enum { ACCEL_DOORBELL_BANK_REG_LIST(ACCEL_REG_NUMBER) ACCEL_DB_REG_COUNT };
#undef ACCEL_REG_NUMBER

typedef enum AccelPhase {
    ACCEL_PHASE_IDLE,       /* no job; the next descriptor is not read yet */
    ACCEL_PHASE_RUN,        /* descriptor read, work under way */
    ACCEL_PHASE_COMPLETE,   /* work over, completion not written yet */
    ACCEL_PHASES,
} AccelPhase;

typedef struct AccelOperand {
    uint64_t va;
    uint32_t tid, token;
    bool token_valid, wire;
    uint8_t number;
} AccelOperand;

typedef struct AccelJob {
    uint8_t phase;                 /* AccelPhase */
    uint64_t desc[ACCEL_DESC_WORDS];
    uint32_t sq_index;             /* with wrap bit */
    bool checked;                  /* descriptor passed its checks */
    /* position: bytes, or elements (GATHER), finished */
    uint64_t pos;
    uint64_t result;
    /* outcome */
    uint8_t status, operand, event;
    uint64_t fault_addr;
    /* GEMM: the tile in work, sums over k_pos products so far */
    uint64_t k_pos;
    uint64_t acc[ACCEL_GEMM_TILE]; /* doubles, as bits */
    /* waiting */
    bool parked;
    uint16_t stag;
    uint32_t retries;
    int64_t wake_ns;               /* not before this virtual time */
} AccelJob;

typedef struct AccelQueue {
    AccelState *s;
    uint32_t number;
    uint64_t regs[ACCEL_Q_REG_COUNT];
    uint64_t bell[ACCEL_DB_REG_COUNT];
    uint8_t state;                 /* ACCEL_Q_STATE_* */
    uint8_t event;                 /* code behind STATE error */
    uint32_t tids[ACCEL_MAX_TIDS];
    uint32_t tid_count;
    AccelJob job;
} AccelQueue;

/* X(member, QOM name): totals since reset, readable as QOM properties. */
#define ACCEL_COUNTER_LIST(X)                       \
    X(turns, "turns")                               \
    X(turn_bytes_peak, "turn-bytes-peak")           \
    X(jobs_started, "jobs-started")                 \
    X(jobs_failed, "jobs-failed")                   \
    X(jobs_aborted, "jobs-aborted")                 \
    X(parks, "parks")                               \
    X(retries, "retries")                           \
    X(queue_errors, "queue-errors")                 \
    X(interrupts, "interrupts")                     \
    X(guest_errors, "guest-errors")

typedef struct AccelCounters {
#define ACCEL_COUNTER_MEMBER(member, name) uint64_t member;
    ACCEL_COUNTER_LIST(ACCEL_COUNTER_MEMBER)
#undef ACCEL_COUNTER_MEMBER
} AccelCounters;

typedef struct AccelConfig {
    char *eid;
    uint64_t vram_size;
    uint32_t queues;
    uint32_t turn_bytes;
    uint32_t retry_limit;
    /* cost model, 0 = off */
    uint32_t link_latency_ns, bytes_per_us, walk_step_ns;
} AccelConfig;

struct AccelState {
    PCIDevice parent_obj;

    AccelConfig cfg;
    Object *ummu_obj;              /* link */
    UmmuState *ummu;
    UmmuClient *client;
    uint64_t eid_lo, eid_hi;

    MemoryRegion frame, vram;
    QEMUTimer *timer;
    uint64_t regs[ACCEL_REG_COUNT];
    AccelQueue queue[ACCEL_QUEUES_MAX];
    uint32_t next_queue;           /* who is first in the next turn */
    uint64_t irq_pending;          /* vectors to send when state is settled */
    bool in_engine;                /* a turn is running */

    /* of the turn under way */
    uint64_t budget;               /* bytes left */
    uint64_t cost_ns;              /* cost of the slice under way */
    AccelCounters cnt;
    uint8_t sink[4096];            /* what ignored accesses use instead */
};

/* How one attempt to reach an operand ended. */
typedef enum AccelReach {
    ACCEL_REACH_OK,
    ACCEL_REACH_WAIT,              /* parked, backing off: keeps its place */
    ACCEL_REACH_FAIL,              /* status, event, fault_addr are set */
} AccelReach;

/* How one slice of a job ended. */
typedef enum AccelStep {
    ACCEL_STEP_MORE,               /* budget used up or waiting */
    ACCEL_STEP_DONE,               /* job->status says how */
} AccelStep;

typedef struct AccelPiece {
    uint8_t *host;
    uint64_t pa, len;
    bool write, mapped;
} AccelPiece;

#define ACCEL_STREAM_PARTS 15

/* An operand that is walked through from its start to its end. */
typedef struct AccelStream {
    AccelOperand op;
    UmmuAccess access;
    AccelPiece cur;                /* what is left of the part in use */
    unsigned next;                 /* part behind it */
    UmmuPieces more;
    UmmuPiece part[ACCEL_STREAM_PARTS];
} AccelStream;

/* ---- ummu-accel.c ---- */
const char *accel_id(AccelState *s);
void accel_guest_error(AccelState *s, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
/*
 * Interrupts are collected and sent last: the message address is the guest's
 * choice and may lead back into our own registers.
 */
void accel_interrupt(AccelState *s, uint32_t vector);
void accel_send_interrupts(AccelState *s);
uint64_t accel_walk_steps(AccelState *s);

/* ---- ummu-accel-regs.c ---- */
extern const MemoryRegionOps accel_frame_ops;
void accel_regs_reset(AccelState *s);
uint64_t accel_frame_size(const AccelState *s);

/* ---- ummu-accel-queue.c ---- */
void accel_engine_timer(void *opaque);
void accel_kick(AccelState *s);
void accel_queue_start(AccelQueue *q);
/* Ends the job, if any, without a completion and forgets the bound TIDs. */
void accel_queue_stop(AccelQueue *q);
void accel_queue_error(AccelQueue *q, uint8_t event, uint64_t va);
void accel_queue_doorbell(AccelQueue *q, uint32_t pi);
void accel_queue_cq_consumed(AccelQueue *q, uint32_t ci);
void accel_queue_bind(AccelQueue *q, uint32_t tid, bool add);
bool accel_queue_busy(const AccelQueue *q);
bool accel_queue_uses(const AccelQueue *q, uint32_t tid);
void accel_stall_done(void *opaque, uint16_t stag, bool retry);
unsigned accel_sq_log2(const AccelQueue *q);
unsigned accel_cq_log2(const AccelQueue *q);

/* ---- ummu-accel-access.c ---- */
AccelReach accel_reach(AccelQueue *q, const AccelOperand *op, uint64_t offset,
                       uint64_t len, UmmuAccess access, AccelPiece *piece);
/* Give a piece back; @done bytes of it were accessed. */
void accel_release(AccelQueue *q, AccelPiece *piece, uint64_t done);
/*
 * Streams: one question to the UMMU for many pages.  Valid within one step.
 * _reach makes st->cur the bytes at @offset (at most @len), _used takes some of
 * them.
 */
void accel_stream_init(AccelStream *st, AccelOperand op, UmmuAccess access);
AccelReach accel_stream_reach(AccelQueue *q, AccelStream *st, uint64_t offset,
                              uint64_t len);
void accel_stream_used(AccelQueue *q, AccelStream *st, uint64_t len);
AccelReach accel_ring_read(AccelQueue *q, uint64_t va, void *buf, uint64_t len);
AccelReach accel_ring_write(AccelQueue *q, uint64_t va, const void *buf,
                            uint64_t len);
AccelOperand accel_operand(const AccelJob *job, unsigned number);
void accel_job_fail(AccelJob *job, uint8_t status, unsigned operand,
                    uint8_t event, uint64_t addr);

/* ---- ummu-accel-ops.c, ummu-accel-compute.c ---- */
typedef struct AccelOpInfo {
    const char *name;
    uint8_t operands;              /* mask of operand numbers used */
    /* NULL, or a check: the operand to blame (or NONE), or ACCEL_CHECK_OK */
    int (*check)(const AccelJob *job);
    AccelStep (*step)(AccelQueue *q, AccelJob *job);
} AccelOpInfo;

#define ACCEL_CHECK_OK (-1)

/* NULL for an opcode that is not implemented. */
const AccelOpInfo *accel_op_info(uint8_t opcode);
uint32_t accel_op_mask(void);
void accel_ops_init(void);
unsigned accel_dtype_size(uint8_t dtype);
/* True if [va, va + len) does not wrap around. */
bool accel_range_ok(uint64_t va, uint64_t len);

/* Helpers of the steps: success, a reach that did not succeed, progress. */
AccelStep accel_finish(AccelJob *job);
AccelStep accel_stopped(AccelReach reach);
void accel_advance(AccelState *s, AccelJob *job, uint64_t bytes);

int accel_check_gemm(const AccelJob *job);
AccelStep accel_step_gemm(AccelQueue *q, AccelJob *job);
int accel_check_gather(const AccelJob *job);
AccelStep accel_step_gather(AccelQueue *q, AccelJob *job);
int accel_check_atomic(const AccelJob *job);
AccelStep accel_step_atomic(AccelQueue *q, AccelJob *job);

#define ACCEL_DESC_EX(job, word, field) \
    FIELD_EX64((job)->desc[word], ACCEL_DESC_W##word, field)

extern const VMStateDescription accel_vmstate;

#endif
