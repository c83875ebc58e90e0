/*
 * ummu-accel: GEMM, GATHER and ATOMIC.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "ummu-accel.h"
#include "trace.h"

/* What one translated element costs of a turn's budget, in bytes. */
#define ACCEL_ELEMENT_COST 64

/* ---- pieces kept over neighbouring elements ------------------------------ */

/*
 * Elements of one operand are usually neighbours: the piece of the last one
 * serves the next ones too.  A window lives only inside one step.
 */
typedef struct AccelWindow {
    AccelOperand op;
    UmmuAccess access;
    AccelPiece piece;
    uint64_t start;                /* offset of piece.host[0] in the operand */
} AccelWindow;

static AccelReach accel_window_at(AccelQueue *q, AccelWindow *w,
                                  uint64_t offset, uint64_t want,
                                  uint64_t need, uint8_t **host)
{
    AccelReach reach;

    if (!w->piece.len || offset < w->start ||
        offset + need > w->start + w->piece.len) {
        accel_release(q, &w->piece, w->piece.len);
        reach = accel_reach(q, &w->op, offset, MAX(want, need), w->access,
                            &w->piece);
        if (reach != ACCEL_REACH_OK) {
            return reach;
        }
        w->start = offset;
        if (w->piece.len < need) {
            /* Aligned elements end with their page: RAM itself ends here. */
            accel_release(q, &w->piece, 0);
            accel_job_fail(&q->job, ACCEL_STATUS_BUS_ERROR, w->op.number, 0,
                           w->op.va + offset);
            return ACCEL_REACH_FAIL;
        }
    }
    *host = w->piece.host + (offset - w->start);
    return ACCEL_REACH_OK;
}

static void accel_window_close(AccelQueue *q, AccelWindow *w)
{
    accel_release(q, &w->piece, w->piece.len);
}

/* ---- GEMM: C[M][N] = A[M][K] * B[K][N], row major, C is F32 -------------- */

typedef struct AccelGemm {
    uint64_t m, n, k;
    unsigned in_size;
} AccelGemm;

static AccelGemm accel_gemm(const AccelJob *job)
{
    return (AccelGemm) {
        .m = ACCEL_DESC_EX(job, 1, M),
        .n = ACCEL_DESC_EX(job, 1, N),
        .k = ACCEL_DESC_EX(job, 1, K),
        .in_size = accel_dtype_size(ACCEL_DESC_EX(job, 0, DTYPE)),
    };
}

int accel_check_gemm(const AccelJob *job)
{
    uint8_t dtype = ACCEL_DESC_EX(job, 0, DTYPE);
    AccelGemm g = accel_gemm(job);
    /* 21-bit dimensions: no product can leave 64 bits. */
    const uint64_t bytes[ACCEL_OPERANDS] = {
        g.m * g.k * g.in_size, g.k * g.n * g.in_size, g.m * g.n * 4,
    };
    const unsigned align[ACCEL_OPERANDS] = { g.in_size, g.in_size, 4 };

    if ((dtype != ACCEL_DTYPE_F32 && dtype != ACCEL_DTYPE_BF16) ||
        job->desc[1] >> 63) {
        return ACCEL_OPERAND_NONE;
    }
    for (unsigned i = 0; i < ACCEL_OPERANDS; i++) {
        uint64_t va = accel_operand(job, i).va;

        if (va % align[i] || !accel_range_ok(va, bytes[i])) {
            return i;
        }
    }
    return ACCEL_CHECK_OK;
}

static double accel_load_float(const uint8_t *p, unsigned size)
{
    union { uint32_t bits; float f; } v;

    v.bits = size == 2 ? (uint32_t)lduw_le_p(p) << 16 : (uint32_t)ldl_le_p(p);
    return v.f;
}

static double accel_double(uint64_t bits)
{
    union { uint64_t bits; double d; } v = { bits };

    return v.d;
}

static uint64_t accel_double_bits(double d)
{
    union { double d; uint64_t bits; } v = { d };

    return v.bits;
}

