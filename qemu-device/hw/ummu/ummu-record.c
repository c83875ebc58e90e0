/*
 * UMMU: what becomes of a refused request: event, stall, answer.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "ummu-cache.h"

static bool ummu_policy_fault(uint8_t event)
{
    return event >= UMMU_EVT_A_TRANSLATION && event <= UMMU_EVT_A_PERMISSION;
}

/* FBR and the like: is the refusal written to the event queue? */
static bool ummu_wants_event(const UmmuXlate *x)
{
    if (x->fault.event == 0) {
        return false;
    }
    if (x->fault.event == UMMU_EVT_BAD_DSTEID) {
        return UMMU_REG_FIELD(x->s, UMMU_CTRL1, BAD_DSTEID_RECORD);
    }
    if (!ummu_policy_fault(x->fault.event)) {
        return true;
    }
    return x->fault.s2 ? x->te->s2_fbr : x->tc->fbr;
}

/*
 * A stall without an event could never be answered, hence the FBR part, and
 * with EVENTQ_EN = 0 faults terminate.
 */
static bool ummu_wants_stall(const UmmuXlate *x)
{
    if (!ummu_policy_fault(x->fault.event) || !x->c || x->req->no_stall ||
        !x->te->stall_ok || !ummu_eventq_enabled(x->s) ||
        !ummu_wants_event(x)) {
        return false;
    }
    return x->fault.s2 ? x->te->s2_fbs : x->tc->fbs;
}

static void ummu_fill_event(const UmmuXlate *x, UmmuEvent *ev)
{
    *ev = (UmmuEvent) {
        .code = x->fault.event,
        .rnw = x->req->access == UMMU_ACCESS_READ,
        .ind = x->need.exec,
        .pnu = x->need.priv,
        .cls = x->fault.cls,
        .s2 = x->fault.s2,
        .nsipa = x->fault.s2,
        .ttrnw = x->fault.ttrnw,
        .tid = extract32(x->req->tid, 0, UMMU_TID_BITS),
        .tag = x->tag,
        .ipa = x->fault.ipa,
        .iaddr = x->req->uba,
        .ftaddr = x->fault.ftaddr,
        .eid_lo = x->req->eid_lo,
        .eid_hi = x->req->eid_hi,
    };
}

/* Keep the request; RETRY when it cannot be kept or announced (10.3 step 4). */
static UmmuStatus ummu_stall(UmmuXlate *x, UmmuResult *res)
{
    UmmuState *s = x->s;
    UmmuEvent ev;

    if (!ummu_eventq_has_room(s) || !ummu_stall_has_room(s) ||
        !ummu_stall_add(s, x->c, x->tag, x->req, x->fault.event, &res->stag)) {
        s->cnt.responses_retry++;
        return UMMU_RES_RETRY;
    }
    ummu_fill_event(x, &ev);
    ev.stall = true;
    ev.stag = res->stag;
    if (!ummu_event_record(s, &ev)) {
        ummu_stall_drop(s, res->stag);
        s->cnt.responses_retry++;
        return UMMU_RES_RETRY;
    }
    return UMMU_RES_STALLED;
}

static UmmuStatus ummu_terminate(UmmuXlate *x)
{
    UmmuState *s = x->s;
    bool razwi = x->translating && ummu_policy_fault(x->fault.event) &&
                 !x->fault.s2 && !x->tc->fba;

    if (!x->probe) {
        if (ummu_wants_event(x)) {
            UmmuEvent ev;

            ummu_fill_event(x, &ev);
            ummu_event_record(s, &ev);
        } else {
            ummu_count_fault(s, x->fault.event, x->tag, x->req->tid);
            s->cnt.silent_faults++;
        }
        *(razwi ? &s->cnt.responses_razwi : &s->cnt.responses_fault) += 1;
    }
    return razwi ? UMMU_RES_RAZWI : UMMU_RES_FAULT;
}

void ummu_record(UmmuXlate *x, UmmuResult *res)
{
    if (!x->probe && ummu_wants_stall(x)) {
        res->status = ummu_stall(x, res);
    } else {
        res->status = ummu_terminate(x);
    }
    res->event = x->fault.event;
    res->fault_addr = x->req->uba;
    res->pa = 0;
    if (res->status != UMMU_RES_RAZWI) {
        res->len = 0;
    }
}
