// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * TIDs whose page table a client driver fills: of a process (HMM), and of the
 * kernel (the driver's own DMA, which reaches exactly what is mapped for it).
 *
 * ummu_svm.lock is held around the client's fault handler, so detaching waits
 * for it.  The end of a TID must not wait (the handler may want a lock of the
 * caller): the context is off then, the client's table is merely unused.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "ummu.h"

/* Our table allows it and the device faults again, so often in a row: give up */
#define SPURIOUS_MAX	64

static void svm_release(struct kref *ref)
{
	struct ummu_svm *svm = container_of(ref, struct ummu_svm, ref);
	struct ummu_domain *dom = svm->table.dom;

	ummu_table_free(&svm->table);
	ida_free(&dom->asids, svm->table.asid);
	ummu_domain_put(dom);
	mutex_destroy(&svm->lock);
	kfree(svm);
}

void ummu_svm_put(struct ummu_svm *svm)
{
	if (svm)
		kref_put(&svm->ref, svm_release);
}

/* With a reference; xa_lock of the domain's TIDs or ummu_proc.lock held */
struct ummu_svm *ummu_svm_of(struct ummu_ctx *ctx)
{
	if (ctx->svm)
		kref_get(&ctx->svm->ref);
	return ctx->svm;
}

/* The device gave up to now because of @addr; mm_users held by the caller */
int ummu_svm_fault(struct ummu_svm *svm, u64 addr, bool write)
{
	int ret = -ESRCH;

	mutex_lock(&svm->lock);
	if (svm->ops) {
		/* another fault of the batch may have brought the page with it */
		if (!ummu_table_allows(&svm->table, addr, write)) {
			svm->spurious = 0;
			ret = svm->ops->fault(svm->priv, addr, write);
		} else {
			ret = ++svm->spurious > SPURIOUS_MAX ? -EIO : 0;
		}
	}
	mutex_unlock(&svm->lock);
	return ret;
}

/* The context is off; ummu_proc.lock held */
void ummu_svm_revoke(struct ummu_ctx *ctx)
{
	struct ummu_domain *dom = ctx->proc->dom;
	struct ummu_svm *svm;

	xa_lock(&dom->tids);
	svm = ctx->svm;
	ctx->svm = NULL;
	xa_unlock(&dom->tids);
	ummu_svm_put(svm);
}

static struct ummu_svm *svm_new(struct ummu_domain *dom)
{
	struct ummu_svm *svm = kzalloc(sizeof(*svm), GFP_KERNEL_ACCOUNT);
	int asid, ret;

	if (!svm)
		return ERR_PTR(-ENOMEM);
	asid = ida_alloc_range(&dom->asids, 1, U16_MAX, GFP_KERNEL);
	ret = asid < 0 ? asid : ummu_table_init(&svm->table, dom, asid);
	if (ret) {
		if (asid >= 0)
			ida_free(&dom->asids, asid);
		kfree(svm);
		return ERR_PTR(ret);
	}
	kref_init(&svm->ref);
	kref_get(&dom->ref);
	mutex_init(&svm->lock);
	return svm;
}

/* Nobody but @owner may use the TID already; ummu_proc.lock held */
static int svm_install(struct ummu_ctx *ctx, struct ummu_svm *svm)
{
	struct ummu_domain *dom = ctx->proc->dom;
	struct ummu_tid_binding *b;
	int ret = 0;

	if (ctx->svm)
		return -EBUSY;
	if (ctx->state != UMMU_CTX_LIVE)
		return -EINVAL;
	mutex_lock(&dom->bind_lock);
	list_for_each_entry(b, &ctx->bindings, node)
		if (b->owner != svm->owner)
			ret = -EBUSY;
	if (!ret) {
		xa_lock(&dom->tids);
		kref_get(&svm->ref);
		ctx->svm = svm;
		xa_unlock(&dom->tids);
	}
	mutex_unlock(&dom->bind_lock);
	if (ret)
		return ret;
	ret = ummu_ctx_write_live(ctx);
	if (ret)
		ummu_svm_revoke(ctx);
	return ret;
}

/**
 * ummu_svm_attach() - give a TID a page table that the caller fills
 * @mm: the process; the caller keeps it from ending during the call
 * @tid: its TID, bound to no other device
 * @ops: what to do about faults
 * @priv: handed to @ops
 * @owner: the &ummu_tid_binding.owner that may bind the TID
 *
 * Return: the handle; -EINVAL if the TID is not of this process, -EBUSY if
 * another driver uses it, -ENOMEM, -ENODEV without UMMU.
 */
struct ummu_svm *ummu_svm_attach(struct mm_struct *mm, u32 tid, const struct ummu_svm_ops *ops,
				 void *priv, const void *owner)
{
	struct ummu_proc *p = ummu_proc_lock(mm);
	struct ummu_svm *svm = ERR_PTR(-EINVAL);
	struct ummu_ctx *ctx;
	int ret;

	if (!p)
		return ERR_PTR(-EINVAL);
	ctx = p->mm_dead || !ummu_domain_alive(p->dom) ? NULL : ummu_ctx_find(p, tid);
	if (ctx && p->dom->caps.stall) {
		svm = svm_new(p->dom);
		if (!IS_ERR(svm)) {
			svm->tid = tid;
			svm->ops = ops;
			svm->priv = priv;
			svm->owner = owner;
			ret = svm_install(ctx, svm);
			if (ret) {
				ummu_svm_put(svm);
				svm = ERR_PTR(ret);
			}
		}
	} else if (ctx) {
		svm = ERR_PTR(-EOPNOTSUPP);
	}
	mutex_unlock(&p->lock);
	return svm;
}
EXPORT_SYMBOL_GPL(ummu_svm_attach);

static void svm_detach_process(struct ummu_svm *svm, struct mm_struct *mm)
{
	struct ummu_proc *p = ummu_proc_lock(mm);
	struct ummu_ctx *ctx;

	if (!p)
		return;
	ctx = ummu_ctx_find(p, svm->tid);
	if (ctx && ctx->svm == svm) {
		bool live = ctx->state == UMMU_CTX_LIVE && !p->mm_dead;

		ummu_ctx_write_off(ctx);
		ummu_svm_revoke(ctx);
		if (live)
			ummu_ctx_write_live(ctx);
	}
	mutex_unlock(&p->lock);
}

/**
 * ummu_svm_detach() - the end; no handler runs any more when it returns
 * @svm: the handle, invalid from now on
 * @mm: the process it was attached for, NULL for a kernel TID
 *
 * The TID of a process goes on with the process's ordinary translation.
 */
void ummu_svm_detach(struct ummu_svm *svm, struct mm_struct *mm)
{
	struct ummu_proc *kproc = svm->kproc;

	mutex_lock(&svm->lock);
	svm->ops = NULL;
	mutex_unlock(&svm->lock);
	if (mm) {
		svm_detach_process(svm, mm);
	} else {
		mutex_lock(&kproc->lock);
		ummu_ctx_remove(svm->kctx);
		ummu_ctx_destroy(svm->kctx);
		mutex_unlock(&kproc->lock);
		ummu_domain_put(kproc->dom);
		mutex_destroy(&kproc->lock);
		kfree(kproc);
	}
	ummu_svm_put(svm);
}
EXPORT_SYMBOL_GPL(ummu_svm_detach);

static struct ummu_proc *kproc_new(struct ummu_domain *dom)
{
	struct ummu_proc *p = kzalloc(sizeof(*p), GFP_KERNEL);

	if (!p)
		return NULL;
	mutex_init(&p->lock);
	INIT_LIST_HEAD(&p->ctxs);
	spin_lock_init(&p->fault_lock);
	INIT_LIST_HEAD(&p->faults);
	p->dom = dom;
	return p;
}

/**
 * ummu_svm_kernel() - a TID of the kernel with an empty page table
 *
 * Return: the handle, or -ENODEV, -ENOMEM, -ENOSPC.
 */
struct ummu_svm *ummu_svm_kernel(void)
{
	struct ummu_domain *dom = ummu_domain_get();
	struct ummu_svm *svm;
	struct ummu_proc *p;

	if (!dom)
		return ERR_PTR(-ENODEV);
	svm = svm_new(dom);
	p = IS_ERR(svm) ? NULL : kproc_new(dom);
	if (!p) {
		ummu_domain_put(dom);
		if (IS_ERR(svm))
			return svm;
		ummu_svm_put(svm);
		return ERR_PTR(-ENOMEM);
	}
	p->ksvm = svm;
	kref_get(&svm->ref);	/* the context's */
	mutex_lock(&p->lock);
	svm->kctx = ummu_ctx_alloc(p, UMMU_MAPT_ENTRY);
	mutex_unlock(&p->lock);
	if (IS_ERR(svm->kctx)) {
		int ret = PTR_ERR(svm->kctx);

		ummu_svm_put(svm);
		ummu_svm_put(svm);
		ummu_domain_put(dom);
		kfree(p);
		return ERR_PTR(ret);
	}
	svm->kproc = p;
	svm->tid = svm->kctx->tid;
	return svm;
}
EXPORT_SYMBOL_GPL(ummu_svm_kernel);

u32 ummu_svm_tid(const struct ummu_svm *svm)
{
	return svm->tid;
}
EXPORT_SYMBOL_GPL(ummu_svm_tid);

int ummu_svm_map(struct ummu_svm *svm, u64 va, u64 pa, bool write)
{
	return ummu_table_map(&svm->table, va, pa, write);
}
EXPORT_SYMBOL_GPL(ummu_svm_map);

int ummu_svm_map_block(struct ummu_svm *svm, u64 va, u64 pa, bool write)
{
	return ummu_table_map_block(&svm->table, va, pa, write);
}
EXPORT_SYMBOL_GPL(ummu_svm_map_block);

/* True if something was mapped; no device uses it when the call returns */
bool ummu_svm_unmap(struct ummu_svm *svm, u64 start, u64 end)
{
	return ummu_table_zap(&svm->table, start, end);
}
EXPORT_SYMBOL_GPL(ummu_svm_unmap);

bool ummu_svm_allows(struct ummu_svm *svm, u64 va, bool write)
{
	return ummu_table_allows(&svm->table, va, write);
}
EXPORT_SYMBOL_GPL(ummu_svm_allows);
