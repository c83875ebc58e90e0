/*
 * UMMU: stalled requests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A stalled request waits for CMD_STALL_RESUME, CMD_STALL_TERM, a time-out or
 * the end of its client.  The answer reaches the client from a bottom half,
 * never from inside the command or the translation that caused it.
 *
 * STAG = slot number and a generation, so that a late answer to an earlier
 * user of the slot is recognised as unknown.  A slot stays taken until its
 * client was told; only waiting requests count against STALL_MAX.
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qapi/error.h"
#include "ummu-xlate.h"
#include "trace.h"

#define STALL_SLOT_BITS   12
#define STALL_SLOTS       (1u << STALL_SLOT_BITS)
#define STALL_GEN_MAX     15

typedef enum UmmuStallPhase {
    STALL_WAITING,
    STALL_RETRY,                /* answered, the client does not know yet */
    STALL_ABORT,
    STALL_PHASES,
} UmmuStallPhase;

typedef struct UmmuStall {
    uint64_t eid_lo, eid_hi;
    uint64_t uba, len;
    uint32_t tag, tid;
    uint16_t stag;
    uint8_t access, event, phase;
    int64_t due;                /* virtual time: time-out, delivery; -1 none */
    UmmuClient *client;         /* NULL after a load until it is claimed */
    QTAILQ_ENTRY(UmmuStall) next;
} UmmuStall;

struct UmmuStalls {
    UmmuState *s;
    QTAILQ_HEAD(, UmmuStall) list;      /* order of arrival */
    UmmuStall *slot[STALL_SLOTS];
    uint8_t gen[STALL_SLOTS];
    uint32_t hint;              /* where the search for a free slot starts */
    uint32_t waiting, used;
    QEMUBH *bh;
    QEMUTimer *timer;
};

static uint32_t ummu_stag_slot(uint16_t stag)
{
    return stag & (STALL_SLOTS - 1);
}

static UmmuStall *ummu_stall_find(UmmuStalls *st, uint16_t stag)
{
    UmmuStall *e = st->slot[ummu_stag_slot(stag)];

    if (!e || e->stag != stag) {
        return NULL;
    }
    return e;
}

static int64_t ummu_stall_now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

static void ummu_stall_remove(UmmuStalls *st, UmmuStall *e)
{
    st->slot[ummu_stag_slot(e->stag)] = NULL;
    st->used--;
    st->waiting -= e->phase == STALL_WAITING;
    QTAILQ_REMOVE(&st->list, e, next);
    g_free(e);
}

/* Arm the timer for the earliest time-out or delayed answer. */
static void ummu_stall_rearm(UmmuStalls *st)
{
    int64_t first = INT64_MAX;
    UmmuStall *e;

    QTAILQ_FOREACH(e, &st->list, next) {
        if (e->due >= 0) {
            first = MIN(first, e->due);
        }
    }
    if (first == INT64_MAX) {
        timer_del(st->timer);
    } else {
        timer_mod(st->timer, first);
    }
}

static void ummu_stall_answer(UmmuStalls *st, UmmuStall *e, bool retry)
{
    UmmuState *s = st->s;
    uint64_t delay = s->inject.resume_delay_ns;

    e->phase = retry ? STALL_RETRY : STALL_ABORT;
    st->waiting--;
    *(retry ? &s->cnt.stall_retries : &s->cnt.stall_aborts) += 1;
    trace_ummu_stall_answer(ummu_id(s), e->stag, e->tag, e->tid,
                            retry ? "retry" : "abort");
    if (delay) {
        e->due = ummu_stall_now() + MIN(delay, (uint64_t)INT64_MAX / 2);
        ummu_stall_rearm(st);
    } else {
        e->due = -1;
        qemu_bh_schedule(st->bh);
    }
}

/* ---- delivery ----------------------------------------------------------- */

/* An answer that is due; one at a time, since the callback may stall again. */
static UmmuStall *ummu_stall_next_due(UmmuStalls *st)
{
    int64_t now = ummu_stall_now();
    UmmuStall *e;

    QTAILQ_FOREACH(e, &st->list, next) {
        if (e->phase != STALL_WAITING && (e->due < 0 || e->due <= now)) {
            return e;
        }
    }
    return NULL;
}

static void ummu_stall_bh(void *opaque)
{
    UmmuStalls *st = opaque;
    UmmuStall *e;

    while ((e = ummu_stall_next_due(st))) {
        UmmuClient *c = e->client;
        uint16_t stag = e->stag;
        bool retry = e->phase == STALL_RETRY;

        ummu_stall_remove(st, e);
        if (c) {
            c->ops->stall_done(c->opaque, stag, retry);
        }
    }
    ummu_stall_rearm(st);
}

