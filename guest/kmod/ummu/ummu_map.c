// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mmap of permission table blocks and user queues.
 *
 * Partial unmapping and VMA splits: what a mapping refers to is released when
 * its last VMA goes, that is with its last page, in whatever order they go.
 */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "ummu.h"
#include "ummu_arch.h"
#include "compat.h"

#define TYPE_MASK	3ul
#define TYPE_BLOCK	1
#define TYPE_QUEUES	2
#define BLOCK_INDEX(off)	(((off) >> 2) & 0x3ff)
#define BLOCK_TID(off)		(((off) >> 12) & 0xfffff)
#define QUEUE_TID(off)		(((off) >> 2) & 0xfffff)
#define PAGES_PER_UNIT	3	/* command ring, completion ring, control page */

struct ummu_map {
	struct ummu_ctx *ctx;
	unsigned int type;
	u32 index;
	unsigned long pgoff;
	unsigned int vmas;
	struct page *spare;	/* stands in for registers of a removed unit */
};

/* ummu_proc.lock held */
static void map_release(struct ummu_map *m)
{
	struct ummu_ctx *ctx = m->ctx;

	if (m->type == TYPE_BLOCK)
		ummu_block_put(ctx, m->index);
	else
		ummu_uq_put(ctx);
	if (m->spare)
		__free_page(m->spare);
	kfree(m);
	if (!--ctx->maps && ctx->doomed)
		ummu_ctx_destroy(ctx);
}

static void map_open(struct vm_area_struct *vma)
{
	struct ummu_map *m = vma->vm_private_data;
	struct ummu_proc *p = m->ctx->proc;

	mutex_lock(&p->lock);
	m->vmas++;
	mutex_unlock(&p->lock);
}

static void map_close(struct vm_area_struct *vma)
{
	struct ummu_map *m = vma->vm_private_data;
	struct ummu_proc *p = m->ctx->proc;

	mutex_lock(&p->lock);
	if (!--m->vmas)
		map_release(m);
	mutex_unlock(&p->lock);
}

static int map_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

static const struct vm_operations_struct block_vm_ops = {
	.open = map_open,
	.close = map_close,
	.mremap = map_mremap,
};

/* The unit is there as long as the caller is inside ummu_srcu */
static bool unit_present(struct ummu_domain *dom, const struct ummu_uq *q)
{
	struct ummu_unit *u = srcu_dereference(dom->units[q->slot], &ummu_srcu);

	return u && u->id == q->unit_id;
}

static vm_fault_t queue_insert_spare(struct vm_fault *vmf, struct ummu_map *m)
{
	if (!m->spare)
		m->spare = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!m->spare)
		return VM_FAULT_OOM;
	return vmf_insert_pfn(vmf->vma, vmf->address, page_to_pfn(m->spare));
}

/*
 * Queue pages are inserted one by one: a control page must not be mapped once
 * its unit is going, and only a linked VMA is seen by ummu_procs_zap().
 */
static vm_fault_t queue_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct ummu_map *m = vma->vm_private_data;
	struct ummu_ctx *ctx = m->ctx;
	unsigned long page = vmf->pgoff - m->pgoff;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	struct ummu_uq *q;
	int idx;

	mutex_lock(&ctx->proc->lock);
	if (page / PAGES_PER_UNIT >= ctx->uq_count)
		goto out;
	q = &ctx->uq[page / PAGES_PER_UNIT];
	switch (page % PAGES_PER_UNIT) {
	case 0:
		ret = vmf_insert_pfn(vma, vmf->address, page_to_pfn(q->cmd));
		break;
	case 1:
		ret = vmf_insert_pfn(vma, vmf->address, page_to_pfn(q->cpl));
		break;
	default:
		idx = srcu_read_lock(&ummu_srcu);
		if (unit_present(ctx->proc->dom, q))
			ret = vmf_insert_pfn_prot(vma, vmf->address, PHYS_PFN(q->ctrl),
						  ummu_arch_pgprot_device(vma->vm_page_prot));
		else
			ret = queue_insert_spare(vmf, m);
		srcu_read_unlock(&ummu_srcu, idx);
		break;
	}
