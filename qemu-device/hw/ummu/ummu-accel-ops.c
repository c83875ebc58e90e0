/*
 * ummu-accel: operations that stream over their operands.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "host/cpuinfo.h"
#ifdef CPUINFO_SSE2
#include <emmintrin.h>             /* part of every 64-bit x86 host */
#endif
#include "ummu-accel.h"
#include "trace.h"

#define ACCEL_OP0 (1 << 0)
#define ACCEL_OP1 (1 << 1)
#define ACCEL_OP2 (1 << 2)

#define ACCEL_CRC32C_POLY 0x82f63b78u   /* Castagnoli, reflected */

/* Eight tables, so that eight bytes are taken in at once ("slicing by 8"). */
static uint32_t accel_crc_table[8][256];

bool accel_range_ok(uint64_t va, uint64_t len)
{
    return !len || va + (len - 1) >= va;
}

unsigned accel_dtype_size(uint8_t dtype)
{
    switch (dtype) {
    case ACCEL_DTYPE_BF16:
        return 2;
    case ACCEL_DTYPE_I32:
    case ACCEL_DTYPE_F32:
    case ACCEL_DTYPE_U32:
        return 4;
    case ACCEL_DTYPE_U64:
        return 8;
    default:
        return 0;
    }
}

void accel_ops_init(void)
{
    for (unsigned i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (unsigned bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ ACCEL_CRC32C_POLY : crc >> 1;
        }
        accel_crc_table[0][i] = crc;
    }
    for (unsigned i = 0; i < 256; i++) {
        for (unsigned t = 1; t < 8; t++) {
            uint32_t prev = accel_crc_table[t - 1][i];

            accel_crc_table[t][i] = accel_crc_table[0][prev & 0xff] ^ prev >> 8;
        }
    }
}

static uint32_t accel_crc32c(uint32_t crc, const uint8_t *p, uint64_t len)
{
    for (; len >= 8; len -= 8, p += 8) {
        uint64_t v = ldq_le_p(p) ^ crc;

        crc = 0;
        for (unsigned byte = 0; byte < 8; byte++) {
            crc ^= accel_crc_table[7 - byte][v >> (8 * byte) & 0xff];
        }
    }
    while (len--) {
        crc = accel_crc_table[0][(crc ^ *p++) & 0xff] ^ crc >> 8;
    }
    return crc;
}

/* Length of the next slice of a streaming job; 0 = nothing left to do. */
static uint64_t accel_slice(AccelState *s, const AccelJob *job)
{
    return MIN(ACCEL_DESC_EX(job, 1, LENGTH) - job->pos, s->budget);
}

void accel_advance(AccelState *s, AccelJob *job, uint64_t bytes)
{
    job->pos += bytes;
    s->budget -= MIN(bytes, s->budget);
}

AccelStep accel_finish(AccelJob *job)
{
    job->status = ACCEL_STATUS_OK;
    job->operand = ACCEL_OPERAND_NONE;
    job->event = 0;
    job->fault_addr = 0;
    return ACCEL_STEP_DONE;
}

AccelStep accel_stopped(AccelReach reach)
{
    return reach == ACCEL_REACH_FAIL ? ACCEL_STEP_DONE : ACCEL_STEP_MORE;
}

static bool accel_at_end(const AccelJob *job)
{
    return job->pos == ACCEL_DESC_EX(job, 1, LENGTH);
}

static int accel_check_ranges(const AccelJob *job, unsigned mask)
{
    for (unsigned i = 0; i < ACCEL_OPERANDS; i++) {
        if (mask & 1 << i &&
            !accel_range_ok(accel_operand(job, i).va,
                            ACCEL_DESC_EX(job, 1, LENGTH))) {
            return i;
        }
    }
    return ACCEL_CHECK_OK;
}

static int accel_check_01(const AccelJob *job)
{
    return accel_check_ranges(job, ACCEL_OP0 | ACCEL_OP1);
}

static int accel_check_0(const AccelJob *job)
{
    return accel_check_ranges(job, ACCEL_OP0);
}

static int accel_check_1(const AccelJob *job)
{
    return accel_check_ranges(job, ACCEL_OP1);
}