static void ummu_stall_timer(void *opaque)
{
    UmmuStalls *st = opaque;
    int64_t now = ummu_stall_now();
    UmmuStall *e;

    QTAILQ_FOREACH(e, &st->list, next) {
        if (e->phase == STALL_WAITING && e->due >= 0 && e->due <= now) {
            st->s->cnt.stall_timeouts++;
            trace_ummu_stall_timeout(ummu_id(st->s), e->stag, e->tag, e->tid);
            ummu_stall_answer(st, e, false);
        }
    }
    ummu_stall_bh(st);
}

/* ---- adding ------------------------------------------------------------- */

bool ummu_stall_has_room(const UmmuState *s)
{
    const UmmuStalls *st = s->stalls;

    return st->waiting < s->cfg.stall_max && st->used < STALL_SLOTS;
}

static uint16_t ummu_stall_take_slot(UmmuStalls *st)
{
    uint32_t i = st->hint;

    while (st->slot[i]) {
        i = (i + 1) % STALL_SLOTS;
    }
    st->hint = (i + 1) % STALL_SLOTS;
    st->gen[i] = st->gen[i] % STALL_GEN_MAX + 1;
    return st->gen[i] << STALL_SLOT_BITS | i;
}

bool ummu_stall_add(UmmuState *s, UmmuClient *c, uint32_t tag,
                    const UmmuRequest *req, uint8_t event, uint16_t *stag)
{
    UmmuStalls *st = s->stalls;
    uint64_t timeout = s->cfg.stall_timeout_ns;
    UmmuStall *e;

    if (!ummu_stall_has_room(s)) {
        return false;
    }
    e = g_new0(UmmuStall, 1);
    e->eid_lo = req->eid_lo;
    e->eid_hi = req->eid_hi;
    e->uba = req->uba;
    e->len = req->len;
    e->tag = tag;
    e->tid = req->tid;
    e->access = req->access;
    e->event = event;
    e->client = c;
    e->due = timeout ? ummu_stall_now() + MIN(timeout, (uint64_t)INT64_MAX / 2)
                     : -1;
    e->stag = *stag = ummu_stall_take_slot(st);
    st->slot[ummu_stag_slot(e->stag)] = e;
    st->used++;
    st->waiting++;
    QTAILQ_INSERT_TAIL(&st->list, e, next);
    s->cnt.stalls++;
    ummu_pmu_count(s, UMMU_PMU_STALL, tag, e->tid, 1, 0);
    trace_ummu_stall_add(ummu_id(s), e->stag, tag, e->tid, e->uba, event);
    if (timeout) {
        ummu_stall_rearm(st);
    }
    return true;
}

void ummu_stall_drop(UmmuState *s, uint16_t stag)
{
    UmmuStall *e = ummu_stall_find(s->stalls, stag);

    if (e) {
        s->cnt.stalls--;
        ummu_stall_remove(s->stalls, e);
        ummu_stall_rearm(s->stalls);
    }
}

/* ---- answers ------------------------------------------------------------ */

bool ummu_stall_resume(UmmuState *s, uint16_t stag, uint32_t tag, bool retry)
{
    UmmuStall *e = ummu_stall_find(s->stalls, stag);

    if (!e || e->tag != tag || e->phase != STALL_WAITING) {
        trace_ummu_stall_unknown(ummu_id(s), stag, tag);
        return false;
    }
    ummu_stall_answer(s->stalls, e, retry);
    return true;
}

static unsigned ummu_stall_fail(UmmuState *s, bool all, uint32_t tag)
{
    UmmuStalls *st = s->stalls;
    unsigned n = 0;
    UmmuStall *e;

    QTAILQ_FOREACH(e, &st->list, next) {
        if (e->phase == STALL_WAITING && (all || e->tag == tag)) {
            ummu_stall_answer(st, e, false);
            n++;
        }
    }
    return n;
}

unsigned ummu_stall_terminate(UmmuState *s, uint32_t tag)
{
    return ummu_stall_fail(s, false, tag);
}

unsigned ummu_stall_fail_all(UmmuState *s)
{
    return s->stalls ? ummu_stall_fail(s, true, 0) : 0;
}

/* ---- clients ------------------------------------------------------------ */

void ummu_client_cancel_stall(UmmuClient *c, uint16_t stag)
{
    UmmuStalls *st = c->ummu->stalls;
    UmmuStall *e = ummu_stall_find(st, stag);

    if (!e || e->client != c) {
        return;
    }
    trace_ummu_stall_cancel(ummu_id(st->s), stag);
    ummu_stall_remove(st, e);
    ummu_stall_rearm(st);
}

bool ummu_client_claim_stall(UmmuClient *c, uint16_t stag)
{
    UmmuStall *e = ummu_stall_find(c->ummu->stalls, stag);

    if (!e || e->eid_lo != c->eid_lo || e->eid_hi != c->eid_hi ||
        (e->client && e->client != c)) {
        return false;
    }
    e->client = c;
    return true;
}

