/*
 * UMMU: what a look-up costs on this host.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * benchmark-request takes the keys of translate-request and says over what to
 * sweep; benchmark-result has the number of look-ups and their CPU time.
 * These are the look-ups that a client makes, with all their effects (counters,
 * cache fills, events of refusals); only stalls are left out.  The main loop
 * does nothing else meanwhile, hence the limit.
 *
 *   count        look-ups to make, at most 10^7
 *   eids, tids   EIDs and TIDs from the given one upwards
 *   pages        addresses from uba upwards, "stride" bytes apart
 *
 * EIDs take turns; TIDs and addresses are drawn at random by a fixed sequence,
 * so that the host's caches see what they would see with many clients.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/keyval.h"
#include "qemu/timer.h"
#include "ummu-internal.h"

#define BENCH_MAX_COUNT 10000000

typedef struct UmmuSweep {
    uint64_t count, eids, tids, pages, stride;
} UmmuSweep;

static bool sweep_parse(QDict *d, UmmuSweep *sw, Error **errp)
{
    static const char *const keys[] = {
        "count", "eids", "tids", "pages", "stride",
    };

    *sw = (UmmuSweep) { .count = 1, .eids = 1, .tids = 1, .pages = 1,
                        .stride = 0x1000 };
    if (!ummu_request_u64(d, "count", BENCH_MAX_COUNT, &sw->count, errp) ||
        !ummu_request_u64(d, "eids", UINT32_MAX, &sw->eids, errp) ||
        !ummu_request_u64(d, "tids", 1u << UMMU_TID_BITS, &sw->tids, errp) ||
        !ummu_request_u64(d, "pages", UINT32_MAX, &sw->pages, errp) ||
        !ummu_request_u64(d, "stride", UINT32_MAX, &sw->stride, errp)) {
        return false;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(keys); i++) {
        qdict_del(d, keys[i]);
    }
    return true;
}

/* xorshift32: never 0, the same sequence each time. */
static uint32_t next_random(uint32_t *state)
{
    uint32_t x = *state;

    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static uint32_t pick(uint32_t random, uint64_t choices)
{
    return random * choices >> 32;
}

/* What this thread has used: other work of the host does not count. */
static int64_t cpu_time_ns(void)
{
    struct timespec ts;

    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts)) {
        return get_clock();
    }
    return ts.tv_sec * NANOSECONDS_PER_SECOND + ts.tv_nsec;
}

static void bench_run(UmmuState *s, const UmmuRequest *first,
                      const UmmuSweep *sw, UmmuBenchResult *out)
{
    UmmuRequest req = *first;
    uint32_t state = 0x12345678;
    uint64_t eid = 0, ok = 0;
    int64_t start = cpu_time_ns();

    for (uint64_t i = 0; i < sw->count; i++) {
        uint32_t random = next_random(&state);
        UmmuResult res;

        req.eid_lo = first->eid_lo + eid;
        req.tid = first->tid + pick(random, sw->tids);
        req.uba = first->uba + pick(random, sw->pages) * sw->stride;
        eid = eid + 1 < sw->eids ? eid + 1 : 0;
        ummu_resolve(s, NULL, &req, false, &res, NULL);
        ok += res.status == UMMU_RES_OK;
    }
    out->ns = cpu_time_ns() - start;
    out->lookups = sw->count;
    out->ok = ok;
}

void ummu_set_benchmark(Object *obj, const char *text, Error **errp)
{
    g_autoptr(QDict) d = keyval_parse(text, NULL, NULL, errp);
    UmmuState *s = UMMU_CORE(obj);
    UmmuRequest req;
    UmmuSweep sw;

    memset(&s->query.bench, 0, sizeof(s->query.bench));
    if (!d || !sweep_parse(d, &sw, errp) ||
        !ummu_request_parse(d, &req, errp)) {
        return;
    }
    if (!s->dma_as) {
        error_setg(errp, "benchmark-request: the device is not realized");
        return;
    }
    bench_run(s, &req, &sw, &s->query.bench);
}
