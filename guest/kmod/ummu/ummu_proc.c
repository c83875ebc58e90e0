// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /dev/ummu/tid: process records and ioctls.
 *
 * Calls act on the record of the process that opened the file, whoever makes
 * them: a child that inherited the descriptor acts on its parent's record.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "ummu.h"
#include "compat.h"

#define UMMU_IOC_MAGIC		'k'
#define UMMU_IOCALLOC_TID	_IOW(UMMU_IOC_MAGIC, 4, struct ummu_tid_info)
#define UMMU_IOCFREE_TID	_IOW(UMMU_IOC_MAGIC, 5, struct ummu_tid_info)
#define UMMU_IOCPLBI_VA		_IOW(UMMU_IOC_MAGIC, 6, struct ummu_tid_info)
#define UMMU_IOCPLBI_ALL	_IOW(UMMU_IOC_MAGIC, 7, struct ummu_tid_info)

/* Layout fixed by the published library, see the ABI text */
struct ummu_tid_info {
	u8 pcmdq_order;
	u8 pcplq_order;
	u8 pad0[2];
	s32 expan;
	u64 blk_exp_size;
	u64 dev;
	u32 tid;
	u32 ummu_cnt;
	u32 mode;
	u32 pad1;
	u64 hw_cap;
	u64 va;
	u64 size;
	u64 reserve[8];
};

static_assert(sizeof(struct ummu_tid_info) == 128);
static_assert(UMMU_IOCALLOC_TID == 0x40806b04);

static DEFINE_MUTEX(ummu_proc_mutex);
static DEFINE_XARRAY(ummu_procs);	/* mm -> record */

/* ---------------------------------------------------------------- notifier */

static void proc_mm_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct ummu_proc *p = container_of(mn, struct ummu_proc, mn);
	struct ummu_ctx *ctx;

	mutex_lock(&p->lock);
	p->mm_dead = true;
	list_for_each_entry(ctx, &p->ctxs, node)
		ummu_ctx_write_quiet(ctx);
	mutex_unlock(&p->lock);
}

/* The UMMU does not hear the CPU's broadcasts; called under page table locks */
static void proc_invalidate(struct mmu_notifier *mn, struct mm_struct *mm, unsigned long start,
			    unsigned long end)
{
	struct ummu_proc *p = container_of(mn, struct ummu_proc, mn);

	if (READ_ONCE(p->ctx_count) && !p->matt)
		ummu_tlbi_range(p->dom, p->asid, start, end);
}

static const struct mmu_notifier_ops proc_mn_ops = {
	.release = proc_mm_release,
	.COMPAT_MN_INVALIDATE = proc_invalidate,
};

/* ---------------------------------------------------------------- records */

/* Give the record a domain when there is one; ummu_proc_mutex held */
static int proc_attach(struct ummu_proc *p)
{
	struct ummu_domain *dom;
	int asid, ret = 0;

	if (p->dom)
		return ummu_domain_alive(p->dom) ? 0 : -ENODEV;
	dom = ummu_domain_get();
	if (!dom)
		return -ENODEV;
	if (!dom->caps.mapt || !(dom->caps.cap[2] & UMMU_CAP2_S1_TRANS)) {
		ummu_domain_put(dom);
		return -ENODEV;
	}
	asid = ida_alloc_range(&dom->asids, 1, U16_MAX, GFP_KERNEL);
	if (asid < 0) {
		ummu_domain_put(dom);
		return asid;
	}
	p->asid = asid;
	p->dom = dom;
	if (!ummu_param_shared(&dom->caps)) {
		ret = -EINVAL;
		if (mmget_not_zero(p->mm)) {
			ret = ummu_matt_create(p);
			mmput(p->mm);
		}
	}
	if (ret) {
		p->dom = NULL;
		ida_free(&dom->asids, asid);
		ummu_domain_put(dom);
	}
	return ret;
}

static void proc_free(struct ummu_proc *p)
{
	if (p->dom) {
		ummu_matt_destroy(p);
		ida_free(&p->dom->asids, p->asid);
		ummu_domain_put(p->dom);
	}
	mutex_destroy(&p->lock);
	kfree(p);
}

static struct ummu_proc *proc_new(struct file *filp)
{
	struct ummu_proc *p = kzalloc(sizeof(*p), GFP_KERNEL_ACCOUNT);

	if (!p)
		return NULL;
	p->mm = current->mm;
	p->mapping = filp->f_mapping;
	p->mn.ops = &proc_mn_ops;
	mutex_init(&p->lock);
	INIT_LIST_HEAD(&p->ctxs);
	spin_lock_init(&p->fault_lock);
	INIT_LIST_HEAD(&p->faults);
	INIT_WORK(&p->fault_work, ummu_fault_work);
	return p;
}