static uint32_t accel_float_bits(double d)
{
    union { float f; uint32_t bits; } v = { d };

    return v.f != v.f ? 0x7fc00000 : v.bits;
}

/* Read @width elements of B; none of them is used before all are there. */
static AccelReach accel_gemm_load_b(AccelQueue *q, AccelWindow *b, uint64_t at,
                                    unsigned width, unsigned size, double *out)
{
    for (unsigned j = 0; j < width; j++) {
        uint8_t *host;
        AccelReach reach = accel_window_at(q, b, at + j * size,
                                           (width - j) * size, size, &host);

        if (reach != ACCEL_REACH_OK) {
            return reach;
        }
        out[j] = accel_load_float(host, size);
    }
    return ACCEL_REACH_OK;
}

/*
 * acc[j] += A[row][k] * B[k][col + j].  The product of two singles is exact
 * in a double, so the sum has one rounding whether or not the compiler fuses
 * it: every host gives the same bits.
 */
static AccelReach accel_gemm_products(AccelQueue *q, AccelJob *job,
                                      const AccelGemm *g, AccelWindow *a,
                                      AccelWindow *b, uint64_t row,
                                      uint64_t col, unsigned width)
{
    AccelState *s = q->s;
    double row_b[ACCEL_GEMM_TILE];

    for (; job->k_pos < g->k && s->budget; job->k_pos++) {
        uint64_t at_a = (row * g->k + job->k_pos) * g->in_size;
        uint64_t at_b = (job->k_pos * g->n + col) * g->in_size;
        AccelReach reach;
        uint8_t *host;
        double x;

        reach = accel_window_at(q, a, at_a, (g->k - job->k_pos) * g->in_size,
                                g->in_size, &host);
        if (reach != ACCEL_REACH_OK) {
            return reach;
        }
        x = accel_load_float(host, g->in_size);
        reach = accel_gemm_load_b(q, b, at_b, width, g->in_size, row_b);
        if (reach != ACCEL_REACH_OK) {
            return reach;
        }
        for (unsigned j = 0; j < width; j++) {
            job->acc[j] = accel_double_bits(accel_double(job->acc[j]) +
                                            x * row_b[j]);
        }
        s->regs[R_ACCEL_BYTES_READ_NR] += (width + 1) * g->in_size;
        s->budget -= MIN(s->budget, ACCEL_ELEMENT_COST + width * g->in_size);
    }
    return ACCEL_REACH_OK;
}

/* Write the finished sums of one tile; pos advances element by element. */
static AccelReach accel_gemm_store(AccelQueue *q, AccelJob *job, AccelWindow *c,
                                   uint64_t tile_pos, unsigned width)
{
    while (job->pos < tile_pos + width * 4) {
        unsigned j = (job->pos - tile_pos) / 4;
        uint8_t *host;
        AccelReach reach = accel_window_at(q, c, job->pos, (width - j) * 4, 4,
                                           &host);

        if (reach != ACCEL_REACH_OK) {
            return reach;
        }
        stl_le_p(host, accel_float_bits(accel_double(job->acc[j])));
        q->s->regs[R_ACCEL_BYTES_WRITTEN_NR] += 4;
        accel_advance(q->s, job, 4);
    }
    memset(job->acc, 0, sizeof(job->acc));
    job->k_pos = 0;
    return ACCEL_REACH_OK;
}

AccelStep accel_step_gemm(AccelQueue *q, AccelJob *job)
{
    AccelGemm g = accel_gemm(job);
    AccelWindow a = { .op = accel_operand(job, 0) };
    AccelWindow b = { .op = accel_operand(job, 1) };
    AccelWindow c = {
        .op = accel_operand(job, 2),
        .access = UMMU_ACCESS_WRITE,
    };
    AccelReach reach = ACCEL_REACH_OK;

    while (job->pos < g.m * g.n * 4 && q->s->budget) {
        uint64_t element = job->pos / 4, row = element / g.n;
        uint64_t col = QEMU_ALIGN_DOWN(element % g.n, ACCEL_GEMM_TILE);
        unsigned width = MIN(g.n - col, ACCEL_GEMM_TILE);

        reach = accel_gemm_products(q, job, &g, &a, &b, row, col, width);
        if (reach != ACCEL_REACH_OK || job->k_pos < g.k) {
            break;
        }
        reach = accel_gemm_store(q, job, &c, (row * g.n + col) * 4, width);
        if (reach != ACCEL_REACH_OK) {
            break;
        }
    }
    accel_window_close(q, &a);
    accel_window_close(q, &b);
    accel_window_close(q, &c);
    if (reach != ACCEL_REACH_OK) {
        return accel_stopped(reach);
    }
    return job->pos < g.m * g.n * 4 ? ACCEL_STEP_MORE : accel_finish(job);
}