void ummu_stall_forget_client(UmmuClient *c)
{
    UmmuStalls *st = c->ummu->stalls;
    UmmuStall *e, *tmp;

    if (!st) {
        return;
    }
    QTAILQ_FOREACH_SAFE(e, &st->list, next, tmp) {
        if (e->client == c) {
            ummu_stall_remove(st, e);
        }
    }
    ummu_stall_rearm(st);
}

/* ---- introspection ------------------------------------------------------ */

unsigned ummu_stall_count(UmmuState *s)
{
    return s->stalls ? s->stalls->waiting : 0;
}

void ummu_stall_describe(UmmuState *s, GString *out)
{
    static const char *const phase[STALL_PHASES] = {
        "waiting", "retry", "abort",
    };
    static const char *const access[] = { "read", "write", "atomic" };
    UmmuStall *e;

    QTAILQ_FOREACH(e, &s->stalls->list, next) {
        g_string_append_printf(out, "stag=0x%04x tag=0x%04x tid=0x%05x uba=0x%"
                               PRIx64 " len=0x%" PRIx64 " access=%s event=%s "
                               "state=%s\n", e->stag, e->tag, e->tid, e->uba,
                               e->len, access[e->access],
                               ummu_event_name(e->event), phase[e->phase]);
    }
}

/* ---- life cycle --------------------------------------------------------- */

void ummu_stall_init(UmmuState *s)
{
    UmmuStalls *st = g_new0(UmmuStalls, 1);

    st->s = s;
    QTAILQ_INIT(&st->list);
    st->bh = qemu_bh_new_guarded(ummu_stall_bh, st,
                                 &DEVICE(s)->mem_reentrancy_guard);
    st->timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, ummu_stall_timer, st);
    s->stalls = st;
}

void ummu_stall_free(UmmuState *s)
{
    UmmuStalls *st = s->stalls;
    UmmuStall *e, *tmp;

    if (!st) {
        return;
    }
    QTAILQ_FOREACH_SAFE(e, &st->list, next, tmp) {
        ummu_stall_remove(st, e);
    }
    timer_free(st->timer);
    qemu_bh_delete(st->bh);
    g_free(st);
    s->stalls = NULL;
}

/* ---- migration ---------------------------------------------------------- */

static const VMStateDescription vmstate_ummu_stall = {
    .name = "ummu/stall",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(eid_lo, UmmuStall),
        VMSTATE_UINT64(eid_hi, UmmuStall),
        VMSTATE_UINT64(uba, UmmuStall),
        VMSTATE_UINT64(len, UmmuStall),
        VMSTATE_UINT32(tag, UmmuStall),
        VMSTATE_UINT32(tid, UmmuStall),
        VMSTATE_UINT16(stag, UmmuStall),
        VMSTATE_UINT8(access, UmmuStall),
        VMSTATE_UINT8(event, UmmuStall),
        VMSTATE_UINT8(phase, UmmuStall),
        VMSTATE_INT64(due, UmmuStall),
        VMSTATE_END_OF_LIST()
    }
};

/* The list of before the load: a load into a used device replaces it. */
static int ummu_stalls_pre_load(void *opaque)
{
    UmmuStalls *st = opaque;
    UmmuStall *e, *tmp;

    QTAILQ_FOREACH_SAFE(e, &st->list, next, tmp) {
        ummu_stall_remove(st, e);
    }
    return 0;
}

const VMStateDescription vmstate_ummu_stalls = {
    .name = "ummu/stalls",
    .version_id = 1,
    .minimum_version_id = 1,
    .pre_load = ummu_stalls_pre_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32(hint, UmmuStalls),
        VMSTATE_UINT8_ARRAY(gen, UmmuStalls, STALL_SLOTS),
        VMSTATE_QTAILQ_V(list, UmmuStalls, 1, vmstate_ummu_stall, UmmuStall,
                         next),
        VMSTATE_END_OF_LIST()
    }
};

/* The stream is not trusted more than a guest: check before it is used. */
static bool ummu_stall_loaded_ok(const UmmuStalls *st, const UmmuStall *e)
{
    return !st->slot[ummu_stag_slot(e->stag)] && e->phase < STALL_PHASES &&
           e->access <= UMMU_ACCESS_ATOMIC && e->due >= -1;
}

int ummu_stall_post_load(UmmuState *s)
{
    UmmuStalls *st = s->stalls;
    UmmuStall *e;
    bool answered = false;

    st->waiting = st->used = 0;
    st->hint %= STALL_SLOTS;
    memset(st->slot, 0, sizeof(st->slot));
    QTAILQ_FOREACH(e, &st->list, next) {
        if (!ummu_stall_loaded_ok(st, e)) {
            return -EINVAL;
        }
        /* The loader does not clear what the stream does not hold. */
        e->client = NULL;
        st->slot[ummu_stag_slot(e->stag)] = e;
        st->used++;
        st->waiting += e->phase == STALL_WAITING;
        answered |= e->phase != STALL_WAITING;
    }
    if (answered) {
        qemu_bh_schedule(st->bh);
    }
    ummu_stall_rearm(st);
    return 0;
}
