// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Page faults of the device: a stalled transaction is answered with RETRY after
 * the page is there, or with ABORT.  Every stall gets exactly one answer.
 *
 * Faults of one process are handled by one worker in batches, sorted so that
 * equal pages meet and a write comes first: it satisfies a read as well.  Those
 * of a TID with a page table of a client driver go to that driver.
 */
#include <linux/list_sort.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "ummu.h"
#include "ummu_arch.h"
#include "ummu_trace.h"

/*
 * The kernel says "mapped" and the device faults again, so often in a row: they
 * do not agree (device memory, an address the unit cannot emit); give up.
 */
#define FAULT_REPEAT_MAX	64

static void fault_answer(const struct ummu_fault *f, int err)
{
	struct ummu_cmd cmd = ummu_cmd_op(UMMU_CMD_STALL_RESUME);
	struct ummu_unit *u;
	int idx;

	cmd.w[0] |= err ? CMD_STALL_RESUME_W0_ABORT : CMD_STALL_RESUME_W0_RETRY;
	cmd.w[1] = FIELD_PREP(CMD_STALL_RESUME_W1_TAG, f->stag);
	cmd.w[2] = FIELD_PREP(CMD_STALL_RESUME_W2_TECT_TAG, f->tag);

	idx = srcu_read_lock(&ummu_srcu);
	u = srcu_dereference(f->dom->units[f->slot], &ummu_srcu);
	/* A unit that left has failed its stalled transactions by itself */
	if (u && u->id == f->unit_id)
		ummu_unit_issue(u, &cmd, 1, false);
	srcu_read_unlock(&ummu_srcu, idx);
	trace_ummu_resume(f->tid, f->stag, f->addr, f->write, err);
}

static bool fault_recoverable(const struct ummu_fault *f)
{
	return f->tag == UMMU_LOCAL_TAG &&
	       (f->code == UMMU_EVT_A_TRANSLATION || f->code == UMMU_EVT_ACCESS ||
		f->code == UMMU_EVT_A_PERMISSION);
}

/* From the event thread: hand over to the process's worker, or refuse at once */
void ummu_fault_queue(struct ummu_unit *u, const struct ummu_fault *f)
{
	struct ummu_domain *dom = u->dom;
	struct ummu_fault *copy = NULL;
	struct ummu_ctx *ctx;

	if (fault_recoverable(f))
		copy = kmemdup(f, sizeof(*f), GFP_KERNEL);
	if (copy) {
		xa_lock(&dom->tids);
		ctx = xa_load(&dom->tids, f->tid);
		/* a kernel TID has no process whose pages could be brought in */
		if (ctx && !ctx->proc->mm)
			ctx = NULL;
		if (ctx) {
			struct ummu_proc *p = ctx->proc;

			copy->svm = ummu_svm_of(ctx);
			spin_lock(&p->fault_lock);
			list_add_tail(&copy->node, &p->faults);
			spin_unlock(&p->fault_lock);
			queue_work(dom->fault_wq, &p->fault_work);
		}
		xa_unlock(&dom->tids);
		if (ctx)
			return;
		kfree(copy);
	}
	fault_answer(f, -EFAULT);
}

static int fault_cmp(void *priv, const struct list_head *la, const struct list_head *lb)
{
	const struct ummu_fault *a = list_entry(la, struct ummu_fault, node);
	const struct ummu_fault *b = list_entry(lb, struct ummu_fault, node);

	if (a->tid != b->tid)
		return a->tid > b->tid ? 1 : -1;
	if (a->addr >> PAGE_SHIFT != b->addr >> PAGE_SHIFT)
		return a->addr > b->addr ? 1 : -1;
	return (int)b->write - (int)a->write;
}

static int fault_shared(struct ummu_proc *p, const struct ummu_fault *f)
{
	unsigned int flags = FAULT_FLAG_REMOTE | FAULT_FLAG_USER;
	unsigned long page = f->addr & PAGE_MASK;
	bool unlocked = false;
	int ret;

	if (f->write)
		flags |= FAULT_FLAG_WRITE;
	if (f->exec)
		flags |= FAULT_FLAG_INSTRUCTION;
	mmap_read_lock(p->mm);
	ret = fixup_user_fault(p->mm, page, flags, &unlocked);
	mmap_read_unlock(p->mm);
	/* The CPU does not tell about permissions that were widened */
	if (!ret && f->code == UMMU_EVT_A_PERMISSION)
		ummu_tlbi_range(p->dom, p->asid, page, page + PAGE_SIZE);
	return ret;
}

static int fault_resolve(struct ummu_proc *p, const struct ummu_fault *f)
{
	u64 page = f->addr >> PAGE_SHIFT;

	/*
	 * Not fixup_user_fault()'s business: it would strip a tag from the
	 * address, find a page, and the device would fault again for ever.
	 */
	if (f->addr >= min_t(u64, TASK_SIZE, BIT_ULL(ummu_arch_user_va_bits())))
		return -EFAULT;
	if (f->svm)
		return ummu_svm_fault(f->svm, f->addr, f->write);
	if (page == p->fault_page && f->write == p->fault_write) {
		if (++p->fault_repeat > FAULT_REPEAT_MAX) {
			p->fault_repeat = 0;
			return -EIO;
		}
	} else {
		p->fault_page = page;
		p->fault_write = f->write;
		p->fault_repeat = 0;
	}
	return p->matt ? ummu_matt_fault(p, f->addr, f->write) : fault_shared(p, f);
}

static void faults_handle(struct ummu_proc *p, struct list_head *faults)
{
	struct ummu_fault *f, *next;
	bool alive = mmget_not_zero(p->mm);
	u64 last_page = U64_MAX;
	bool last_write = false;
	u32 last_tid = 0;
	int ret = -ESRCH;

	list_for_each_entry_safe(f, next, faults, node) {
		bool same = f->addr >> PAGE_SHIFT == last_page && f->tid == last_tid &&
			    (last_write || !f->write);

		if (alive && !same)
			ret = fault_resolve(p, f);
		last_page = f->addr >> PAGE_SHIFT;
		last_tid = f->tid;
		last_write = f->write || (same && last_write);
		if (ret)
			p->faults_aborted++;
		else
			p->faults_retried++;
		fault_answer(f, ret);
		list_del(&f->node);
		ummu_svm_put(f->svm);
		kfree(f);
	}
	if (alive)
		mmput(p->mm);
}

void ummu_fault_work(struct work_struct *work)
{
	struct ummu_proc *p = container_of(work, struct ummu_proc, fault_work);
	LIST_HEAD(faults);

	for (;;) {
		spin_lock(&p->fault_lock);
		list_splice_init(&p->faults, &faults);
		spin_unlock(&p->fault_lock);
		if (list_empty(&faults))
			return;
		list_sort(NULL, &faults, fault_cmp);
		faults_handle(p, &faults);
		cond_resched();
	}
}
