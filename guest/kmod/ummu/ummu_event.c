// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Event queue and global errors.
 *
 * Stalled transactions go to the page fault code; every other event is printed,
 * rate limited, a repetition of the last one at most every five seconds.
 */
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>

#include "ummu.h"
#include "ummu_trace.h"

#define EVT_U64S	(EVT_SIZE / sizeof(u64))
#define EVTQ_LOG2_MAX	10
#define EVTQ_LOG2_MIN	4
#define REPEAT_QUIET	(5 * HZ)
#define GLB_PENDING	GENMASK(6, 0)

#define NAME(code, name)	{ code, #name },
static const struct {
	u8 code;
	const char *name;
} event_names[] = { UMMU_EVT_NAMES(NAME) };

#undef NAME

static const char *event_name(u8 code)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(event_names); i++)
		if (event_names[i].code == code)
			return event_names[i].name;
	return "EVT_UNKNOWN";
}

int ummu_evtq_alloc(struct ummu_unit *u)
{
	struct ummu_evtq *q = &u->evtq;
	unsigned int log2 = min_t(u32, FIELD_GET(UMMU_CAP1_EVENTQ_SIZE, u->caps.cap[1]),
				  EVTQ_LOG2_MAX);

	ratelimit_state_init(&q->rs, REPEAT_QUIET, 8);
	ratelimit_set_flags(&q->rs, RATELIMIT_MSG_ON_RELEASE);
	for (;; log2--) {
		q->ring = dmam_alloc_coherent(u->dev, EVT_SIZE << log2, &q->dma,
					      GFP_KERNEL | __GFP_NOWARN);
		if (q->ring || log2 <= EVTQ_LOG2_MIN)
			break;
	}
	q->log2 = log2;
	return q->ring ? 0 : -ENOMEM;
}

static void event_print(struct ummu_unit *u, const u64 *e, const struct ummu_fault *f)
{
	struct ummu_evtq *q = &u->evtq;
	u32 key = f->tid << 8 | f->code;

	if (key == q->last_key && time_before(jiffies, q->last_jiffies + REPEAT_QUIET)) {
		q->suppressed++;
		return;
	}
	q->last_key = key;
	q->last_jiffies = jiffies;
	if (!__ratelimit(&q->rs)) {
		q->suppressed++;
		return;
	}
	if (q->suppressed)
		dev_warn(u->dev, "%u events not shown\n", q->suppressed);
	q->suppressed = 0;
	dev_warn(u->dev, "event %s (%#x): tid %#x, tag %u, %s at %#llx%s\n",
		 event_name(f->code), f->code, f->tid, f->tag,
		 f->exec ? "fetch" : f->write ? "write" : "read", f->addr,
		 FIELD_GET(EVT_W0_S2, e[0]) ? ", stage 2" : "");
}

static void event_handle(struct ummu_unit *u, const u64 *e)
{
	struct ummu_fault f = {
		.dom = u->dom,
		.slot = u->slot,
		.unit_id = u->id,
		.code = FIELD_GET(EVT_W0_CODE, e[0]),
		.tid = FIELD_GET(EVT_W0_TID, e[0]),
		.write = !FIELD_GET(EVT_W0_RNW, e[0]),
		.exec = FIELD_GET(EVT_W0_IND, e[0]),
		.stag = FIELD_GET(EVT_W1_STAG, e[1]),
		.addr = e[3],
		.tag = FIELD_GET(EVT_W4_TECTE_TAG, e[4]),
	};
	bool stall = FIELD_GET(EVT_W0_STALL, e[0]);

	u->evtq.seen++;
	trace_ummu_event(u->id, f.code, f.tid, f.addr, f.write, stall, f.stag);
	if (stall)
		ummu_fault_queue(u, &f);
	else
		event_print(u, e, &f);
}

static void evtq_write_ci(struct ummu_unit *u)
{
	ummu_wr(u, UMMU_EVENT_QUE_CI, u->evtq.ci | u->evtq.ovf);
}

/* Lost events are told once per loss and acknowledged when the queue is empty */
static void evtq_overflow(struct ummu_unit *u, u32 pi)
{
	struct ummu_evtq *q = &u->evtq;

	if ((pi & UMMU_EVENT_QUE_PI_OVFLG) == q->ovf)
		return;
	q->ovf = pi & UMMU_EVENT_QUE_PI_OVFLG;
	q->lost++;
	dev_warn_ratelimited(u->dev, "events lost: the event queue was full\n");
	evtq_write_ci(u);
}

irqreturn_t ummu_evtq_irq(int irq, void *data)
{
	struct ummu_unit *u = data;
	struct ummu_evtq *q = &u->evtq;
	u32 wrap_mask = (2u << q->log2) - 1;
	unsigned int handled = 0, i;
	u64 e[EVT_U64S];
	u32 pi;

	/* left over from a kernel before this one */
	if (!READ_ONCE(u->running))
		return IRQ_NONE;
	for (;;) {
		pi = ummu_rd(u, UMMU_EVENT_QUE_PI);
		if (pi == U32_MAX) {
			WRITE_ONCE(u->broken, true);
			return IRQ_HANDLED;
		}
		if ((pi & wrap_mask) == q->ci)
			break;
		/* entries are read only after the index that announces them */
		dma_rmb();
		while (q->ci != (pi & wrap_mask)) {
			__le64 *slot = q->ring + (q->ci & (wrap_mask >> 1)) * EVT_U64S;

			for (i = 0; i < EVT_U64S; i++)
				e[i] = le64_to_cpu(READ_ONCE(slot[i]));
			event_handle(u, e);
			q->ci = (q->ci + 1) & wrap_mask;
			handled++;
			if (!(handled % 64))
				evtq_write_ci(u);
		}
		evtq_write_ci(u);
		cond_resched();
	}
	evtq_overflow(u, pi);
	/* a message whose event the run before took finds nothing */
	return IRQ_HANDLED;
}

irqreturn_t ummu_glb_irq(int irq, void *data)
{
	struct ummu_unit *u = data;
	u32 err = ummu_rd(u, UMMU_GLB_ERR);
	u32 pending = err ^ ummu_rd(u, UMMU_GLB_ERR_RESP);

	if (!READ_ONCE(u->running) || err == U32_MAX || !(pending & GLB_PENDING))
		return IRQ_NONE;
	u->glb_errors++;
	dev_err_ratelimited(u->dev, "global error %#x:%s%s%s%s\n", pending,
			    pending & UMMU_GLB_ERR_MCMD_QUE_ERR ? " command queue stopped" : "",
			    pending & UMMU_GLB_ERR_EVENT_QUE_ABT_ERR ? " event write aborted" : "",
			    pending & UMMU_GLB_ERR_USI_MCMD_QUE_ABT_ERR ?
			    " sync message aborted" : "",
			    pending & UMMU_GLB_ERR_USI_EVENT_QUE_ABT_ERR ?
			    " event message aborted" : "");
	if (pending & UMMU_GLB_ERR_MCMD_QUE_ERR)
		ummu_mcmdq_recover_all(u);
	ummu_wr(u, UMMU_GLB_ERR_RESP, err);
	return IRQ_HANDLED;
}
