/*
 * ummu-accel: registers and doorbell pages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Rows come from the generated lists.  A write is: find the row, merge under
 * its mask unless it is read-only or its guard holds, then the effect.
 */
#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "ummu-accel.h"
#include "trace.h"

#define ACCEL_QUEUE_BANK_END \
    (ACCEL_QUEUE_BANK_BASE + ACCEL_QUEUES_MAX * ACCEL_QUEUE_BANK_STRIDE)

typedef struct AccelRow {
    const char *name;
    uint32_t offset;
    uint8_t bytes;
    uint64_t mask;
    bool read_only;
    bool guarded;                  /* not writable while Q_CTRL.EN = 1 */
} AccelRow;

#define ACCEL_IS_RO  true
#define ACCEL_IS_RW  false
#define ACCEL_GUARD_NONE false
#define ACCEL_GUARD_Q_EN true
#define ACCEL_ROW(name, offset, width, reset, mask, access, guard) \
    { #name, offset, (width) / 8, mask, \
      ACCEL_IS_##access, ACCEL_GUARD_##guard },

static const AccelRow accel_rows[] = { ACCEL_REG_LIST(ACCEL_ROW) };
static const AccelRow accel_q_rows[] = { ACCEL_QUEUE_BANK_REG_LIST(ACCEL_ROW) };
static const AccelRow accel_db_rows[] = {
    ACCEL_DOORBELL_BANK_REG_LIST(ACCEL_ROW)
};

/* A register that an access names: its row, its store, its queue if any. */
typedef struct AccelTarget {
    const AccelRow *rows;
    unsigned nr;
    uint64_t *store;
    AccelQueue *q;
    unsigned shift;                /* upper half of a 64-bit register */
} AccelTarget;

uint64_t accel_frame_size(const AccelState *s)
{
    return pow2ceil(ACCEL_DOORBELL_BANK_BASE +
                    s->cfg.queues * ACCEL_DOORBELL_BANK_STRIDE);
}

static bool accel_find_row(AccelTarget *t, const AccelRow *rows, unsigned count,
                           uint32_t offset, unsigned size)
{
    for (unsigned i = 0; i < count; i++) {
        const AccelRow *row = &rows[i];

        if (offset < row->offset || offset >= row->offset + row->bytes) {
            continue;
        }
        t->rows = rows;
        t->nr = i;
        t->shift = (offset - row->offset) * 8;
        /* Natural width, or an aligned half of a 64-bit register. */
        return size == row->bytes ? !t->shift :
               size == 4 && row->bytes == 8 && t->shift % 32 == 0;
    }
    return false;
}

static bool accel_find(AccelState *s, hwaddr addr, unsigned size,
                       AccelTarget *t)
{
    uint64_t q;

    if (addr < ACCEL_QUEUE_BANK_BASE) {
        t->q = NULL;
        t->store = s->regs;
        return accel_find_row(t, accel_rows, ARRAY_SIZE(accel_rows), addr,
                              size);
    }
    if (addr < ACCEL_QUEUE_BANK_END) {
        q = (addr - ACCEL_QUEUE_BANK_BASE) / ACCEL_QUEUE_BANK_STRIDE;
        t->q = &s->queue[q];
        t->store = t->q->regs;
        return q < s->cfg.queues &&
               accel_find_row(t, accel_q_rows, ARRAY_SIZE(accel_q_rows),
                              addr % ACCEL_QUEUE_BANK_STRIDE, size);
    }
    if (addr >= ACCEL_DOORBELL_BANK_BASE) {
        q = (addr - ACCEL_DOORBELL_BANK_BASE) / ACCEL_DOORBELL_BANK_STRIDE;
        if (q < s->cfg.queues) {
            t->q = &s->queue[q];
            t->store = t->q->bell;
            return accel_find_row(t, accel_db_rows, ARRAY_SIZE(accel_db_rows),
                                  addr % ACCEL_DOORBELL_BANK_STRIDE, size);
        }
    }
    return false;
}

/* Bring the registers that follow from other state up to date. */
static void accel_refresh(AccelState *s, AccelQueue *q)
{
    bool busy = false;
    uint32_t v = 0;

    for (uint32_t i = 0; i < s->cfg.queues; i++) {
        busy |= accel_queue_busy(&s->queue[i]);
    }
    v = FIELD_DP32(v, ACCEL_STATUS, EN,
                   FIELD_EX32(s->regs[R_ACCEL_CTRL_NR], ACCEL_CTRL, EN));
    s->regs[R_ACCEL_STATUS_NR] = FIELD_DP32(v, ACCEL_STATUS, BUSY, busy);
    if (q) {
        v = FIELD_DP32(0, ACCEL_Q_STATUS, STATE, q->state);
        v = FIELD_DP32(v, ACCEL_Q_STATUS, EVENT, q->event);
        q->regs[R_ACCEL_Q_STATUS_NR] =
            FIELD_DP32(v, ACCEL_Q_STATUS, BUSY, accel_queue_busy(q));
    }
}

static uint64_t accel_frame_read(void *opaque, hwaddr addr, unsigned size)
{
    AccelState *s = opaque;
    AccelTarget t;
    uint64_t value;

    if (!accel_find(s, addr, size, &t)) {
        accel_guest_error(s, "read of %u bytes at 0x%" HWADDR_PRIx
                          ": no such register", size, addr);
        return 0;
    }
    accel_refresh(s, t.q);
    value = t.store[t.nr] >> t.shift;
    value = size == 8 ? value : value & UINT32_MAX;
    trace_ummu_accel_read(accel_id(s), t.rows[t.nr].name,
                          t.q ? t.q->number : 0, value);
    return value;
}

/* ---- effects of a write -------------------------------------------------- */

static void accel_ctrl_written(AccelState *s, uint64_t old)
{
    bool was = FIELD_EX32(old, ACCEL_CTRL, EN);
    bool now = FIELD_EX32(s->regs[R_ACCEL_CTRL_NR], ACCEL_CTRL, EN);

    if (was && !now) {
        for (uint32_t i = 0; i < s->cfg.queues; i++) {
            AccelQueue *q = &s->queue[i];

            accel_queue_stop(q);
            q->regs[R_ACCEL_Q_CTRL_NR] =
                FIELD_DP32(q->regs[R_ACCEL_Q_CTRL_NR], ACCEL_Q_CTRL, EN, 0);
        }
    }
    accel_kick(s);
}

static void accel_q_ctrl_written(AccelQueue *q, uint64_t old)
{
    bool was = FIELD_EX32(old, ACCEL_Q_CTRL, EN);
    bool now = FIELD_EX32(q->regs[R_ACCEL_Q_CTRL_NR], ACCEL_Q_CTRL, EN);

    if (!was && now) {
        accel_queue_start(q);
    } else if (was && !now) {
        accel_queue_stop(q);
    }
    accel_kick(q->s);
}

static void accel_queue_written(AccelTarget *t, uint64_t old)
{
    uint64_t value = t->store[t->nr];

    if (t->nr == R_ACCEL_Q_CTRL_NR) {
        accel_q_ctrl_written(t->q, old);
    } else if (t->nr == R_ACCEL_Q_TID_BIND_NR) {
        accel_queue_bind(t->q, FIELD_EX32(value, ACCEL_Q_TID_BIND, TID),
                         FIELD_EX32(value, ACCEL_Q_TID_BIND, BIND));
    }
}

/* The indices are the engine's: it takes the written value over, or not. */
static void accel_bell_written(AccelTarget *t, uint64_t old)
{
    uint32_t value = t->store[t->nr];

    t->store[t->nr] = old;
    if (t->nr == R_ACCEL_DB_SQ_PI_NR) {
        accel_queue_doorbell(t->q, value);
    } else {
        accel_queue_cq_consumed(t->q, value);
    }
}

static void accel_merge(AccelTarget *t, uint64_t value, unsigned size)
{
    const AccelRow *row = &t->rows[t->nr];
    uint64_t lanes = (size == 8 ? UINT64_MAX : UINT32_MAX) << t->shift;
    uint64_t mask = row->mask & lanes;

    t->store[t->nr] = (t->store[t->nr] & ~mask) | (value << t->shift & mask);
}

static void accel_frame_write(void *opaque, hwaddr addr, uint64_t value,
                              unsigned size)
{
    AccelState *s = opaque;
    AccelTarget t;
    uint64_t old;

    if (s->in_engine) {
        /* A message address that points here: never re-enter the engine. */
        accel_guest_error(s, "write at 0x%" HWADDR_PRIx " by a message", addr);
        return;
    }
    if (!accel_find(s, addr, size, &t)) {
        accel_guest_error(s, "write of %u bytes at 0x%" HWADDR_PRIx
                          ": no such register", size, addr);
        return;
    }
    trace_ummu_accel_write(accel_id(s), t.rows[t.nr].name,
                           t.q ? t.q->number : 0, value);
    if (t.rows[t.nr].read_only) {
        accel_guest_error(s, "write to read-only %s", t.rows[t.nr].name);
        return;
    }
    if (t.rows[t.nr].guarded &&
        FIELD_EX32(t.q->regs[R_ACCEL_Q_CTRL_NR], ACCEL_Q_CTRL, EN)) {
        accel_guest_error(s, "queue %u: write to %s while enabled",
                          t.q->number, t.rows[t.nr].name);
        return;
    }
    old = t.store[t.nr];
    accel_merge(&t, value, size);
    if (t.rows == accel_db_rows) {
        accel_bell_written(&t, old);
    } else if (t.rows == accel_q_rows) {
        accel_queue_written(&t, old);
    } else if (t.nr == R_ACCEL_CTRL_NR) {
        accel_ctrl_written(s, old);
    }
    accel_send_interrupts(s);
}

/* Any access reaches the handlers, which decide: no host error is possible. */
const MemoryRegionOps accel_frame_ops = {
    .read = accel_frame_read,
    .write = accel_frame_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

void accel_regs_reset(AccelState *s)
{
    uint32_t cap = 0;

#define ACCEL_RESET_VALUE(name, offset, width, reset, ...) \
    s->regs[R_##name##_NR] = reset;
    ACCEL_REG_LIST(ACCEL_RESET_VALUE)
#undef ACCEL_RESET_VALUE
    cap = FIELD_DP32(cap, ACCEL_CAP0, QUEUES, s->cfg.queues);
    cap = FIELD_DP32(cap, ACCEL_CAP0, MAX_LOG2SIZE, ACCEL_MAX_LOG2SIZE);
    cap = FIELD_DP32(cap, ACCEL_CAP0, MAX_TIDS, ACCEL_MAX_TIDS);
    s->regs[R_ACCEL_CAP0_NR] = cap;
    s->regs[R_ACCEL_CAP1_NR] = accel_op_mask();
    s->regs[R_ACCEL_EID_LO_NR] = s->eid_lo;
    s->regs[R_ACCEL_EID_HI_NR] = s->eid_hi;
    s->regs[R_ACCEL_VRAM_SIZE_NR] = s->cfg.vram_size;
    for (uint32_t i = 0; i < s->cfg.queues; i++) {
        AccelQueue *q = &s->queue[i];

        accel_queue_stop(q);
#define ACCEL_RESET_VALUE(name, offset, width, reset, ...) \
    q->regs[R_##name##_NR] = reset;
        ACCEL_QUEUE_BANK_REG_LIST(ACCEL_RESET_VALUE)
#undef ACCEL_RESET_VALUE
        memset(q->bell, 0, sizeof(q->bell));
    }
}