/* ---- GATHER: dst[i] = table[index[i]], indices are U32 ------------------- */

int accel_check_gather(const AccelJob *job)
{
    uint64_t count = ACCEL_DESC_EX(job, 1, LENGTH);
    unsigned size = accel_dtype_size(ACCEL_DESC_EX(job, 0, DTYPE));
    const unsigned align[ACCEL_OPERANDS] = { size, 4, size };

    if (!size) {
        return ACCEL_OPERAND_NONE;
    }
    for (unsigned i = 0; i < ACCEL_OPERANDS; i++) {
        uint64_t va = accel_operand(job, i).va;

        if (va % align[i]) {
            return i;
        }
        /* The table's extent is not known: checked element by element. */
        if (i > 0 && (count > UINT64_MAX / align[i] ||
                      !accel_range_ok(va, count * align[i]))) {
            return i;
        }
    }
    return ACCEL_CHECK_OK;
}

static AccelReach accel_gather_one(AccelQueue *q, AccelJob *job, unsigned size,
                                   AccelWindow *table, AccelWindow *list,
                                   AccelWindow *dst)
{
    uint64_t left = ACCEL_DESC_EX(job, 1, LENGTH) - job->pos;
    uint64_t ahead = MIN(left, 4096);
    uint8_t *from, *to, *index;
    uint64_t offset;
    AccelReach reach;

    reach = accel_window_at(q, list, job->pos * 4, ahead * 4, 4, &index);
    if (reach != ACCEL_REACH_OK) {
        return reach;
    }
    offset = (uint64_t)(uint32_t)ldl_le_p(index) * size;
    if (!accel_range_ok(table->op.va, offset + size)) {
        accel_job_fail(job, ACCEL_STATUS_BAD_DESC, 0, 0, table->op.va);
        return ACCEL_REACH_FAIL;
    }
    reach = accel_window_at(q, table, offset, size, size, &from);
    if (reach != ACCEL_REACH_OK) {
        return reach;
    }
    reach = accel_window_at(q, dst, job->pos * size, ahead * size, size, &to);
    if (reach != ACCEL_REACH_OK) {
        return reach;
    }
    memmove(to, from, size);
    return ACCEL_REACH_OK;
}

AccelStep accel_step_gather(AccelQueue *q, AccelJob *job)
{
    unsigned size = accel_dtype_size(ACCEL_DESC_EX(job, 0, DTYPE));
    AccelWindow table = { .op = accel_operand(job, 0) };
    AccelWindow list = { .op = accel_operand(job, 1) };
    AccelWindow dst = { .op = accel_operand(job, 2),
                        .access = UMMU_ACCESS_WRITE };
    uint64_t count = ACCEL_DESC_EX(job, 1, LENGTH);
    AccelReach reach = ACCEL_REACH_OK;
    AccelState *s = q->s;

    while (job->pos < count && s->budget) {
        reach = accel_gather_one(q, job, size, &table, &list, &dst);
        if (reach != ACCEL_REACH_OK) {
            break;
        }
        job->pos++;
        s->budget -= MIN(s->budget, ACCEL_ELEMENT_COST);
        s->regs[R_ACCEL_BYTES_READ_NR] += size + 4;
        s->regs[R_ACCEL_BYTES_WRITTEN_NR] += size;
    }
    accel_window_close(q, &table);
    accel_window_close(q, &list);
    accel_window_close(q, &dst);
    if (reach != ACCEL_REACH_OK) {
        return accel_stopped(reach);
    }
    return job->pos < count ? ACCEL_STEP_MORE : accel_finish(job);
}

