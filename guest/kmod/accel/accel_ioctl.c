// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * File operations.  Everything but close() is for the address space that opened
 * the file: a child that inherits the descriptor gets -EPERM.
 */
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "accel_hmm.h"
#include "accel_arch.h"
#include "compat.h"

static int accel_open(struct inode *inode, struct file *filp)
{
	struct accel_dev *dev = container_of(filp->private_data, struct accel_dev, misc);
	struct accel_queue *q;

	if (!current->mm)
		return -EINVAL;
	q = kzalloc(sizeof(*q), GFP_KERNEL_ACCOUNT);
	if (!q)
		return -ENOMEM;
	q->dev = dev;
	q->qid = -1;
	q->mm = current->mm;
	q->mapping = filp->f_mapping;
	mutex_init(&q->lock);
	INIT_LIST_HEAD(&q->bindings);
	init_waitqueue_head(&q->wait);
	/* keeps the pointer from naming another address space one day */
	mmgrab(q->mm);

	/* misc_open() holds off misc_deregister(): the device is still there */
	kref_get(&dev->ref);
	mutex_lock(&dev->files_lock);
	list_add_tail(&q->node, &dev->files);
	mutex_unlock(&dev->files_lock);
	filp->private_data = q;
	return 0;
}

static void queue_set_eventfd(struct accel_queue *q, struct eventfd_ctx *ctx)
{
	unsigned long flags;

	spin_lock_irqsave(&q->dev->irq_lock, flags);
	swap(q->eventfd, ctx);
	spin_unlock_irqrestore(&q->dev->irq_lock, flags);
	if (ctx)
		eventfd_ctx_put(ctx);
}

static int accel_release(struct inode *inode, struct file *filp)
{
	struct accel_queue *q = filp->private_data;
	struct accel_dev *dev = q->dev;

	mutex_lock(&dev->files_lock);
	list_del(&q->node);
	mutex_unlock(&dev->files_lock);

	mutex_lock(&q->lock);
	accel_queue_destroy(q);
	mutex_unlock(&q->lock);
	if (q->hmm)
		accel_hmm_stop(q->hmm);
	queue_set_eventfd(q, NULL);
	if (q->spare)
		__free_page(q->spare);
	mmdrop(q->mm);
	mutex_destroy(&q->lock);
	kfree(q);
	accel_dev_put(dev);
	return 0;
}

static bool foreign(const struct accel_queue *q)
{
	return current->mm != q->mm;
}

/* ---------------------------------------------------------------- ioctls */

static int ioctl_info(struct accel_queue *q, void __user *uarg)
{
	struct accel_dev *dev = q->dev;
	struct accel_info info;

	if (copy_from_user(&info, uarg, sizeof(info)))
		return -EFAULT;
	if (info.size != sizeof(info) || memchr_inv(info.reserved, 0, sizeof(info.reserved)))
		return -EINVAL;
	spin_lock(&dev->hw_lock);
	if (dev->gone) {
		spin_unlock(&dev->hw_lock);
		return -ENODEV;
	}
	info.version = readl(dev->regs + ACCEL_VERSION);
	info.ops = readl(dev->regs + ACCEL_CAP1);
	info.vram_size = readq(dev->regs + ACCEL_VRAM_SIZE);
	info.jobs_done = readq(dev->regs + ACCEL_JOBS_DONE);
	info.bytes_read = readq(dev->regs + ACCEL_BYTES_READ);
	info.bytes_written = readq(dev->regs + ACCEL_BYTES_WRITTEN);
	spin_unlock(&dev->hw_lock);
	/* one is the driver's own */
	info.queues = dev->queues - !!dev->dma;
	info.max_log2size = dev->max_log2;
	info.max_tids = dev->max_tids;
	return copy_to_user(uarg, &info, sizeof(info)) ? -EFAULT : 0;
}

static int ioctl_create(struct accel_queue *q, void __user *uarg)
{
	struct accel_queue_create arg;
	int ret;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	if (arg.size != sizeof(arg))
		return -EINVAL;
	mutex_lock(&q->lock);
	ret = accel_queue_create(q, &arg);
	mutex_unlock(&q->lock);
	if (!ret && copy_to_user(uarg, &arg, sizeof(arg))) {
		mutex_lock(&q->lock);
		accel_queue_destroy(q);
		mutex_unlock(&q->lock);
		ret = -EFAULT;
	}
	return ret;
}

