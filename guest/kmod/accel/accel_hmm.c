// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Mirrors: their life, and the calls of the process.
 */
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "accel_hmm.h"

#define CREATE_TRACE_POINTS
#include "accel_trace.h"

static const struct ummu_svm_ops svm_ops = {
	.fault = accel_hmm_fault,
};

/* Memory management is optional: a driver without it still runs jobs */
int accel_hmm_init(struct accel_dev *dev)
{
	int ret;

	if (PAGE_SHIFT != 12 || dev->queues < 2)
		return 0;
	ret = accel_dma_init(dev);
	if (!ret)
		ret = accel_devmem_init(dev);
	if (ret || !dev->devmem)
		accel_dma_exit(dev);
	if (ret)
		dev_warn(&dev->pdev->dev, "no migration to device memory: error %d\n", ret);
	accel_hmm_debugfs_add(dev);
	return 0;
}

/* Before the device is switched off: its pages go home by its own copies */
void accel_hmm_exit(struct accel_dev *dev)
{
	accel_hmm_debugfs_del(dev);
	accel_devmem_exit(dev);
	accel_dma_exit(dev);
}

static void chunks_free(struct accel_hmm *h)
{
	unsigned long index;
	void *chunk;

	xa_for_each(&h->chunks, index, chunk)
		kfree(chunk);
	xa_destroy(&h->chunks);
}

static void hmm_release(struct kref *ref)
{
	struct accel_hmm *h = container_of(ref, struct accel_hmm, ref);

	mtree_destroy(&h->regions);
	mtree_destroy(&h->advice);
	chunks_free(h);
	mmdrop(h->mm);
	mutex_destroy(&h->lock);
	accel_dev_put(h->dev);
	kfree(h);
}

void accel_hmm_put(struct accel_hmm *h)
{
	if (h)
		kref_put(&h->ref, hmm_release);
}

/* A mirror of the process on this device, with a reference, or NULL */
struct accel_hmm *accel_hmm_find(struct accel_dev *dev, struct mm_struct *mm)
{
	struct accel_hmm *h, *found = NULL;

	spin_lock(&dev->hmms_lock);
	list_for_each_entry(h, &dev->hmms, node)
		if (h->mm == mm) {
			kref_get(&h->ref);
			found = h;
			break;
		}
	spin_unlock(&dev->hmms_lock);
	return found;
}

bool accel_hmm_registered(struct accel_hmm *h, u64 addr)
{
	return mtree_load(&h->regions, addr >> PAGE_SHIFT);
}

static struct accel_hmm *hmm_new(struct accel_queue *q, const struct accel_hmm_enable *arg)
{
	struct accel_hmm *h = kzalloc(sizeof(*h), GFP_KERNEL_ACCOUNT);

	if (!h)
		return NULL;
	kref_init(&h->ref);
	INIT_LIST_HEAD(&h->node);
	init_rwsem(&h->life);
	mutex_init(&h->lock);
	mt_init_flags(&h->regions, 0);
	mt_init_flags(&h->advice, 0);
	xa_init(&h->chunks);
	h->dev = q->dev;
	kref_get(&h->dev->ref);
	h->mm = q->mm;
	mmgrab(h->mm);
	h->tid = arg->tid;
	h->flags = arg->flags;
	h->pid = task_tgid_nr(current);
	return h;
}

/* accel_queue.lock held */
int accel_hmm_enable(struct accel_queue *q, struct accel_hmm_enable *arg)
{
	struct accel_hmm *h;
	int ret;

	if (arg->flags & ~ACCEL_HMM_REGISTERED ||
	    memchr_inv(arg->reserved, 0, sizeof(arg->reserved)))
		return -EINVAL;
	if (q->hmm)
		return -EBUSY;
	if (PAGE_SIZE != SZ_4K)
		return -EOPNOTSUPP;
	h = hmm_new(q, arg);
	if (!h)
		return -ENOMEM;
	h->svm = ummu_svm_attach(q->mm, arg->tid, &svm_ops, h, q->dev);
	ret = PTR_ERR_OR_ZERO(h->svm);
	if (ret)
		goto fail;
	ret = mmu_interval_notifier_insert(&h->mni, q->mm, 0, ULONG_MAX & PAGE_MASK,
					   &accel_hmm_mni_ops);
	if (ret) {
		ummu_svm_detach(h->svm, q->mm);
		goto fail;
	}
	spin_lock(&q->dev->hmms_lock);
	list_add_tail(&h->node, &q->dev->hmms);
	spin_unlock(&q->dev->hmms_lock);
	q->hmm = h;
	arg->mode = !q->dev->devmem ? ACCEL_HMM_MIRROR :
		    q->dev->devmem->pgmap.type == MEMORY_DEVICE_COHERENT ? ACCEL_HMM_COHERENT :
									   ACCEL_HMM_PRIVATE;
	return 0;
fail:
	accel_hmm_put(h);
	return ret;
}