static int accel_check_add(const AccelJob *job)
{
    uint8_t dtype = ACCEL_DESC_EX(job, 0, DTYPE);
    unsigned size = accel_dtype_size(dtype);

    if (!size || dtype == ACCEL_DTYPE_BF16 ||
        ACCEL_DESC_EX(job, 1, LENGTH) % size) {
        return ACCEL_OPERAND_NONE;
    }
    for (unsigned i = 0; i < 2; i++) {
        if (accel_operand(job, i).va % size) {
            return i;
        }
    }
    return accel_check_01(job);
}

static AccelStep accel_step_none(AccelQueue *q, AccelJob *job)
{
    return accel_finish(job);
}

/* Bytes one by one in ascending order, also where the two pieces overlap. */
static void accel_copy_forward(uint8_t *dst, const uint8_t *src, uint64_t len)
{
    uintptr_t gap = (uintptr_t)dst - (uintptr_t)src;
    uint64_t done = 0;

    if (gap >= len) {
        memmove(dst, src, len);   /* apart, or destination below source */
        return;
    }
    if (!gap) {
        return;
    }
    /* [src, dst + done) repeats its first gap bytes; done: a multiple. */
    while (done < len) {
        uint64_t part = MIN(len - done, gap + done);

        memcpy(dst + done, src, part);
        done += part;
    }
}

/*
 * A copy that is larger than the host's caches is quicker past them: its pages
 * would be read in only to be overwritten.  SSE2 is of the host, not the guest.
 */
#define ACCEL_LARGE_COPY (2 * MiB)

static void accel_copy_large(uint8_t *dst, const uint8_t *src, uint64_t len)
{
#ifdef CPUINFO_SSE2
    uint64_t head = MIN(len, -(uintptr_t)dst % 16);

    memcpy(dst, src, head);
    for (dst += head, src += head, len -= head; len >= 64;
         dst += 64, src += 64, len -= 64) {
        for (unsigned i = 0; i < 64; i += 16) {
            _mm_stream_si128((__m128i *)(dst + i),
                             _mm_loadu_si128((const __m128i *)(src + i)));
        }
    }
    _mm_sfence();                  /* before the completion, as other stores */
#endif
    memcpy(dst, src, len);
}

static void accel_copy_piece(const AccelJob *job, uint8_t *dst,
                             const uint8_t *src, uint64_t len)
{
    bool apart = dst + len <= src || src + len <= dst;

    if (apart && ACCEL_DESC_EX(job, 1, LENGTH) >= ACCEL_LARGE_COPY) {
        accel_copy_large(dst, src, len);
    } else {
        accel_copy_forward(dst, src, len);
    }
}

static AccelStep accel_step_copy(AccelQueue *q, AccelJob *job)
{
    AccelStream src QEMU_UNINITIALIZED, dst QEMU_UNINITIALIZED;
    AccelState *s = q->s;

    accel_stream_init(&src, accel_operand(job, 0), UMMU_ACCESS_READ);
    accel_stream_init(&dst, accel_operand(job, 1), UMMU_ACCESS_WRITE);
    while (!accel_at_end(job)) {
        uint64_t len = accel_slice(s, job);
        AccelReach reach;

        if (!len) {
            return ACCEL_STEP_MORE;
        }
        reach = accel_stream_reach(q, &src, job->pos, len);
        if (reach == ACCEL_REACH_OK) {
            reach = accel_stream_reach(q, &dst, job->pos, len);
        }
        if (reach != ACCEL_REACH_OK) {
            return accel_stopped(reach);
        }
        len = MIN(len, MIN(src.cur.len, dst.cur.len));
        accel_copy_piece(job, dst.cur.host, src.cur.host, len);
        accel_stream_used(q, &src, len);
        accel_stream_used(q, &dst, len);
        s->regs[R_ACCEL_BYTES_READ_NR] += len;
        s->regs[R_ACCEL_BYTES_WRITTEN_NR] += len;
        accel_advance(s, job, len);
    }
    return accel_finish(job);
}

/* @phase: how many bytes of the pattern the job has already written, mod 8. */
static void accel_fill(uint8_t *dst, uint64_t pattern, unsigned phase,
                       uint64_t len)
{
    uint8_t bytes[8];
    uint64_t done = MIN(len, sizeof(bytes));

    for (unsigned i = 0; i < sizeof(bytes); i++) {
        bytes[i] = pattern >> (8 * ((phase + i) % 8));
    }
    memcpy(dst, bytes, done);
    while (done < len) {
        uint64_t part = MIN(len - done, MIN(done, 4096));

        memcpy(dst + done, dst, part);
        done += part;
    }
}

