// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * TIDs of a process: allocation, permission table blocks, end.
 *
 * A context is found by the device from ALLOC on (block 0 exists then).  It is
 * quiet while block 0 is not there: the device refuses, silently.
 */
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "ummu.h"
#include "ummu_trace.h"

u64 ummu_hw_cap(const struct ummu_caps *caps)
{
	bool kcmd = ummu_param_kcmd(caps);
	u64 cap = 0;

	if (ummu_param_expan())
		cap |= UMMU_UAPI_HW_CAP_EXPAN;
	if (caps->options & UMMU_OPT_DOUBLE_PLBI)
		cap |= UMMU_UAPI_HW_CAP_DOUBLE_PLBI;
	if (kcmd)
		cap |= UMMU_UAPI_HW_CAP_KCMD_PLBI;
	if (caps->stall)
		cap |= UMMU_UAPI_HW_CAP_IOPF;
	/* No ioctl invalidates by node, so the library could not use the bit */
	if (caps->free_bit && !kcmd)
		cap |= UMMU_UAPI_HW_CAP_FREE_BIT;
	if (caps->pplb)
		cap |= UMMU_UAPI_HW_CAP_PPLBI;
	return cap;
}

/* ummu_proc.lock held; a foreign TID is not found */
struct ummu_ctx *ummu_ctx_find(struct ummu_proc *p, u32 tid)
{
	struct ummu_ctx *ctx;

	if (!p->dom)
		return NULL;
	xa_lock(&p->dom->tids);
	ctx = xa_load(&p->dom->tids, tid);
	if (ctx && ctx->proc != p)
		ctx = NULL;
	xa_unlock(&p->dom->tids);
	return ctx;
}

/* ---------------------------------------------------------------- blocks */

static unsigned int block_order(const struct ummu_ctx *ctx)
{
	return ctx->mode == UMMU_MAPT_ENTRY ? 0 : get_order(ctx->block_size);
}

static void block_table_set(struct ummu_ctx *ctx, u32 index, const struct ummu_block *b)
{
	u64 desc = 0;

	if (!ctx->block_table)
		return;
	if (b)
		desc = MAPT_BLOCK_DESC_W0_V | (page_to_phys(b->page) & MAPT_BLOCK_DESC_W0_BA) |
		       FIELD_PREP(MAPT_BLOCK_DESC_W0_BS, ilog2(ctx->block_size / SZ_4K));
	/* the zeroed block is visible before the descriptor that names it */
	dma_wmb();
	WRITE_ONCE(ctx->block_table[index], cpu_to_le64(desc));
}

static struct ummu_block *block_create(struct ummu_ctx *ctx, u32 index)
{
	unsigned int order = block_order(ctx);
	struct ummu_block *b;
	int ret;

	b = kzalloc(sizeof(*b), GFP_KERNEL_ACCOUNT);
	if (!b)
		return ERR_PTR(-ENOMEM);
	b->order = order;
	b->page = alloc_pages(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN, order);
	if (!b->page) {
		kfree(b);
		return ERR_PTR(-ENOMEM);
	}
	ret = ummu_check_continuity(ctx->proc->dom, page_to_phys(b->page),
				    order + PAGE_SHIFT - 12, index);
	if (!ret)
		ret = xa_err(xa_store(&ctx->blocks, index, b, GFP_KERNEL_ACCOUNT));
	if (ret) {
		__free_pages(b->page, order);
		kfree(b);
		return ERR_PTR(ret);
	}
	block_table_set(ctx, index, b);
	trace_ummu_block_add(ctx->tid, index, page_to_phys(b->page), order);
	return b;
}

/*
 * The device must have lost the block before its pages go.  Without block 0
 * there is no table at all: the context becomes quiet.
 */
static void block_destroy(struct ummu_ctx *ctx, u32 index, struct ummu_block *b)
{
	if (!index)
		ummu_ctx_write_quiet(ctx);
	block_table_set(ctx, index, NULL);
	ummu_plbi_tid(ctx->proc->dom, ctx->tid);
	xa_erase(&ctx->blocks, index);
	trace_ummu_block_del(ctx->tid, index, page_to_phys(b->page), b->order);
	__free_pages(b->page, b->order);
	kfree(b);
}

/* A reference for one mapping; ummu_proc.lock held */
struct ummu_block *ummu_block_get(struct ummu_ctx *ctx, u32 index)
{
	struct ummu_block *b = xa_load(&ctx->blocks, index);
	int ret;

	if (!b) {
		b = block_create(ctx, index);
		if (IS_ERR(b))
			return b;
		/* block 0 back again: the table starts anew, empty */
		if (!index && !ctx->proc->mm_dead && !ctx->doomed) {
			ret = ummu_ctx_write_live(ctx);
			if (ret) {
				block_destroy(ctx, index, b);
				return ERR_PTR(ret);
			}
		}
	}
	b->maps++;
	return b;
}

void ummu_block_put(struct ummu_ctx *ctx, u32 index)
{
	struct ummu_block *b = xa_load(&ctx->blocks, index);

	if (b && !--b->maps)
		block_destroy(ctx, index, b);
}

/* ---------------------------------------------------------------- contexts */

static void ctx_free_memory(struct ummu_ctx *ctx)
{
	struct ummu_block *b;
	unsigned long index;

	xa_for_each(&ctx->blocks, index, b) {
		__free_pages(b->page, b->order);
		kfree(b);
	}
	xa_destroy(&ctx->blocks);
	free_page((unsigned long)ctx->block_table);
	kfree(ctx);
}

