/*
 * ummu-accel: reaching one piece of an operand or of a ring.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "exec/memory.h"
#include "ummu-accel.h"
#include "trace.h"

/* Longest back-off between two tries of an access the UMMU could not keep. */
#define ACCEL_BACKOFF_FIRST_NS  1000
#define ACCEL_BACKOFF_MAX_SHIFT 10

void accel_job_fail(AccelJob *job, uint8_t status, unsigned operand,
                    uint8_t event, uint64_t addr)
{
    job->status = status;
    job->operand = operand;
    job->event = event;
    job->fault_addr = addr;
}

AccelOperand accel_operand(const AccelJob *job, unsigned number)
{
    /* The three operands have the same layout two words apart. */
    uint64_t attr = job->desc[3 + 2 * number];

    return (AccelOperand) {
        .va = job->desc[2 + 2 * number],
        .tid = FIELD_EX64(attr, ACCEL_DESC_W3, OP0_TID),
        .token = FIELD_EX64(attr, ACCEL_DESC_W3, OP0_TOKEN),
        .token_valid = FIELD_EX64(attr, ACCEL_DESC_W3, OP0_TV),
        .wire = FIELD_EX64(attr, ACCEL_DESC_W3, OP0_WIRE),
        .number = number,
    };
}

static AccelReach accel_back_off(AccelQueue *q, const AccelOperand *op,
                                 const UmmuResult *res)
{
    AccelJob *job = &q->job;
    unsigned shift = MIN(job->retries, ACCEL_BACKOFF_MAX_SHIFT);

    q->s->cnt.retries++;
    if (job->retries >= q->s->cfg.retry_limit) {
        accel_job_fail(job, ACCEL_STATUS_TIMEOUT, op->number, res->event,
                       res->fault_addr);
        return ACCEL_REACH_FAIL;
    }
    job->retries++;
    job->wake_ns = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) +
                   ((int64_t)ACCEL_BACKOFF_FIRST_NS << shift);
    trace_ummu_accel_back_off(accel_id(q->s), q->number, res->fault_addr,
                              job->retries);
    return ACCEL_REACH_WAIT;
}

static AccelReach accel_park(AccelQueue *q, const AccelOperand *op,
                             const UmmuResult *res)
{
    AccelJob *job = &q->job;

    /* Kept for the case that the answer is "abort". */
    accel_job_fail(job, ACCEL_STATUS_NONE, op->number, res->event,
                   res->fault_addr);
    job->parked = true;
    job->stag = res->stag;
    q->s->cnt.parks++;
    trace_ummu_accel_park(accel_id(q->s), q->number, res->stag,
                          res->fault_addr);
    return ACCEL_REACH_WAIT;
}

/*
 * Turn a physical piece into a host pointer.  Only RAM is ever touched: device
 * registers behind an operand would let a job re-enter a model.
 */
static bool accel_map(AccelState *s, uint64_t pa, AccelPiece *piece)
{
    piece->host = ummu_ram_map(s->ummu, pa, &piece->len, piece->write);
    piece->pa = pa;
    piece->mapped = piece->host != NULL;
    return piece->mapped;
}

/* @more: room for the parts behind @piece, NULL if they are not wanted. */
static AccelReach accel_reach_parts(AccelQueue *q, const AccelOperand *op,
                                    uint64_t offset, uint64_t len,
                                    UmmuAccess access, AccelPiece *piece,
                                    UmmuPieces *more)
{
    AccelState *s = q->s;
    uint64_t steps = s->cfg.walk_step_ns ? accel_walk_steps(s) : 0;
    UmmuRequest req = {
        .eid_lo = s->eid_lo,
        .eid_hi = s->eid_hi,
        .tid = op->tid,
        .token = op->token,
        .token_valid = op->token_valid,
        .e_bit = !op->wire,
        .access = access,
        .uba = op->va + offset,
        .len = len,
    };
    UmmuResult res = { 0 };

    *piece = (AccelPiece) { .write = access != UMMU_ACCESS_READ };
    if (more) {
        ummu_translate_parts(s->client, &req, &res, more);
    } else {
        ummu_translate(s->client, &req, &res);
    }
    s->cost_ns += s->cfg.link_latency_ns;
    if (s->cfg.walk_step_ns) {
        s->cost_ns += (accel_walk_steps(s) - steps) * s->cfg.walk_step_ns;
    }
    trace_ummu_accel_reach(accel_id(s), q->number, op->number, req.uba, len,
                           access, res.status, res.event, res.pa, res.len);

    switch (res.status) {
    case UMMU_RES_OK:
        q->job.retries = 0;
        piece->len = MIN(res.len, len);
        if (accel_map(s, res.pa, piece)) {
            if (more && piece->len < res.len) {
                more->n = 0;    /* RAM ends inside: what follows is elsewhere */
            }
            return ACCEL_REACH_OK;
        }
        accel_job_fail(&q->job, ACCEL_STATUS_BUS_ERROR, op->number, 0, req.uba);
        return ACCEL_REACH_FAIL;
    case UMMU_RES_RAZWI:
        q->job.retries = 0;
        memset(s->sink, 0, sizeof(s->sink));
        piece->host = s->sink;
        piece->len = MIN(MIN(res.len, len), sizeof(s->sink));
        return ACCEL_REACH_OK;
    case UMMU_RES_STALLED:
        return accel_park(q, op, &res);
    case UMMU_RES_RETRY:
        return accel_back_off(q, op, &res);
    default:
        accel_job_fail(&q->job, ACCEL_STATUS_FAULT, op->number, res.event,
                       res.fault_addr);
        return ACCEL_REACH_FAIL;
    }
}