out:
	mutex_unlock(&ctx->proc->lock);
	return ret;
}

static const struct vm_operations_struct queue_vm_ops = {
	.open = map_open,
	.close = map_close,
	.mremap = map_mremap,
	.fault = queue_fault,
};

static struct ummu_map *map_new(struct ummu_ctx *ctx, struct vm_area_struct *vma, u32 index)
{
	struct ummu_map *m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);

	if (!m)
		return NULL;
	m->ctx = ctx;
	m->type = vma->vm_pgoff & TYPE_MASK;
	m->index = index;
	m->pgoff = vma->vm_pgoff;
	m->vmas = 1;
	return m;
}

static int map_block(struct ummu_ctx *ctx, struct vm_area_struct *vma)
{
	bool table = ctx->mode == UMMU_MAPT_TABLE;
	u32 index = table ? BLOCK_INDEX(vma->vm_pgoff) : 0;
	unsigned long size = table ? ctx->block_size : PAGE_SIZE;
	struct ummu_block *b;
	struct ummu_map *m;
	int ret;

	if (index >= UMMU_MAX_BLOCKS || vma->vm_end - vma->vm_start != PAGE_ALIGN(size))
		return -EINVAL;
	if (index && !(ctx->hw_cap & UMMU_UAPI_HW_CAP_EXPAN))
		return -ERANGE;
	m = map_new(ctx, vma, index);
	if (!m)
		return -ENOMEM;
	b = ummu_block_get(ctx, index);
	if (IS_ERR(b)) {
		kfree(m);
		return PTR_ERR(b);
	}
	ret = remap_pfn_range(vma, vma->vm_start, page_to_pfn(b->page),
			      vma->vm_end - vma->vm_start, vma->vm_page_prot);
	if (ret) {
		ummu_block_put(ctx, index);
		kfree(m);
		return ret;
	}
	vma->vm_ops = &block_vm_ops;
	vma->vm_private_data = m;
	ctx->maps++;
	return 0;
}

static int map_queues(struct ummu_ctx *ctx, struct vm_area_struct *vma)
{
	unsigned long pages = vma_pages(vma);
	struct ummu_map *m;
	int ret;

	if (ctx->hw_cap & UMMU_UAPI_HW_CAP_KCMD_PLBI)
		return -EINVAL;
	if (pages % PAGES_PER_UNIT ||
	    pages / PAGES_PER_UNIT != READ_ONCE(ctx->proc->dom->unit_count))
		return -EINVAL;
	m = map_new(ctx, vma, 0);
	if (!m)
		return -ENOMEM;
	ret = ummu_uq_get(ctx);
	if (ret) {
		kfree(m);
		return ret;
	}
	vma->vm_ops = &queue_vm_ops;
	vma->vm_private_data = m;
	ctx->maps++;
	return 0;
}

int ummu_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct ummu_proc *p = filp->private_data;
	unsigned long off = vma->vm_pgoff;
	unsigned int type = off & TYPE_MASK;
	struct ummu_ctx *ctx;
	int ret = -EINVAL;

	/* A private copy of a permission table would grant nothing */
	if (!(vma->vm_flags & VM_MAYSHARE) || off > U32_MAX ||
	    (type != TYPE_BLOCK && type != TYPE_QUEUES))
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	vm_flags_clear(vma, VM_MAYEXEC);

	mutex_lock(&p->lock);
	ctx = ummu_ctx_find(p, type == TYPE_BLOCK ? BLOCK_TID(off) : QUEUE_TID(off));
	if (p->dom && !ummu_domain_alive(p->dom))
		ret = -ENODEV;
	else if (ctx && type == TYPE_BLOCK)
		ret = map_block(ctx, vma);
	else if (ctx && off >> 22 == 0)
		ret = map_queues(ctx, vma);
	mutex_unlock(&p->lock);
	return ret;
}