/* Waits for calls in progress: not under accel_queue.lock */
void accel_hmm_stop(struct accel_hmm *h)
{
	down_write(&h->life);
	h->dead = true;
	up_write(&h->life);
	spin_lock(&h->dev->hmms_lock);
	list_del(&h->node);
	spin_unlock(&h->dev->hmms_lock);
	mmu_interval_notifier_remove(&h->mni);
	ummu_svm_detach(h->svm, h->mm);
	accel_hmm_put(h);
}

/* ---------------------------------------------------------------- ranges */

static int op_tree(struct accel_hmm *h, struct maple_tree *tree, u64 start, u64 end, void *entry)
{
	int ret = mtree_store_range(tree, start >> PAGE_SHIFT, (end >> PAGE_SHIFT) - 1, entry,
				    GFP_KERNEL_ACCOUNT);

	if (ret)
		return ret;
	/* what is mapped was so under the old rule */
	mutex_lock(&h->lock);
	ummu_svm_unmap(h->svm, start, end);
	mutex_unlock(&h->lock);
	return 0;
}

static int op_each(struct accel_hmm *h, const struct accel_hmm_range *r, u64 end, u64 *pages)
{
	u64 addr = r->addr, stop;
	int ret = 0;

	while (addr < end && !ret) {
		if ((h->flags & ACCEL_HMM_REGISTERED) && !accel_hmm_registered(h, addr)) {
			ret = -EACCES;
			break;
		}
		stop = addr + PAGE_SIZE;
		if (r->op == ACCEL_HMM_EXCLUSIVE)
			ret = accel_hmm_exclusive(h, addr);
		else
			ret = accel_hmm_map(h, addr, addr, stop, r->arg);
		*pages += !ret;
		addr = stop;
		cond_resched();
	}
	return ret;
}

static int op_run(struct accel_hmm *h, struct accel_hmm_range *r)
{
	u64 end = r->addr + r->length;

	switch (r->op) {
	case ACCEL_HMM_PREFETCH:
		return accel_move_to_device(h, r->addr, end,
					    accel_hmm_advice(h, r->addr) == ACCEL_ADVICE_PINNED,
					    &r->pages);
	case ACCEL_HMM_EVICT:
		return accel_move_to_system(h, r->addr, end, &r->pages);
	case ACCEL_HMM_ADVISE:
		if (r->arg > ACCEL_ADVICE_ATOMIC)
			return -EINVAL;
		return op_tree(h, &h->advice, r->addr, end, xa_mk_value(r->arg));
	case ACCEL_HMM_REGISTER:
		return op_tree(h, &h->regions, r->addr, end, xa_mk_value(1));
	case ACCEL_HMM_UNREGISTER:
		return op_tree(h, &h->regions, r->addr, end, NULL);
	case ACCEL_HMM_MIRROR_RANGE:
	case ACCEL_HMM_EXCLUSIVE:
		return op_each(h, r, end, &r->pages);
	case ACCEL_HMM_SNAPSHOT:
		r->pages = r->length >> PAGE_SHIFT;
		return accel_hmm_snapshot(h, r->addr, end, u64_to_user_ptr(r->user_ptr));
	default:
		return -EINVAL;
	}
}

static bool range_ok(const struct accel_hmm_range *r)
{
	u64 end;

	if (r->reserved || !r->length || !PAGE_ALIGNED(r->addr) || !PAGE_ALIGNED(r->length))
		return false;
	if (r->arg && r->op != ACCEL_HMM_ADVISE &&
	    (r->op != ACCEL_HMM_MIRROR_RANGE || r->arg > 1))
		return false;
	if (r->user_ptr && r->op != ACCEL_HMM_SNAPSHOT)
		return false;
	return !check_add_overflow(r->addr, r->length, &end) && end <= TASK_SIZE;
}

/* With a reference of the caller's; calls of several threads run side by side */
int accel_hmm_range(struct accel_hmm *h, struct accel_hmm_range *r)
{
	int ret;

	r->pages = 0;
	if (!range_ok(r))
		return -EINVAL;
	ret = down_read_killable(&h->life);
	if (ret)
		return ret;
	ret = h->dead ? -ENOENT : op_run(h, r);
	up_read(&h->life);
	return ret;
}

void accel_hmm_stats(struct accel_hmm *h, struct accel_hmm_stats *s)
{
	u64 *out = &s->faults_read;
	unsigned int i;

	static_assert(sizeof(struct accel_hmm_stats) == 8 + 8 * HMM_COUNTERS);
	for (i = 0; i < HMM_COUNTERS; i++)
		out[i] = atomic64_read(&h->n[i]);
}