void accel_release(AccelQueue *q, AccelPiece *piece, uint64_t done)
{
    if (piece->mapped && piece->write) {
        ummu_ram_written(q->s->ummu, piece->pa, done);
    }
    piece->host = NULL;
    piece->len = 0;
    piece->mapped = false;
}

AccelReach accel_reach(AccelQueue *q, const AccelOperand *op, uint64_t offset,
                       uint64_t len, UmmuAccess access, AccelPiece *piece)
{
    return accel_reach_parts(q, op, offset, len, access, piece, NULL);
}

/* ---- streams ------------------------------------------------------------ */

void accel_stream_init(AccelStream *st, AccelOperand op, UmmuAccess access)
{
    st->op = op;
    st->access = access;
    st->cur = (AccelPiece) { 0 };
    st->next = 0;
    st->more = (UmmuPieces) { .max = ACCEL_STREAM_PARTS, .piece = st->part };
}

AccelReach accel_stream_reach(AccelQueue *q, AccelStream *st, uint64_t offset,
                              uint64_t len)
{
    UmmuPiece *part = &st->part[st->next];

    if (st->cur.len) {
        return ACCEL_REACH_OK;
    }
    if (st->next == st->more.n) {
        st->next = st->more.n = 0;
        return accel_reach_parts(q, &st->op, offset, len, st->access, &st->cur,
                                 &st->more);
    }
    st->cur = (AccelPiece) {
        .write = st->access != UMMU_ACCESS_READ, .len = part->len,
    };
    q->s->cost_ns += q->s->cfg.link_latency_ns;
    if (!accel_map(q->s, part->pa, &st->cur)) {
        st->cur.len = 0;
        accel_job_fail(&q->job, ACCEL_STATUS_BUS_ERROR, st->op.number, 0,
                       st->op.va + offset);
        return ACCEL_REACH_FAIL;
    }
    /* RAM may end inside a part. */
    part->pa += st->cur.len;
    part->len -= st->cur.len;
    st->next += !part->len;
    return ACCEL_REACH_OK;
}

void accel_stream_used(AccelQueue *q, AccelStream *st, uint64_t len)
{
    if (st->cur.mapped && st->cur.write) {
        ummu_ram_written(q->s->ummu, st->cur.pa, len);
    }
    st->cur.host += len;
    st->cur.pa += len;
    st->cur.len -= len;
}

/* ---- rings -------------------------------------------------------------- */

static AccelOperand accel_ring_operand(const AccelQueue *q, uint64_t va)
{
    return (AccelOperand) {
        .va = va,
        .tid = q->regs[R_ACCEL_Q_TID_NR],
        .token = q->regs[R_ACCEL_Q_TOKEN_NR],
        .token_valid = FIELD_EX32(q->regs[R_ACCEL_Q_FLAGS_NR], ACCEL_Q_FLAGS,
                                  TV),
        .number = ACCEL_OPERAND_NONE,
    };
}

/*
 * Ring entries never cross a page (base and size are aligned to the entry), so
 * one piece is the whole entry; a shorter one means RAM that ends inside it.
 */
static AccelReach accel_ring_access(AccelQueue *q, uint64_t va, void *in,
                                    const void *out, uint64_t len)
{
    AccelOperand op = accel_ring_operand(q, va);
    AccelPiece piece;
    AccelReach reach = accel_reach(q, &op, 0, len,
                                   in ? UMMU_ACCESS_READ : UMMU_ACCESS_WRITE,
                                   &piece);

    if (reach != ACCEL_REACH_OK) {
        return reach;
    }
    if (piece.len < len) {
        accel_release(q, &piece, 0);
        accel_job_fail(&q->job, ACCEL_STATUS_BUS_ERROR, op.number, 0, va);
        return ACCEL_REACH_FAIL;
    }
    if (in) {
        memcpy(in, piece.host, len);
    } else {
        memcpy(piece.host, out, len);
    }
    accel_release(q, &piece, len);
    return ACCEL_REACH_OK;
}

AccelReach accel_ring_read(AccelQueue *q, uint64_t va, void *buf, uint64_t len)
{
    return accel_ring_access(q, va, buf, NULL, len);
}

AccelReach accel_ring_write(AccelQueue *q, uint64_t va, const void *buf,
                            uint64_t len)
{
    return accel_ring_access(q, va, NULL, buf, len);
}