static int ioctl_bind(struct accel_queue *q, void __user *uarg)
{
	struct accel_tid_bind arg;
	int ret;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	if (arg.size != sizeof(arg) || arg.reserved || arg.flags & ~ACCEL_TID_UNBIND)
		return -EINVAL;
	mutex_lock(&q->lock);
	if (arg.flags & ACCEL_TID_UNBIND)
		ret = accel_queue_unbind(q, arg.tid);
	else
		ret = accel_queue_bind(q, arg.tid);
	mutex_unlock(&q->lock);
	return ret;
}

static int ioctl_eventfd(struct accel_queue *q, void __user *uarg)
{
	struct eventfd_ctx *ctx = NULL;
	struct accel_eventfd arg;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	if (arg.size != sizeof(arg) || arg.fd < -1)
		return -EINVAL;
	if (arg.fd >= 0) {
		ctx = eventfd_ctx_fdget(arg.fd);
		if (IS_ERR(ctx))
			return PTR_ERR(ctx);
	}
	queue_set_eventfd(q, ctx);
	return 0;
}

static int ioctl_destroy(struct accel_queue *q)
{
	int ret;

	mutex_lock(&q->lock);
	ret = accel_queue_destroy(q);
	mutex_unlock(&q->lock);
	return ret;
}

static int ioctl_hmm_enable(struct accel_queue *q, void __user *uarg)
{
	struct accel_hmm_enable arg;
	int ret;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	if (arg.size != sizeof(arg))
		return -EINVAL;
	mutex_lock(&q->lock);
	ret = accel_hmm_enable(q, &arg);
	mutex_unlock(&q->lock);
	if (!ret && copy_to_user(uarg, &arg, sizeof(arg)))
		ret = -EFAULT;
	return ret;
}

static int ioctl_hmm_disable(struct accel_queue *q)
{
	struct accel_hmm *h = NULL;

	mutex_lock(&q->lock);
	swap(q->hmm, h);
	mutex_unlock(&q->lock);
	if (!h)
		return -ENOENT;
	accel_hmm_stop(h);
	return 0;
}

/* The mirror of this file with a reference, or NULL */
static struct accel_hmm *hmm_of(struct accel_queue *q)
{
	struct accel_hmm *h;

	mutex_lock(&q->lock);
	h = q->hmm;
	if (h)
		kref_get(&h->ref);
	mutex_unlock(&q->lock);
	return h;
}

static int ioctl_hmm_range(struct accel_queue *q, void __user *uarg)
{
	struct accel_hmm_range arg;
	struct accel_hmm *h;
	int ret;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	if (arg.size != sizeof(arg))
		return -EINVAL;
	h = hmm_of(q);
	if (!h)
		return -ENOENT;
	ret = accel_hmm_range(h, &arg);
	accel_hmm_put(h);
	/* how far it came is told for a call that failed, too */
	return copy_to_user(uarg, &arg, sizeof(arg)) ? -EFAULT : ret;
}

static int ioctl_hmm_stats(struct accel_queue *q, void __user *uarg)
{
	struct accel_hmm_stats arg;
	struct accel_hmm *h;

	if (copy_from_user(&arg, uarg, offsetof(struct accel_hmm_stats, faults_read)))
		return -EFAULT;
	if (arg.size != sizeof(arg) || arg.reserved)
		return -EINVAL;
	h = hmm_of(q);
	if (!h)
		return -ENOENT;
	accel_hmm_stats(h, &arg);
	accel_hmm_put(h);
	return copy_to_user(uarg, &arg, sizeof(arg)) ? -EFAULT : 0;
}