static AccelStep accel_step_fill(AccelQueue *q, AccelJob *job)
{
    AccelOperand to = accel_operand(job, 1);
    AccelState *s = q->s;

    while (!accel_at_end(job)) {
        uint64_t len = accel_slice(s, job);
        AccelPiece dst;
        AccelReach reach;

        if (!len) {
            return ACCEL_STEP_MORE;
        }
        reach = accel_reach(q, &to, job->pos, len, UMMU_ACCESS_WRITE, &dst);
        if (reach != ACCEL_REACH_OK) {
            return accel_stopped(reach);
        }
        len = dst.len;
        accel_fill(dst.host, ACCEL_DESC_EX(job, 2, PATTERN), job->pos % 8, len);
        accel_release(q, &dst, len);
        s->regs[R_ACCEL_BYTES_WRITTEN_NR] += len;
        accel_advance(s, job, len);
    }
    return accel_finish(job);
}

static uint64_t accel_common_prefix(const uint8_t *a, const uint8_t *b,
                                    uint64_t len)
{
    uint64_t i = 0;

    if (!memcmp(a, b, len)) {
        return len;
    }
    while (a[i] == b[i]) {
        i++;
    }
    return i;
}

static AccelStep accel_step_compare(AccelQueue *q, AccelJob *job)
{
    AccelOperand a = accel_operand(job, 0), b = accel_operand(job, 1);
    AccelState *s = q->s;

    while (!accel_at_end(job)) {
        uint64_t len = accel_slice(s, job), same;
        AccelPiece pa, pb;
        AccelReach reach;

        if (!len) {
            return ACCEL_STEP_MORE;
        }
        reach = accel_reach(q, &a, job->pos, len, UMMU_ACCESS_READ, &pa);
        if (reach != ACCEL_REACH_OK) {
            return accel_stopped(reach);
        }
        reach = accel_reach(q, &b, job->pos, pa.len, UMMU_ACCESS_READ, &pb);
        if (reach != ACCEL_REACH_OK) {
            accel_release(q, &pa, 0);
            return accel_stopped(reach);
        }
        len = pb.len;
        same = accel_common_prefix(pa.host, pb.host, len);
        accel_release(q, &pa, len);
        accel_release(q, &pb, len);
        s->regs[R_ACCEL_BYTES_READ_NR] += 2 * len;
        accel_advance(s, job, same);
        if (same < len) {
            job->result = job->pos;
            return accel_finish(job);
        }
    }
    job->result = ACCEL_COMPARE_EQUAL;
    return accel_finish(job);
}

static AccelStep accel_step_crc(AccelQueue *q, AccelJob *job)
{
    AccelOperand from = accel_operand(job, 0);
    AccelState *s = q->s;

    while (!accel_at_end(job)) {
        uint64_t len = accel_slice(s, job);
        AccelPiece src;
        AccelReach reach;

        if (!len) {
            return ACCEL_STEP_MORE;
        }
        reach = accel_reach(q, &from, job->pos, len, UMMU_ACCESS_READ, &src);
        if (reach != ACCEL_REACH_OK) {
            return accel_stopped(reach);
        }
        len = src.len;
        /* The result always holds the finished CRC of what was read so far. */
        job->result = ~accel_crc32c(~(uint32_t)job->result, src.host, len)
                      & UINT32_MAX;
        accel_release(q, &src, len);
        s->regs[R_ACCEL_BYTES_READ_NR] += len;
        accel_advance(s, job, len);
    }
    return accel_finish(job);
}

static uint32_t accel_add_f32(uint32_t x, uint32_t y)
{
    union { uint32_t bits; float f; } a = { x }, b = { y }, sum;

    sum.f = a.f + b.f;
    /* Which NaN comes out differs between hosts: always the same one here. */
    return sum.f != sum.f ? 0x7fc00000 : sum.bits;
}