static struct ummu_ctx *ctx_new(struct ummu_proc *p, enum ummu_mapt_mode mode)
{
	struct ummu_ctx *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);

	if (!ctx)
		return NULL;
	ctx->proc = p;
	ctx->mode = mode;
	ctx->svm = p->ksvm;
	ctx->block_size = ummu_param_block_size();
	ctx->hw_cap = ummu_hw_cap(&p->dom->caps);
	xa_init(&ctx->blocks);
	INIT_LIST_HEAD(&ctx->node);
	INIT_LIST_HEAD(&ctx->bindings);
	if (mode == UMMU_MAPT_TABLE) {
		ctx->block_table = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
		if (!ctx->block_table) {
			kfree(ctx);
			return NULL;
		}
	}
	return ctx;
}

/* ummu_proc.lock held */
struct ummu_ctx *ummu_ctx_alloc(struct ummu_proc *p, enum ummu_mapt_mode mode)
{
	struct ummu_domain *dom = p->dom;
	struct ummu_block *b;
	struct ummu_ctx *ctx;
	int ret;

	ctx = ctx_new(p, mode);
	if (!ctx)
		return ERR_PTR(-ENOMEM);
	/* Reserved first: nobody finds the context before it is complete */
	ret = xa_alloc_cyclic(&dom->tids, &ctx->tid, NULL,
			      XA_LIMIT(dom->tid_first, dom->tid_last), &dom->tid_next,
			      GFP_KERNEL_ACCOUNT);
	if (ret < 0) {
		ctx_free_memory(ctx);
		return ERR_PTR(ret == -EBUSY ? -ENOSPC : ret);
	}
	WRITE_ONCE(p->ctx_count, p->ctx_count + 1);
	b = block_create(ctx, 0);
	ret = PTR_ERR_OR_ZERO(b);
	if (!ret)
		ret = ummu_ctx_write_live(ctx);
	if (ret) {
		WRITE_ONCE(p->ctx_count, p->ctx_count - 1);
		xa_erase(&dom->tids, ctx->tid);
		ctx_free_memory(ctx);
		return ERR_PTR(ret);
	}
	list_add_tail(&ctx->node, &p->ctxs);
	xa_store(&dom->tids, ctx->tid, ctx, GFP_KERNEL);
	trace_ummu_tid_alloc(ctx->tid, mode, task_tgid_nr(current));
	return ctx;
}

/* Clients let go of the TID; it cannot be found any more */
static void ctx_revoke(struct ummu_ctx *ctx)
{
	struct ummu_domain *dom = ctx->proc->dom;
	struct ummu_tid_binding *b, *next;

	mutex_lock(&dom->bind_lock);
	list_for_each_entry_safe(b, next, &ctx->bindings, node) {
		list_del_init(&b->node);
		b->revoke(b);
	}
	mutex_unlock(&dom->bind_lock);
}

/*
 * End of a TID as far as the device and the process's look-ups are concerned.
 * The number stays reserved until ummu_ctx_destroy().  ummu_proc.lock held.
 */
void ummu_ctx_remove(struct ummu_ctx *ctx)
{
	struct ummu_domain *dom = ctx->proc->dom;

	list_del_init(&ctx->node);
	/* keeps the number reserved */
	xa_store(&dom->tids, ctx->tid, NULL, GFP_KERNEL);
	ctx_revoke(ctx);
	ummu_ctx_write_off(ctx);
	ummu_svm_revoke(ctx);
	ctx->doomed = true;
	trace_ummu_tid_free(ctx->tid, ctx->mode, task_tgid_nr(current));
}

/* ummu_proc.lock held, no mapping left */
void ummu_ctx_destroy(struct ummu_ctx *ctx)
{
	struct ummu_proc *p = ctx->proc;

	xa_erase(&p->dom->tids, ctx->tid);
	WRITE_ONCE(p->ctx_count, p->ctx_count - 1);
	ctx_free_memory(ctx);
}

/* ---------------------------------------------------------------- clients */

/**
 * ummu_tid_bind() - use a TID of a process
 * @mm: the process
 * @tid: its TID
 * @binding: filled and kept until ummu_tid_unbind() or its revoke()
 *
 * Return: 0, -EINVAL if the TID is not of this process, -EBUSY if it has a page
 * table of another client driver, -ENODEV without UMMU.
 */
int ummu_tid_bind(struct mm_struct *mm, u32 tid, struct ummu_tid_binding *binding)
{
	struct ummu_domain *dom = ummu_domain_get();
	struct ummu_ctx *ctx;
	int ret = -EINVAL;

	if (!dom)
		return -ENODEV;
	mutex_lock(&dom->bind_lock);
	xa_lock(&dom->tids);
	ctx = xa_load(&dom->tids, tid);
	if (ctx && ctx->proc->mm != mm)
		ctx = NULL;
	xa_unlock(&dom->tids);
	/*
	 * The context stays: its end hides it from xa_load() first and then
	 * waits for bind_lock.
	 */
	if (ctx && ctx->svm && ctx->svm->owner != binding->owner) {
		ret = -EBUSY;
	} else if (ctx) {
		binding->tid = tid;
		list_add_tail(&binding->node, &ctx->bindings);
		ret = 0;
	}
	mutex_unlock(&dom->bind_lock);
	ummu_domain_put(dom);
	return ret;
}
EXPORT_SYMBOL_GPL(ummu_tid_bind);

/* Also for a binding that was revoked already */
void ummu_tid_unbind(struct ummu_tid_binding *binding)
{
	struct ummu_domain *dom = ummu_domain_get();

	if (!dom)
		return;
	mutex_lock(&dom->bind_lock);
	if (!list_empty(&binding->node))
		list_del_init(&binding->node);
	mutex_unlock(&dom->bind_lock);
	ummu_domain_put(dom);
}
EXPORT_SYMBOL_GPL(ummu_tid_unbind);