static int ummu_open(struct inode *inode, struct file *filp)
{
	struct ummu_proc *p;
	int ret;

	if (!current->mm)
		return -EINVAL;
	p = proc_new(filp);
	if (!p)
		return -ENOMEM;
	mutex_lock(&ummu_proc_mutex);
	ret = xa_insert(&ummu_procs, (unsigned long)p->mm, p, GFP_KERNEL_ACCOUNT);
	if (ret) {
		ret = ret == -EBUSY ? -EEXIST : ret;
		goto fail;
	}
	/* Without a UMMU the node opens, only ALLOC fails */
	ret = proc_attach(p);
	if (ret && ret != -ENODEV)
		goto fail_erase;
	ret = mmu_notifier_register(&p->mn, p->mm);
	if (ret)
		goto fail_erase;
	mutex_unlock(&ummu_proc_mutex);
	filp->private_data = p;
	return 0;

fail_erase:
	xa_erase(&ummu_procs, (unsigned long)p->mm);
fail:
	mutex_unlock(&ummu_proc_mutex);
	proc_free(p);
	return ret;
}

static void proc_free_contexts(struct ummu_proc *p)
{
	struct platform_device *vdev;
	struct ummu_ctx *ctx;

	for (;;) {
		mutex_lock(&p->lock);
		ctx = list_first_entry_or_null(&p->ctxs, struct ummu_ctx, node);
		if (ctx) {
			vdev = ctx->vdev;
			ummu_ctx_remove(ctx);
			ummu_ctx_destroy(ctx);
		}
		mutex_unlock(&p->lock);
		if (!ctx)
			return;
		ummu_vdev_del(vdev);
	}
}

/* Last reference to the file: no mapping is left (each holds one) */
static int ummu_release(struct inode *inode, struct file *filp)
{
	struct ummu_proc *p = filp->private_data;

	mutex_lock(&ummu_proc_mutex);
	if (xa_load(&ummu_procs, (unsigned long)p->mm) == p)
		xa_erase(&ummu_procs, (unsigned long)p->mm);
	mutex_unlock(&ummu_proc_mutex);

	proc_free_contexts(p);
	/* no TID, no new fault; those queued hold on to p->mm until answered */
	flush_work(&p->fault_work);
	mmu_notifier_unregister(&p->mn, p->mm);
	proc_free(p);
	return 0;
}

static void proc_zap_queues(struct ummu_proc *p)
{
	struct ummu_ctx *ctx;

	mutex_lock(&p->lock);
	list_for_each_entry(ctx, &p->ctxs, node)
		if (ctx->uq_maps)
			unmap_mapping_range(p->mapping, (loff_t)(ctx->tid << 2 | 2) << PAGE_SHIFT,
					    (loff_t)UMMU_MAX_UNITS * 3 << PAGE_SHIFT, 1);
	mutex_unlock(&p->lock);
}

/*
 * A unit has left the domain: mappings of its registers go (the next touch
 * finds a spare page), and records of a dead domain no longer stand in the way
 * of a new open().  A record cannot be freed while it is listed.
 */
void ummu_procs_unit_gone(struct ummu_domain *dom)
{
	struct ummu_proc *p;
	unsigned long key;

	mutex_lock(&ummu_proc_mutex);
	xa_for_each(&ummu_procs, key, p) {
		if (p->dom != dom)
			continue;
		proc_zap_queues(p);
		if (!ummu_domain_alive(dom))
			xa_erase(&ummu_procs, key);
	}
	mutex_unlock(&ummu_proc_mutex);
}

/* The record of @mm with its lock held, or NULL; a locked record is not freed */
struct ummu_proc *ummu_proc_lock(struct mm_struct *mm)
{
	struct ummu_proc *p;

	mutex_lock(&ummu_proc_mutex);
	p = xa_load(&ummu_procs, (unsigned long)mm);
	if (p)
		mutex_lock(&p->lock);
	mutex_unlock(&ummu_proc_mutex);
	return p;
}

/* For debugfs: every record that is listed */
void ummu_procs_for_each(void (*fn)(struct ummu_proc *p, void *arg), void *arg)
{
	struct ummu_proc *p;
	unsigned long key;

	mutex_lock(&ummu_proc_mutex);
	xa_for_each(&ummu_procs, key, p)
		fn(p, arg);
	mutex_unlock(&ummu_proc_mutex);
}

/* ---------------------------------------------------------------- ioctls */