static void accel_add(uint8_t *dst, const uint8_t *src, uint64_t len,
                      uint8_t dtype)
{
    unsigned size = accel_dtype_size(dtype);

    for (uint64_t i = 0; i < len; i += size) {
        if (dtype == ACCEL_DTYPE_U64) {
            stq_le_p(dst + i, ldq_le_p(dst + i) + ldq_le_p(src + i));
        } else if (dtype == ACCEL_DTYPE_F32) {
            stl_le_p(dst + i, accel_add_f32(ldl_le_p(dst + i),
                                            ldl_le_p(src + i)));
        } else {
            stl_le_p(dst + i, (uint32_t)ldl_le_p(dst + i) +
                              (uint32_t)ldl_le_p(src + i));
        }
    }
}

static AccelStep accel_step_add(AccelQueue *q, AccelJob *job)
{
    AccelOperand from = accel_operand(job, 0), to = accel_operand(job, 1);
    uint8_t dtype = ACCEL_DESC_EX(job, 0, DTYPE);
    unsigned size = accel_dtype_size(dtype);
    AccelState *s = q->s;

    while (!accel_at_end(job)) {
        uint64_t len = QEMU_ALIGN_DOWN(accel_slice(s, job), size);
        AccelPiece src, old, dst;
        AccelReach reach;

        if (!len) {
            s->budget = 0;   /* what is left is less than an element */
            return ACCEL_STEP_MORE;
        }
        reach = accel_reach(q, &from, job->pos, len, UMMU_ACCESS_READ, &src);
        if (reach != ACCEL_REACH_OK) {
            return accel_stopped(reach);
        }
        /* The destination is read as well: that right is needed too. */
        reach = accel_reach(q, &to, job->pos, src.len, UMMU_ACCESS_READ, &old);
        if (reach == ACCEL_REACH_OK) {
            len = old.len;
            accel_release(q, &old, len);
            reach = accel_reach(q, &to, job->pos, len, UMMU_ACCESS_WRITE, &dst);
        }
        if (reach != ACCEL_REACH_OK) {
            accel_release(q, &src, 0);
            return accel_stopped(reach);
        }
        len = dst.len;
        accel_add(dst.host, src.host, len, dtype);
        accel_release(q, &src, len);
        accel_release(q, &dst, len);
        s->regs[R_ACCEL_BYTES_READ_NR] += 2 * len;
        s->regs[R_ACCEL_BYTES_WRITTEN_NR] += len;
        accel_advance(s, job, len);
    }
    return accel_finish(job);
}

static const AccelOpInfo accel_ops[] = {
    [ACCEL_OP_NOP] = { "nop", 0, NULL, accel_step_none },
    [ACCEL_OP_COPY] = { "copy", ACCEL_OP0 | ACCEL_OP1, accel_check_01,
                        accel_step_copy },
    [ACCEL_OP_FILL] = { "fill", ACCEL_OP1, accel_check_1, accel_step_fill },
    [ACCEL_OP_COMPARE] = { "compare", ACCEL_OP0 | ACCEL_OP1, accel_check_01,
                           accel_step_compare },
    [ACCEL_OP_CRC32C] = { "crc32c", ACCEL_OP0, accel_check_0, accel_step_crc },
    [ACCEL_OP_ADD] = { "add", ACCEL_OP0 | ACCEL_OP1, accel_check_add,
                       accel_step_add },
    [ACCEL_OP_GEMM] = { "gemm", ACCEL_OP0 | ACCEL_OP1 | ACCEL_OP2,
                        accel_check_gemm, accel_step_gemm },
    [ACCEL_OP_GATHER] = { "gather", ACCEL_OP0 | ACCEL_OP1 | ACCEL_OP2,
                          accel_check_gather, accel_step_gather },
    [ACCEL_OP_ATOMIC] = { "atomic", ACCEL_OP0, accel_check_atomic,
                          accel_step_atomic },
    [ACCEL_OP_FENCE] = { "fence", 0, NULL, accel_step_none },
};

const AccelOpInfo *accel_op_info(uint8_t opcode)
{
    return opcode < ARRAY_SIZE(accel_ops) && accel_ops[opcode].step ?
           &accel_ops[opcode] : NULL;
}

uint32_t accel_op_mask(void)
{
    uint32_t mask = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(accel_ops); i++) {
        mask |= accel_ops[i].step ? 1u << i : 0;
    }
    return mask;
}
