// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Queues and the TIDs that they may name.
 */
#include <linux/bitfield.h>
#include <linux/eventfd.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "accel.h"
#include "compat.h"

/* Tell whoever waits; called from interrupts too */
void accel_queue_notify(struct accel_queue *q)
{
	wake_up_all(&q->wait);	/* the copies of the driver do not wait interruptibly */
	if (q->eventfd)
		compat_eventfd_signal(q->eventfd);
}

/*
 * A TID ends while the queue may still use it.  Running jobs that use it are
 * aborted by the device before the register write returns.
 */
static void binding_revoke(struct ummu_tid_binding *b)
{
	struct accel_binding *ab = container_of(b, struct accel_binding, b);
	struct accel_queue *q = ab->q;
	struct accel_dev *dev = q->dev;
	unsigned long flags;

	spin_lock(&dev->hw_lock);
	ab->revoked = true;
	if (!dev->gone && q->qid >= 0) {
		if (ab == q->ring)
			writel(0, accel_qreg(q, ACCEL_Q_CTRL));
		else
			writel(FIELD_PREP(ACCEL_Q_TID_BIND_TID, b->tid),
			       accel_qreg(q, ACCEL_Q_TID_BIND));
	}
	if (ab == q->ring)
		q->dead = true;
	spin_unlock(&dev->hw_lock);

	spin_lock_irqsave(&dev->irq_lock, flags);
	accel_queue_notify(q);
	spin_unlock_irqrestore(&dev->irq_lock, flags);
}

static struct accel_binding *binding_new(struct accel_queue *q)
{
	struct accel_binding *ab = kzalloc(sizeof(*ab), GFP_KERNEL_ACCOUNT);

	if (!ab)
		return NULL;
	ab->q = q;
	ab->b.owner = q->dev;
	ab->b.revoke = binding_revoke;
	INIT_LIST_HEAD(&ab->b.node);
	INIT_LIST_HEAD(&ab->node);
	return ab;
}

static void binding_drop(struct accel_binding *ab)
{
	ummu_tid_unbind(&ab->b);
	list_del(&ab->node);
	kfree(ab);
}

static void bindings_drop_all(struct accel_queue *q)
{
	struct accel_binding *ab, *next;

	list_for_each_entry_safe(ab, next, &q->bindings, node)
		binding_drop(ab);
}

/* A ring must lie in user space; sizes are powers of two, so no overflow hides */
static bool ring_ok(struct accel_dev *dev, u64 va, u32 log2, u64 entry)
{
	u64 end;

	if (log2 > dev->max_log2 || !IS_ALIGNED(va, entry))
		return false;
	return !check_add_overflow(va, entry << log2, &end) && end <= TASK_SIZE;
}

static int create_check(struct accel_dev *dev, const struct accel_queue_create *arg)
{
	if (arg->flags & ~ACCEL_QUEUE_TOKEN)
		return -EINVAL;
	if (memchr_inv(arg->reserved, 0, sizeof(arg->reserved)))
		return -EINVAL;
	if (!ring_ok(dev, arg->sq_va, arg->sq_log2, ACCEL_DESC_SIZE) ||
	    !ring_ok(dev, arg->cq_va, arg->cq_log2, ACCEL_CPL_SIZE))
		return -EINVAL;
	return 0;
}

static void slot_set(struct accel_dev *dev, int qid, struct accel_queue *q)
{
	unsigned long flags;

	spin_lock_irqsave(&dev->irq_lock, flags);
	dev->slots[qid] = q;
	spin_unlock_irqrestore(&dev->irq_lock, flags);
}

/* Program and start; q->qid is set */
static int queue_start(struct accel_queue *q, const struct accel_queue_create *arg)
{
	struct accel_dev *dev = q->dev;
	bool token = arg->flags & ACCEL_QUEUE_TOKEN;
	int ret = 0;
	u32 status;

	spin_lock(&dev->hw_lock);
	if (dev->gone) {
		ret = -ENODEV;
		goto out;
	}
	if (q->ring->revoked) {
		ret = -EINVAL;
		goto out;
	}
	writel(0, accel_qreg(q, ACCEL_Q_CTRL));
	writeq(arg->sq_va, accel_qreg(q, ACCEL_Q_SQ_BASE));
	writeq(arg->cq_va, accel_qreg(q, ACCEL_Q_CQ_BASE));
	writel(FIELD_PREP(ACCEL_Q_SIZE_SQ_LOG2, arg->sq_log2) |
	       FIELD_PREP(ACCEL_Q_SIZE_CQ_LOG2, arg->cq_log2), accel_qreg(q, ACCEL_Q_SIZE));
	writel(arg->tid, accel_qreg(q, ACCEL_Q_TID));
	writel(token ? arg->token : 0, accel_qreg(q, ACCEL_Q_TOKEN));
	writel(token ? ACCEL_Q_FLAGS_TV : 0, accel_qreg(q, ACCEL_Q_FLAGS));
	writel(ACCEL_Q_CTRL_EN | ACCEL_Q_CTRL_INT_EN, accel_qreg(q, ACCEL_Q_CTRL));
	status = readl(accel_qreg(q, ACCEL_Q_STATUS));
	if (FIELD_GET(ACCEL_Q_STATUS_STATE, status) != ACCEL_Q_STATE_RUNNING) {
		writel(0, accel_qreg(q, ACCEL_Q_CTRL));
		ret = -EIO;
	}
out:
	spin_unlock(&dev->hw_lock);
	return ret;
}