static int ioctl_alloc(struct ummu_proc *p, struct ummu_tid_info *info, void __user *arg)
{
	struct platform_device *vdev;
	struct ummu_ctx *ctx;
	int ret;

	if (info->mode > UMMU_MAPT_ENTRY)
		return -EINVAL;
	mutex_lock(&ummu_proc_mutex);
	ret = proc_attach(p);
	mutex_unlock(&ummu_proc_mutex);
	if (ret)
		return ret;

	mutex_lock(&p->lock);
	ctx = p->mm_dead ? ERR_PTR(-EINVAL) : ummu_ctx_alloc(p, info->mode);
	if (IS_ERR(ctx)) {
		mutex_unlock(&p->lock);
		return PTR_ERR(ctx);
	}
	info->pcmdq_order = 0;
	info->pcplq_order = 0;
	info->blk_exp_size = ctx->block_size;
	info->tid = ctx->tid;
	info->ummu_cnt = READ_ONCE(p->dom->unit_count);
	info->hw_cap = ctx->hw_cap;
	mutex_unlock(&p->lock);

	vdev = ummu_vdev_add(info->tid, info->mode);
	ret = copy_to_user(arg, info, sizeof(*info)) ? -EFAULT : 0;

	/* Another thread may have guessed and freed or mapped the TID by now */
	mutex_lock(&p->lock);
	ctx = ummu_ctx_find(p, info->tid);
	if (ctx && !ctx->vdev)
		swap(ctx->vdev, vdev);
	if (ctx && ret) {
		swap(ctx->vdev, vdev);
		ummu_ctx_remove(ctx);
		if (!ctx->maps)
			ummu_ctx_destroy(ctx);
	}
	mutex_unlock(&p->lock);
	ummu_vdev_del(vdev);
	return ret;
}

static int ioctl_free(struct ummu_proc *p, const struct ummu_tid_info *info)
{
	struct platform_device *vdev = NULL;
	struct ummu_ctx *ctx;
	int ret = 0;

	mutex_lock(&p->lock);
	ctx = ummu_ctx_find(p, info->tid);
	if (!ctx) {
		ret = -EINVAL;
	} else if (ctx->maps) {
		ret = -EBUSY;
	} else {
		vdev = ctx->vdev;
		ummu_ctx_remove(ctx);
		ummu_ctx_destroy(ctx);
	}
	mutex_unlock(&p->lock);
	ummu_vdev_del(vdev);
	return ret;
}

/*
 * Without ummu_proc.lock, so that threads invalidate in parallel.  Should the
 * TID end meanwhile, too much is invalidated, which is always allowed.
 */
static int ioctl_plbi(struct ummu_proc *p, const struct ummu_tid_info *info, bool all)
{
	struct ummu_ctx *ctx = ummu_ctx_find(p, info->tid);

	if (!ctx)
		return -EINVAL;
	return all ? ummu_plbi_tid(p->dom, info->tid) :
		     ummu_plbi_range(p->dom, info->tid, info->va, info->size);
}

static long ummu_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct ummu_proc *p = filp->private_data;
	void __user *uarg = (void __user *)arg;
	struct ummu_tid_info info;

	/* The order of the checks is part of the ABI: copy, record, command */
	if (copy_from_user(&info, uarg, sizeof(info)))
		return -EFAULT;
	if (READ_ONCE(p->mm_dead))
		return -EINVAL;
	switch (cmd) {
	case UMMU_IOCALLOC_TID:
	case UMMU_IOCFREE_TID:
	case UMMU_IOCPLBI_VA:
	case UMMU_IOCPLBI_ALL:
		break;
	default:
		return -EINVAL;
	}
	if (p->dom && !ummu_domain_alive(p->dom))
		return -ENODEV;

	switch (cmd) {
	case UMMU_IOCALLOC_TID:
		return ioctl_alloc(p, &info, uarg);
	case UMMU_IOCFREE_TID:
		return ioctl_free(p, &info);
	default:
		return ioctl_plbi(p, &info, cmd == UMMU_IOCPLBI_ALL);
	}
}

const struct file_operations ummu_tid_fops = {
	.owner = THIS_MODULE,
	.open = ummu_open,
	.release = ummu_release,
	.mmap = ummu_mmap,
	.unlocked_ioctl = ummu_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice ummu_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ummu/tid",
	.fops = &ummu_tid_fops,
	.mode = 0666,
};

int ummu_cdev_init(void)
{
	return misc_register(&ummu_misc);
}

void ummu_cdev_exit(void)
{
	misc_deregister(&ummu_misc);
	xa_destroy(&ummu_procs);
}
