// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * When does a chunk move to the device?
 *
 * At once if the process prefers it there, never if it prefers it here, else
 * after as many device faults as touch_threshold says.  A chunk that the CPU
 * takes back soon after it went is left alone for a while, for twice as long
 * each time that happens again.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "accel_hmm.h"
#include "accel_trace.h"

#define HOLD_MAX_SHIFT	6

struct accel_chunk {
	spinlock_t lock;		/* all of it */
	unsigned int touches;
	unsigned int shift;		/* holds so far */
	bool out;			/* on the device since ... */
	unsigned long since;
	unsigned long hold_until;
	bool held;
};

/* NULL without memory: the chunk has no history then */
static struct accel_chunk *chunk_of(struct accel_hmm *h, u64 addr, bool make)
{
	unsigned long index = addr / SZ_2M;
	struct accel_chunk *c = xa_load(&h->chunks, index), *old;

	if (c || !make)
		return c;
	c = kzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);
	if (!c)
		return NULL;
	spin_lock_init(&c->lock);
	old = xa_cmpxchg(&h->chunks, index, NULL, c, GFP_KERNEL_ACCOUNT);
	if (old) {
		kfree(c);
		return xa_is_err(old) ? NULL : old;
	}
	return c;
}

u32 accel_hmm_advice(struct accel_hmm *h, u64 addr)
{
	void *entry = mtree_load(&h->advice, addr >> PAGE_SHIFT);

	return entry ? xa_to_value(entry) : ACCEL_ADVICE_NORMAL;
}

/* Cut [*start, *end) to what around @addr has the same advice: the rest is not asked to move */
void accel_hmm_like(struct accel_hmm *h, u64 addr, u64 *start, u64 *end)
{
	MA_STATE(mas, &h->advice, addr >> PAGE_SHIFT, addr >> PAGE_SHIFT);

	mas_lock(&mas);
	mas_walk(&mas);
	*start = max(*start, (u64)mas.index << PAGE_SHIFT);
	/* the last extent ends with the index space */
	if (mas.last < *end >> PAGE_SHIFT)
		*end = ((u64)mas.last + 1) << PAGE_SHIFT;
	mas_unlock(&mas);
}

/* Has the chunk been touched often enough, and is it not held; counts the touch */
static bool chunk_ripe(struct accel_hmm *h, u64 addr, unsigned int threshold)
{
	struct accel_chunk *c = chunk_of(h, addr, true);
	bool ripe = false;

	if (!c)
		return false;
	spin_lock(&c->lock);
	c->touches++;
	if (c->held && time_before(jiffies, c->hold_until)) {
		accel_hmm_count(h, HMM_PINGPONG_HELD, 1);
	} else if (c->touches >= threshold) {
		c->held = false;
		c->touches = 0;
		c->out = true;
		c->since = jiffies;
		ripe = true;
	}
	spin_unlock(&c->lock);
	return ripe;
}

/* The CPU took a page of the chunk back */
void accel_hmm_returned(struct accel_hmm *h, u64 addr)
{
	unsigned long guard = msecs_to_jiffies(accel_param_pingpong_ms());
	struct accel_chunk *c = chunk_of(h, addr, false);

	if (!c)
		return;
	spin_lock(&c->lock);
	c->touches = 0;
	if (c->out && guard && time_before(jiffies, c->since + (guard << c->shift))) {
		c->held = true;
		c->hold_until = jiffies + (guard << c->shift);
		c->shift = min(c->shift + 1, HOLD_MAX_SHIFT);
	} else if (c->out) {
		c->shift = 0;
	}
	c->out = false;
	spin_unlock(&c->lock);
}

/* The device faulted at @addr: what is to be done */
struct accel_verdict accel_hmm_touch(struct accel_hmm *h, u64 addr, bool write)
{
	unsigned int threshold = accel_param_touches();
	struct accel_verdict v = { };

	switch (accel_hmm_advice(h, addr)) {
	case ACCEL_ADVICE_PINNED:
		v.pinned = true;
		fallthrough;
	case ACCEL_ADVICE_PREFER_DEVICE:
		v.migrate = true;
		break;
	case ACCEL_ADVICE_PREFER_SYSTEM:
		break;
	case ACCEL_ADVICE_ATOMIC:
		v.exclusive = write;
		break;
	case ACCEL_ADVICE_READ_MOSTLY:
		if (!write)
			break;
		fallthrough;
	default:
		v.migrate = threshold && chunk_ripe(h, addr, threshold);
	}
	if (!h->dev->devmem)
		v.migrate = false;
	return v;
}