static void queue_set_qid(struct accel_queue *q, int qid)
{
	spin_lock(&q->dev->hw_lock);
	q->qid = qid;
	q->dead = false;
	spin_unlock(&q->dev->hw_lock);
}

static void queue_release_qid(struct accel_queue *q)
{
	int qid = q->qid;

	slot_set(q->dev, qid, NULL);
	queue_set_qid(q, -1);
	ida_free(&q->dev->qids, qid);
}

/* accel_queue.lock held */
int accel_queue_create(struct accel_queue *q, struct accel_queue_create *arg)
{
	struct accel_dev *dev = q->dev;
	int qid, ret;

	ret = create_check(dev, arg);
	if (ret)
		return ret;
	if (q->qid >= 0)
		return -EBUSY;
	qid = ida_alloc_max(&dev->qids, dev->queues - 1, GFP_KERNEL);
	if (qid < 0)
		return qid;
	q->ring = binding_new(q);
	if (!q->ring) {
		ida_free(&dev->qids, qid);
		return -ENOMEM;
	}
	list_add(&q->ring->node, &q->bindings);
	queue_set_qid(q, qid);
	slot_set(dev, qid, q);
	ret = ummu_tid_bind(q->mm, arg->tid, &q->ring->b);
	if (!ret)
		ret = queue_start(q, arg);
	if (ret) {
		bindings_drop_all(q);
		q->ring = NULL;
		queue_release_qid(q);
		return ret;
	}
	arg->qid = qid;
	return 0;
}

/* The device stops before anything else is given up; accel_queue.lock held */
int accel_queue_destroy(struct accel_queue *q)
{
	struct accel_dev *dev = q->dev;

	if (q->qid < 0)
		return -EINVAL;
	spin_lock(&dev->hw_lock);
	if (!dev->gone)
		writel(0, accel_qreg(q, ACCEL_Q_CTRL));
	spin_unlock(&dev->hw_lock);
	bindings_drop_all(q);
	q->ring = NULL;
	queue_release_qid(q);
	/* doorbell mappings of this device; those of other queues come back */
	unmap_mapping_range(q->mapping, 0, PAGE_SIZE, 1);
	return 0;
}

static struct accel_binding *binding_find(struct accel_queue *q, u32 tid)
{
	struct accel_binding *ab;

	list_for_each_entry(ab, &q->bindings, node)
		if (ab != q->ring && ab->b.tid == tid)
			return ab;
	return NULL;
}

static int bind_hw(struct accel_queue *q, struct accel_binding *ab)
{
	struct accel_dev *dev = q->dev;
	int ret = 0;

	spin_lock(&dev->hw_lock);
	if (dev->gone) {
		ret = -ENODEV;
	} else if (ab->revoked) {
		/* ended between the look-up and here */
		ret = -EINVAL;
	} else {
		writel(ACCEL_Q_TID_BIND_BIND | FIELD_PREP(ACCEL_Q_TID_BIND_TID, ab->b.tid),
		       accel_qreg(q, ACCEL_Q_TID_BIND));
		if (readl(accel_qreg(q, ACCEL_Q_TID_BIND)) & ACCEL_Q_TID_BIND_FULL)
			ret = -ENOSPC;
	}
	spin_unlock(&dev->hw_lock);
	return ret;
}

/* accel_queue.lock held */
int accel_queue_bind(struct accel_queue *q, u32 tid)
{
	struct accel_binding *ab;
	int ret;

	if (q->qid < 0)
		return -EINVAL;
	ab = binding_find(q, tid);
	if (ab && !READ_ONCE(ab->revoked))
		return -EEXIST;
	if (ab)
		binding_drop(ab);
	ab = binding_new(q);
	if (!ab)
		return -ENOMEM;
	list_add_tail(&ab->node, &q->bindings);
	ret = ummu_tid_bind(q->mm, tid, &ab->b);
	if (!ret)
		ret = bind_hw(q, ab);
	if (ret)
		binding_drop(ab);
	return ret;
}

int accel_queue_unbind(struct accel_queue *q, u32 tid)
{
	struct accel_dev *dev = q->dev;
	struct accel_binding *ab;

	if (q->qid < 0)
		return -EINVAL;
	ab = binding_find(q, tid);
	if (!ab)
		return -ENOENT;
	spin_lock(&dev->hw_lock);
	if (!dev->gone && !ab->revoked)
		writel(FIELD_PREP(ACCEL_Q_TID_BIND_TID, tid), accel_qreg(q, ACCEL_Q_TID_BIND));
	spin_unlock(&dev->hw_lock);
	binding_drop(ab);
	return 0;
}

/* False if there is no working queue */
bool accel_queue_state(struct accel_queue *q, bool *completions, bool *error)
{
	struct accel_dev *dev = q->dev;
	bool ok;
	u32 status;

	*completions = false;
	*error = false;
	spin_lock(&dev->hw_lock);
	ok = !dev->gone && !q->dead && q->qid >= 0;
	if (ok) {
		status = readl(accel_qreg(q, ACCEL_Q_STATUS));
		*error = FIELD_GET(ACCEL_Q_STATUS_STATE, status) == ACCEL_Q_STATE_ERROR;
		*completions = readl(accel_dbreg(q, ACCEL_DB_CQ_PI)) !=
			       readl(accel_dbreg(q, ACCEL_DB_CQ_CI));
	}
	spin_unlock(&dev->hw_lock);
	return ok;
}