/* ---- ATOMIC -------------------------------------------------------------- */

/* Width by LENGTH, or by DTYPE when LENGTH is 0; 0: neither fits. */
static unsigned accel_atomic_size(const AccelJob *job)
{
    uint64_t length = ACCEL_DESC_EX(job, 1, LENGTH);
    uint8_t dtype = ACCEL_DESC_EX(job, 0, DTYPE);
    unsigned size = length ? MIN(length, 16) : accel_dtype_size(dtype);

    if ((size != 4 && size != 8) || dtype == ACCEL_DTYPE_F32 ||
        dtype == ACCEL_DTYPE_BF16) {
        return 0;
    }
    return dtype == ACCEL_DTYPE_NONE || accel_dtype_size(dtype) == size ?
           size : 0;
}

int accel_check_atomic(const AccelJob *job)
{
    unsigned size = accel_atomic_size(job);

    if (!size || ACCEL_DESC_EX(job, 0, SUBOP) > ACCEL_ATOMIC_XOR) {
        return ACCEL_OPERAND_NONE;
    }
    return accel_operand(job, 0).va % size ? 0 : ACCEL_CHECK_OK;
}

static uint64_t accel_atomic_new(const AccelJob *job, uint64_t old,
                                 uint64_t mask)
{
    uint64_t value = ACCEL_DESC_EX(job, 4, VALUE) & mask;

    switch (ACCEL_DESC_EX(job, 0, SUBOP)) {
    case ACCEL_ATOMIC_ADD:
        return (old + value) & mask;
    case ACCEL_ATOMIC_CAS:
        return old == (ACCEL_DESC_EX(job, 6, COMPARE) & mask) ? value : old;
    case ACCEL_ATOMIC_AND:
        return old & value;
    case ACCEL_ATOMIC_OR:
        return old | value;
    case ACCEL_ATOMIC_XOR:
        return old ^ value;
    default:
        return value;              /* swap; others were refused by the check */
    }
}

/* One indivisible update against vCPU threads; returns the old value. */
static uint64_t accel_atomic_update(const AccelJob *job, void *host,
                                    unsigned size)
{
    if (size == 4) {
        uint32_t *p = host, seen, old = qatomic_read(p);

        while (true) {
            uint64_t next = accel_atomic_new(job, le32_to_cpu(old), UINT32_MAX);

            seen = qatomic_cmpxchg(p, old, cpu_to_le32(next));
            if (seen == old) {
                return le32_to_cpu(old);
            }
            old = seen;
        }
    } else {
        uint64_t *p = host, seen, old = qatomic_read__nocheck(p);

        while (true) {
            uint64_t next = accel_atomic_new(job, le64_to_cpu(old), UINT64_MAX);

            seen = qatomic_cmpxchg__nocheck(p, old, cpu_to_le64(next));
            if (seen == old) {
                return le64_to_cpu(old);
            }
            old = seen;
        }
    }
}

AccelStep accel_step_atomic(AccelQueue *q, AccelJob *job)
{
    AccelOperand target = accel_operand(job, 0);
    unsigned size = accel_atomic_size(job);
    AccelPiece piece;
    AccelReach reach = accel_reach(q, &target, 0, size, UMMU_ACCESS_ATOMIC,
                                   &piece);

    if (reach != ACCEL_REACH_OK) {
        return accel_stopped(reach);
    }
    if (piece.len < size || !QEMU_PTR_IS_ALIGNED(piece.host, size)) {
        accel_release(q, &piece, 0);
        accel_job_fail(job, ACCEL_STATUS_BUS_ERROR, 0, 0, target.va);
        return ACCEL_STEP_DONE;
    }
    job->result = accel_atomic_update(job, piece.host, size);
    accel_release(q, &piece, size);
    q->s->regs[R_ACCEL_BYTES_READ_NR] += size;
    q->s->regs[R_ACCEL_BYTES_WRITTEN_NR] += size;
    accel_advance(q->s, job, size);
    return accel_finish(job);
}
