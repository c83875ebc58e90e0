// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Separated mode: the driver builds a page table of its own for the UMMU.
 *
 * DOC: overview
 *
 * Four levels of 4 KiB tables in VMSAv8-64 format, filled when the device
 * faults and emptied by the interval notifier: a mirror of the process's page
 * table, nothing is pinned.  The table exists on every architecture; where the
 * CPU's tables have the UMMU's format, "shared" mode needs none of this.
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

#define LEVELS		4
#define INDEX_BITS	9
#define ENTRIES		BIT(INDEX_BITS)
#define TABLE_SHIFT	12
#define WINDOW		16u	/* pages looked at around a fault */
#define FAULT_LIMIT	msecs_to_jiffies(1000)

#define DESC_VALID	BIT_ULL(0)
#define DESC_TABLE	BIT_ULL(1)	/* table, or page at the last level */
#define DESC_EL0	BIT_ULL(6)
#define DESC_RDONLY	BIT_ULL(7)
#define DESC_INNER_SH	(3ull << 8)
#define DESC_AF		BIT_ULL(10)
#define DESC_NG		BIT_ULL(11)
#define DESC_XN		(3ull << 53)
#define DESC_ADDR	GENMASK_ULL(47, 12)
#define DESC_LEAF	(DESC_VALID | DESC_TABLE | DESC_EL0 | DESC_INNER_SH | DESC_AF | \
			 DESC_NG | DESC_XN)

struct ummu_matt {
	struct ummu_proc *proc;
	struct mutex lock;	/* entries of the table, against the notifier */
	__le64 *root;
#if IS_ENABLED(CONFIG_HMM_MIRROR)
	struct mmu_interval_notifier mni;
#endif
};

phys_addr_t ummu_matt_root(struct ummu_proc *p)
{
	return virt_to_phys(p->matt->root);
}

#if IS_ENABLED(CONFIG_HMM_MIRROR) && PAGE_SHIFT == TABLE_SHIFT

static unsigned int matt_index(u64 va, unsigned int level)
{
	return va >> (TABLE_SHIFT + (LEVELS - 1 - level) * INDEX_BITS) & (ENTRIES - 1);
}

static u64 matt_span(unsigned int level)
{
	return BIT_ULL(TABLE_SHIFT + (LEVELS - 1 - level) * INDEX_BITS);
}

static __le64 *desc_table(__le64 desc)
{
	return phys_to_virt(le64_to_cpu(desc) & DESC_ADDR);
}

static void matt_free_level(__le64 *table, unsigned int level)
{
	unsigned int i;

	if (level < LEVELS - 1)
		for (i = 0; i < ENTRIES; i++)
			if (table[i])
				matt_free_level(desc_table(table[i]), level + 1);
	free_page((unsigned long)table);
}

/* Table of the last level for @va; tables are made under the lock */
static __le64 *matt_walk(struct ummu_matt *m, u64 va, bool make)
{
	__le64 *table = m->root;
	unsigned int level;

	for (level = 0; level < LEVELS - 1; level++) {
		__le64 *e = &table[matt_index(va, level)];
		__le64 *next;

		if (!*e) {
			if (!make)
				return NULL;
			next = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
			if (!next)
				return NULL;
			dma_wmb();
			WRITE_ONCE(*e, cpu_to_le64(virt_to_phys(next) | DESC_TABLE | DESC_VALID));
		}
		table = desc_table(*e);
	}
	return table;
}

static bool matt_zap_level(__le64 *table, unsigned int level, u64 base, u64 start, u64 end)
{
	u64 span = matt_span(level);
	unsigned int i = start > base ? (start - base) / span : 0;
	bool any = false;

	for (; i < ENTRIES && base + i * span < end; i++) {
		if (!table[i])
			continue;
		if (level == LEVELS - 1) {
			WRITE_ONCE(table[i], 0);
			any = true;
		} else {
			any |= matt_zap_level(desc_table(table[i]), level + 1, base + i * span,
					      start, end);
		}
	}
	return any;
}

/* Empties the entries; tables stay until the process ends */
static void matt_zap(struct ummu_matt *m, u64 start, u64 end)
{
	end = min_t(u64, end, BIT_ULL(UMMU_VA_BITS));
	if (start < end && matt_zap_level(m->root, 0, 0, start, end))
		ummu_tlbi_range(m->proc->dom, m->proc->asid, start, end);
}

static bool matt_invalidate(struct mmu_interval_notifier *mni,
			    const struct mmu_notifier_range *range, unsigned long seq)
{
	struct ummu_matt *m = container_of(mni, struct ummu_matt, mni);

	if (mmu_notifier_range_blockable(range))
		mutex_lock(&m->lock);
	else if (!mutex_trylock(&m->lock))
		return false;
	mmu_interval_set_seq(mni, seq);
	matt_zap(m, range->start, range->end);
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
	__le64 *table;

	for (i = 0; va < range->end; i++, va += PAGE_SIZE) {
		unsigned long pfn = range->hmm_pfns[i];
		u64 desc;

		if (!(pfn & HMM_PFN_VALID))
			continue;
		table = matt_walk(m, va, true);
		if (!table)
			return -ENOMEM;
		desc = (page_to_phys(hmm_pfn_to_page(pfn)) & DESC_ADDR) | DESC_LEAF;
		if (!(pfn & HMM_PFN_WRITE))
			desc |= DESC_RDONLY;
		WRITE_ONCE(table[matt_index(va, LEVELS - 1)], cpu_to_le64(desc));
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
	m->root = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!m->root) {
		kfree(m);
		return -ENOMEM;
	}
	ret = mmu_interval_notifier_insert(&m->mni, p->mm, 0, ULONG_MAX & PAGE_MASK,
					   &matt_mni_ops);
	if (ret) {
		free_page((unsigned long)m->root);
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
	ummu_tlbi_asid(p->dom, p->asid);
	matt_free_level(m->root, 0);
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