static long accel_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct accel_queue *q = filp->private_data;
	void __user *uarg = (void __user *)arg;

	if (foreign(q))
		return -EPERM;
	if (READ_ONCE(q->dev->gone))
		return -ENODEV;
	switch (cmd) {
	case ACCEL_IOC_INFO:
		return ioctl_info(q, uarg);
	case ACCEL_IOC_QUEUE_CREATE:
		return ioctl_create(q, uarg);
	case ACCEL_IOC_QUEUE_DESTROY:
		return ioctl_destroy(q);
	case ACCEL_IOC_TID_BIND:
		return ioctl_bind(q, uarg);
	case ACCEL_IOC_EVENTFD:
		return ioctl_eventfd(q, uarg);
	case ACCEL_IOC_HMM_ENABLE:
		return ioctl_hmm_enable(q, uarg);
	case ACCEL_IOC_HMM_DISABLE:
		return ioctl_hmm_disable(q);
	case ACCEL_IOC_HMM_RANGE:
		return ioctl_hmm_range(q, uarg);
	case ACCEL_IOC_HMM_STATS:
		return ioctl_hmm_stats(q, uarg);
	default:
		return -ENOTTY;
	}
}

static __poll_t accel_poll(struct file *filp, poll_table *wait)
{
	struct accel_queue *q = filp->private_data;
	bool completions, error;
	__poll_t mask = 0;

	if (foreign(q))
		return EPOLLERR;
	poll_wait(filp, &q->wait, wait);
	if (READ_ONCE(q->dev->gone))
		return EPOLLERR | EPOLLHUP;
	if (!accel_queue_state(q, &completions, &error))
		return READ_ONCE(q->dead) ? EPOLLERR | EPOLLHUP : EPOLLERR;
	if (completions)
		mask |= EPOLLIN | EPOLLRDNORM;
	if (error)
		mask |= EPOLLERR;
	return mask;
}

/* ---------------------------------------------------------------- doorbell */

/*
 * The page of the queue while there is one, else a page of plain memory: a
 * process that rings after removal of the device must not die of it.
 */
static vm_fault_t doorbell_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct accel_queue *q = vma->vm_private_data;
	struct accel_dev *dev = q->dev;
	vm_fault_t ret;

	mutex_lock(&q->lock);
	if (q->qid >= 0 && !READ_ONCE(dev->gone)) {
		phys_addr_t pa = dev->doorbells + q->qid * ACCEL_DOORBELL_BANK_STRIDE;

		ret = vmf_insert_pfn_prot(vma, vmf->address, PHYS_PFN(pa),
					  accel_arch_pgprot_device(vma->vm_page_prot));
	} else {
		ret = vmf_insert_pfn(vma, vmf->address, page_to_pfn(q->spare));
	}
	mutex_unlock(&q->lock);
	return ret;
}

static int doorbell_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

static const struct vm_operations_struct doorbell_vm_ops = {
	.fault = doorbell_fault,
	.mremap = doorbell_mremap,
};

static int accel_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct accel_queue *q = filp->private_data;
	int ret = 0;

	if (foreign(q))
		return -EPERM;
	if (READ_ONCE(q->dev->gone))
		return -ENODEV;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE ||
	    !(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	vm_flags_clear(vma, VM_MAYEXEC);

	mutex_lock(&q->lock);
	if (q->qid < 0)
		ret = -EINVAL;
	else if (!q->spare)
		q->spare = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!ret && !q->spare)
		ret = -ENOMEM;
	mutex_unlock(&q->lock);
	if (ret)
		return ret;
	vma->vm_ops = &doorbell_vm_ops;
	vma->vm_private_data = q;
	return 0;
}

/* The device is going: accel_dev.gone is set, no register is touched */
void accel_files_shutdown(struct accel_dev *dev)
{
	struct accel_queue *q;
	unsigned long flags;

	mutex_lock(&dev->files_lock);
	list_for_each_entry(q, &dev->files, node) {
		mutex_lock(&q->lock);
		accel_queue_destroy(q);
		mutex_unlock(&q->lock);
		spin_lock_irqsave(&dev->irq_lock, flags);
		accel_queue_notify(q);
		spin_unlock_irqrestore(&dev->irq_lock, flags);
	}
	mutex_unlock(&dev->files_lock);
}

const struct file_operations accel_fops = {
	.owner = THIS_MODULE,
	.open = accel_open,
	.release = accel_release,
	.unlocked_ioctl = accel_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = accel_mmap,
	.poll = accel_poll,
	.llseek = noop_llseek,
};
