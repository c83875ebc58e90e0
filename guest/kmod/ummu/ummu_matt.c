// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Separated mode: the driver builds a page table of its own for the UMMU.
 *
 * DOC: overview
 *
 * The table (ummu_table.c) is filled when the device faults and emptied by the
 * interval notifier: a mirror of the process's page table, nothing is pinned.
 * It exists on every architecture; where the CPU's tables have the UMMU's
 * format, "shared" mode needs none of this.
 *
 * DOC: locking
 *
 * ummu_matt.lock is "driver->update" of Documentation/mm/hmm.rst: entries are
 * written under it after mmu_interval_read_retry(), and zapped under it by the
 * notifier, which invalidates the UMMU's TLB before it returns.
 */
#include <linux/gfp.h>
#include <linux/hmm.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/slab.h>

#include "ummu.h"

#define TABLE_SHIFT	12
#define WINDOW		16u	/* pages looked at around a fault */
#define FAULT_LIMIT	msecs_to_jiffies(1000)

struct ummu_matt {
	struct ummu_proc *proc;
	struct mutex lock;	/* entries of the table, against the notifier */
	struct ummu_table table;
#if IS_ENABLED(CONFIG_HMM_MIRROR)
	struct mmu_interval_notifier mni;
#endif
};

phys_addr_t ummu_matt_root(struct ummu_proc *p)
{
	return ummu_table_root(&p->matt->table);
}

#if IS_ENABLED(CONFIG_HMM_MIRROR) && PAGE_SHIFT == TABLE_SHIFT

static bool matt_invalidate(struct mmu_interval_notifier *mni,
			    const struct mmu_notifier_range *range, unsigned long seq)
{
	struct ummu_matt *m = container_of(mni, struct ummu_matt, mni);

	if (mmu_notifier_range_blockable(range))
		mutex_lock(&m->lock);
	else if (!mutex_trylock(&m->lock))
		return false;
	mmu_interval_set_seq(mni, seq);
	ummu_table_zap(&m->table, range->start, range->end);
	mutex_unlock(&m->lock);
	return true;
}

static const struct mmu_interval_notifier_ops matt_mni_ops = {
	.invalidate = matt_invalidate,
};

static int matt_fill(struct ummu_matt *m, struct hmm_range *range)
{
	u64 va = range->start;
	unsigned int i;
	int ret;

	for (i = 0; va < range->end; i++, va += PAGE_SIZE) {
		unsigned long pfn = range->hmm_pfns[i];

		if (!(pfn & HMM_PFN_VALID))
			continue;
		ret = ummu_table_map(&m->table, va, page_to_phys(hmm_pfn_to_page(pfn)),
				     pfn & HMM_PFN_WRITE);
		if (ret)
			return ret;
	}
	dma_wmb();
	return 0;
}

/* Only the faulting page is asked for; neighbours are taken as they are */
static int matt_try_fault(struct ummu_matt *m, struct hmm_range *range, u64 addr, bool write)
{
	unsigned int want = (addr - range->start) >> PAGE_SHIFT;
	struct mm_struct *mm = m->proc->mm;
	int ret;

	memset(range->hmm_pfns, 0, WINDOW * sizeof(*range->hmm_pfns));
	range->hmm_pfns[want] = HMM_PFN_REQ_FAULT | (write ? HMM_PFN_REQ_WRITE : 0);
	range->notifier_seq = mmu_interval_read_begin(range->notifier);

	mmap_read_lock(mm);
	ret = hmm_range_fault(range);
	mmap_read_unlock(mm);
	if (ret)
		return ret;

	mutex_lock(&m->lock);
	if (mmu_interval_read_retry(range->notifier, range->notifier_seq))
		ret = -EBUSY;
	else
		ret = matt_fill(m, range);
	mutex_unlock(&m->lock);
	return ret;
}

/* The process is alive: the caller holds mm_users */
int ummu_matt_fault(struct ummu_proc *p, u64 addr, bool write)
{
	unsigned long limit = jiffies + FAULT_LIMIT;
	unsigned long pfns[WINDOW];
	struct hmm_range range = {
		.notifier = &p->matt->mni,
		.hmm_pfns = pfns,
		.pfn_flags_mask = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE,
		.dev_private_owner = p->matt,
	};
	int ret;

	range.start = ALIGN_DOWN(addr, WINDOW * PAGE_SIZE);
	range.end = range.start + WINDOW * PAGE_SIZE;
	do {
		ret = matt_try_fault(p->matt, &range, addr & PAGE_MASK, write);
	} while (ret == -EBUSY && time_before(jiffies, limit));
	/* a cached read-only translation must not answer the retry */
	if (!ret && write)
		ummu_tlbi_range(p->dom, p->asid, addr & PAGE_MASK, (addr & PAGE_MASK) + PAGE_SIZE);
	return ret;
}

int ummu_matt_create(struct ummu_proc *p)
{
	struct ummu_matt *m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!m)
		return -ENOMEM;
	m->proc = p;
	mutex_init(&m->lock);
	ret = ummu_table_init(&m->table, p->dom, p->asid);
	if (ret) {
		kfree(m);
		return ret;
	}
	ret = mmu_interval_notifier_insert(&m->mni, p->mm, 0, ULONG_MAX & PAGE_MASK,
					   &matt_mni_ops);
	if (ret) {
		ummu_table_free(&m->table);
		kfree(m);
		return ret;
	}
	p->matt = m;
	return 0;
}

/* No context of the process is live any more */
void ummu_matt_destroy(struct ummu_proc *p)
{
	struct ummu_matt *m = p->matt;

	if (!m)
		return;
	mmu_interval_notifier_remove(&m->mni);
	ummu_table_free(&m->table);
	mutex_destroy(&m->lock);
	kfree(m);
	p->matt = NULL;
}

#else /* no HMM, or pages of another size */

int ummu_matt_fault(struct ummu_proc *p, u64 addr, bool write)
{
	return -EOPNOTSUPP;
}

int ummu_matt_create(struct ummu_proc *p)
{
	return -EOPNOTSUPP;
}

void ummu_matt_destroy(struct ummu_proc *p)
{
}
#endif
