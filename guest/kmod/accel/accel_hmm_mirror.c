// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The mirror: entries of the UMMU's table follow the process's page table.
 *
 * Only the access that the device needs is asked for, and only of the page it
 * needs; neighbours are taken as they are.  So a read of the device leaves
 * shared pages shared and memory that was never written empty.
 */
#include <linux/delay.h>
#include <linux/hmm.h>
#include <linux/hugetlb.h>
#include <linux/jiffies.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "accel_hmm.h"
#include "accel_trace.h"

#define FAULT_LIMIT	msecs_to_jiffies(10000)
#define NEEDS_COW	1	/* no error: shared pages in device memory, to be written */

/* A fault's working space */
struct mirror_walk {
	struct accel_hmm *h;
	u64 start, end;		/* what is mapped */
	u64 addr;		/* what must be, a page */
	bool write;
	unsigned long pfns[VRAM_BLOCK_PAGES];
};

static struct accel_hold *hold_of(struct accel_hmm *h, u64 addr)
{
	return &h->holds[(addr >> PAGE_SHIFT) % ACCEL_HOLDS];
}

/*
 * Without a moment to itself a device never gets its atomic done: CPUs and
 * other devices take the page away between the answer to its fault and its
 * next try, and it takes it away from them in the same way.
 */
static void wait_for_hold(struct accel_hmm *h, u64 addr)
{
	struct accel_hold *hold = hold_of(h, addr);
	u64 now = ktime_get_ns(), until = READ_ONCE(hold->until);
	unsigned int us;

	if (READ_ONCE(hold->addr) != addr || until <= now)
		return;
	us = min_t(u64, div_u64(until - now, NSEC_PER_USEC) + 1, accel_param_hold_us());
	usleep_range(us, us + 100);
}

static bool invalidate(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
		       unsigned long seq)
{
	struct accel_hmm *h = container_of(mni, struct accel_hmm, mni);
	ktime_t t = ktime_get();

	/* our own request for exclusive access */
	if (range->event == MMU_NOTIFY_EXCLUSIVE && range->owner == h)
		return true;
	if (range->event == MMU_NOTIFY_EXCLUSIVE && mmu_notifier_range_blockable(range))
		wait_for_hold(h, range->start);
	if (mmu_notifier_range_blockable(range))
		mutex_lock(&h->lock);
	else if (!mutex_trylock(&h->lock))
		return false;
	/*
	 * A page that is the CPU's again is still the same page, and who takes it
	 * anew has it locked: no reason to begin again, which would revoke it again.
	 */
	if (range->event != MMU_NOTIFY_EXCLUSIVE || range->owner)
		mmu_interval_set_seq(mni, seq);
	if (accel_evicting(h->dev->devmem))
		accel_hmm_count(h, HMM_EVICTIONS, (range->end - range->start) >> PAGE_SHIFT);
	if (ummu_svm_unmap(h->svm, range->start, range->end)) {
		accel_hmm_count(h, HMM_INVALIDATIONS, 1);
		if (range->event == MMU_NOTIFY_EXCLUSIVE)
			accel_hmm_count(h, HMM_EXCLUSIVE_REVOKED, 1);
		trace_accel_hmm_invalidate(h->tid, range->start, range->end, range->event);
	}
	mutex_unlock(&h->lock);
	accel_hmm_lap(h, HMM_NS_INVALIDATE, &t);
	return true;
}

const struct mmu_interval_notifier_ops accel_hmm_mni_ops = {
	.invalidate = invalidate,
};

/* ---------------------------------------------------------------- filling */

static struct page *walk_page(const struct mirror_walk *w, unsigned int i)
{
	return hmm_pfn_to_page(w->pfns[i]);
}

static bool reachable(struct accel_hmm *h, u64 va)
{
	return !(h->flags & ACCEL_HMM_REGISTERED) || accel_hmm_registered(h, va);
}

/* 2 MiB that the CPU maps as a whole: one entry, though only a window was looked at */
static int fill_huge(struct mirror_walk *w)
{
	struct accel_hmm *h = w->h;
	unsigned long pfn = w->pfns[(w->addr - w->start) >> PAGE_SHIFT];
	u64 block = ALIGN_DOWN(w->addr, SZ_2M), va;
	phys_addr_t pa;
	int ret;

	if (!(pfn & HMM_PFN_VALID) || hmm_pfn_to_map_order(pfn) < PMD_SHIFT - PAGE_SHIFT ||
	    PMD_SIZE != SZ_2M)
		return -EAGAIN;
	if (h->flags & ACCEL_HMM_REGISTERED)
		for (va = block; va < block + SZ_2M; va += PAGE_SIZE)
			if (!reachable(h, va))
				return -EAGAIN;
	pa = page_to_phys(hmm_pfn_to_page(pfn)) - (w->addr - block);
	ret = IS_ALIGNED(pa, SZ_2M) ?
	      ummu_svm_map_block(h->svm, block, pa, pfn & HMM_PFN_WRITE) : -EAGAIN;
	if (!ret)
		accel_hmm_count(h, HMM_BLOCKS_MAPPED, 1);
	return ret;
}

/* A whole block whose pages follow each other, in VRAM: one entry as well */
static int fill_contiguous(struct mirror_walk *w)
{
	struct accel_devmem *dm = w->h->dev->devmem;
	unsigned long rights = w->pfns[0] & (HMM_PFN_VALID | HMM_PFN_WRITE);
	phys_addr_t pa;
	unsigned int i;
	int ret;

	if (w->end - w->start != SZ_2M || !IS_ALIGNED(w->start, SZ_2M) || !(rights & HMM_PFN_VALID))
		return -EAGAIN;
	pa = accel_page_phys(dm, walk_page(w, 0));
	if (!IS_ALIGNED(pa, SZ_2M))
		return -EAGAIN;
	for (i = 1; i < VRAM_BLOCK_PAGES; i++)
		if ((w->pfns[i] & (HMM_PFN_VALID | HMM_PFN_WRITE)) != rights ||
		    accel_page_phys(dm, walk_page(w, i)) != pa + i * PAGE_SIZE ||
		    !reachable(w->h, w->start + i * PAGE_SIZE))
			return -EAGAIN;
	ret = ummu_svm_map_block(w->h->svm, w->start, pa, rights & HMM_PFN_WRITE);
	if (!ret)
		accel_hmm_count(w->h, HMM_BLOCKS_MAPPED, 1);
	return ret;
}

/* accel_hmm.lock held, the range is as it was looked at */
static int fill(struct mirror_walk *w)
{
	struct accel_hmm *h = w->h;
	struct accel_devmem *dm = h->dev->devmem;
	unsigned int i, mapped = 0;
	u64 va = w->start;
	int ret;

	ret = fill_huge(w);
	if (ret == -EAGAIN)
		ret = fill_contiguous(w);
	if (ret != -EAGAIN)
		return ret;
	for (i = 0; va < w->end; i++, va += PAGE_SIZE) {
		unsigned long pfn = w->pfns[i];

		if (!(pfn & HMM_PFN_VALID) || !reachable(h, va) ||
		    ummu_svm_allows(h->svm, va, pfn & HMM_PFN_WRITE))
			continue;
		ret = ummu_svm_map(h->svm, va, accel_page_phys(dm, walk_page(w, i)),
				   pfn & HMM_PFN_WRITE);
		if (ret)
			return ret;
		if (accel_vram_owns(dm, walk_page(w, i)))
			accel_vram_touch(dm, walk_page(w, i));
		mapped++;
	}
	accel_hmm_count(h, HMM_PAGES_MAPPED, mapped);
	return 0;
}

/* Under mmap_lock */
static int look(struct mirror_walk *w, unsigned long seq, u64 start, u64 end, unsigned long flags)
{
	struct accel_hmm *h = w->h;
	struct hmm_range range = {
		.notifier = &h->mni,
		.notifier_seq = seq,
		.start = start,
		.end = end,
		.hmm_pfns = &w->pfns[(start - w->start) >> PAGE_SHIFT],
		.default_flags = flags,
		.dev_private_owner = h->dev->devmem,
	};

	memset(range.hmm_pfns, 0, ((end - start) >> PAGE_SHIFT) * sizeof(*range.hmm_pfns));
	return hmm_range_fault(&range);
}

/* In our device memory and not to be written: shared with another process */
static bool shared_vram(struct accel_hmm *h, unsigned long pfn)
{
	return (pfn & HMM_PFN_VALID) && !(pfn & HMM_PFN_WRITE) &&
	       accel_vram_owns(h->dev->devmem, hmm_pfn_to_page(pfn));
}

/*
 * The wanted page, then what is there around it.  Not in one call: the kernel
 * faults everything behind a page that faults, as it does that page.
 */
static int collect(struct mirror_walk *w, unsigned int want, unsigned long seq)
{
	unsigned long flags = HMM_PFN_REQ_FAULT | (w->write ? HMM_PFN_REQ_WRITE : 0);
	u64 next = w->addr + PAGE_SIZE;
	int ret;

	ret = mmap_read_lock_killable(w->h->mm);
	if (ret)
		return ret;
	/* a shared page that the CPU can reach would be copied by the kernel, past break_cow() */
	if (w->write && accel_param_mode() == ACCEL_HMM_COHERENT) {
		ret = look(w, seq, w->addr, next, 0);
		if (ret || shared_vram(w->h, w->pfns[want]))
			goto out;
	}
	ret = look(w, seq, w->addr, next, flags);
	if (!ret && w->end - w->start > PAGE_SIZE)
		ret = look(w, seq, w->start, w->end, 0);
out:
	mmap_read_unlock(w->h->mm);
	return ret;
}

/* One try; -EBUSY: the process changed the range meanwhile */
static int mirror_try(struct mirror_walk *w)
{
	struct accel_hmm *h = w->h;
	unsigned int want = (w->addr - w->start) >> PAGE_SHIFT;
	unsigned long seq = mmu_interval_read_begin(&h->mni);
	ktime_t t = ktime_get();
	int ret;

	ret = collect(w, want, seq);
	accel_hmm_lap(h, HMM_NS_COLLECT, &t);
	if (ret)
		return ret;
	if (!(w->pfns[want] & HMM_PFN_VALID))
		return mmu_interval_read_retry(&h->mni, seq) ? -EBUSY : -EFAULT;
	/* of our own device memory the kernel does not ask for more than is there */
	if (w->write && !(w->pfns[want] & HMM_PFN_WRITE))
		return NEEDS_COW;

	mutex_lock(&h->lock);
	if (mmu_interval_read_retry(&h->mni, seq))
		ret = -EBUSY;
	else
		ret = fill(w);
	mutex_unlock(&h->lock);
	accel_hmm_lap(h, HMM_NS_MAP, &t);
	return ret;
}

/* ---------------------------------------------------------------- copy on write */

/* Pages around w->addr that lie in device memory and may not be written: [*first, *last] */
static int shared_run(struct mirror_walk *w, u64 *first, u64 *last)
{
	u64 block = ALIGN_DOWN(w->addr, SZ_2M), start = w->start, end = w->end;
	struct accel_hmm *h = w->h;
	struct vm_area_struct *vma;
	unsigned int n, i, j;
	int ret;

	ret = mmap_read_lock_killable(h->mm);
	if (ret)
		return ret;
	vma = vma_lookup(h->mm, w->addr);
	ret = -EFAULT;
	if (vma) {
		/* not only where the fault maps: the knob speaks of the run as it is */
		w->start = max_t(u64, block, vma->vm_start);
		w->end = min_t(u64, block + SZ_2M, vma->vm_end);
		ret = look(w, mmu_interval_read_begin(&h->mni), w->start, w->end, 0);
	}
	mmap_read_unlock(h->mm);
	if (!ret) {
		n = (w->end - w->start) >> PAGE_SHIFT;
		i = (w->addr - w->start) >> PAGE_SHIFT;
		j = i;
		while (i && shared_vram(h, w->pfns[i - 1]))
			i--;
		while (j + 1 < n && shared_vram(h, w->pfns[j + 1]))
			j++;
		*first = w->start + i * PAGE_SIZE;
		*last = w->start + j * PAGE_SIZE;
	}
	w->start = start;
	w->end = end;
	return ret;
}

/*
 * As if the CPU wrote.  Private memory is none to the CPU: the first fault only
 * brings the page home, still shared, the second copies it.
 */
static int cpu_write(struct accel_hmm *h, u64 addr)
{
	unsigned int faults = accel_param_mode() == ACCEL_HMM_PRIVATE ? 2 : 1;
	bool unlocked;
	int ret = 0;

	while (faults-- && !ret) {
		ret = mmap_read_lock_killable(h->mm);
		if (ret)
			break;
		unlocked = false;
		ret = fixup_user_fault(h->mm, addr, FAULT_FLAG_WRITE | FAULT_FLAG_REMOTE,
				       &unlocked);
		mmap_read_unlock(h->mm);
	}
	return ret;
}

/*
 * The device writes to shared pages in its memory.  The CPU's fault handler
 * knows whether they may be written and copies them.  A long run goes back to
 * the device afterwards; a short one is used where the copy is.
 */
static int break_cow(struct mirror_walk *w)
{
	struct accel_hmm *h = w->h;
	u64 first, last, addr, moved = 0;
	bool all;
	int ret;

	ret = shared_run(w, &first, &last);
	if (ret)
		return ret;
	all = last + PAGE_SIZE - first >= accel_param_cow_threshold();
	if (!all) {
		first = w->addr;
		last = w->addr;
	}
	for (addr = first; addr <= last && !ret; addr += PAGE_SIZE) {
		ret = cpu_write(h, addr);
		if (!ret)
			accel_hmm_count(h, all ? HMM_COW_MIGRATED : HMM_COW_COPIED, 1);
	}
	if (!ret && all)
		accel_move_to_device(h, first, last + PAGE_SIZE, false, &moved);
	return ret;
}

static int mirror_walk(struct mirror_walk *w)
{
	unsigned long limit = jiffies + FAULT_LIMIT;
	int ret;

	do {
		ret = mirror_try(w);
		if (ret == NEEDS_COW)
			ret = break_cow(w) ?: -EBUSY;
		if (ret == -EBUSY) {
			accel_hmm_count(w->h, HMM_RETRIES, 1);
			cond_resched();
		}
		if (fatal_signal_pending(current))
			return -EINTR;
	} while (ret == -EBUSY && time_before(jiffies, limit));
	return ret;
}

/* Map what is there of [@start, @end), at most a block, and bring in the page at @addr */
int accel_hmm_map(struct accel_hmm *h, u64 addr, u64 start, u64 end, bool write)
{
	struct mirror_walk *w = kvmalloc(sizeof(*w), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!w)
		return -ENOMEM;
	w->h = h;
	w->addr = ALIGN_DOWN(addr, PAGE_SIZE);
	w->start = start;
	w->end = end;
	w->write = write;
	ret = mirror_walk(w);
	kvfree(w);
	return ret;
}

/* ---------------------------------------------------------------- exclusive */

static int exclusive_try(struct accel_hmm *h, u64 addr)
{
	struct accel_hold *hold = hold_of(h, addr);
	struct vm_area_struct *vma;
	struct page *page = NULL;
	unsigned long seq;
	int ret;

	seq = mmu_interval_read_begin(&h->mni);
	ret = mmap_read_lock_killable(h->mm);
	if (ret)
		return ret;
	vma = vma_lookup(h->mm, addr);
	if (!vma)
		ret = -EFAULT;
	else if (!vma_is_anonymous(vma) || is_vm_hugetlb_page(vma))
		ret = -EOPNOTSUPP;
	else
		ret = make_device_exclusive_range(h->mm, addr, addr + PAGE_SIZE, &page, h);
	mmap_read_unlock(h->mm);
	if (ret < 0)
		return ret;
	if (!page)
		return -EBUSY;
	mutex_lock(&h->lock);
	if (mmu_interval_read_retry(&h->mni, seq))
		ret = -EBUSY;
	else
		ret = ummu_svm_map(h->svm, addr, page_to_phys(page), true);
	if (!ret) {
		WRITE_ONCE(hold->addr, addr);
		WRITE_ONCE(hold->until, ktime_get_ns() + accel_param_hold_us() * NSEC_PER_USEC);
	}
	mutex_unlock(&h->lock);
	unlock_page(page);
	put_page(page);
	return ret;
}

/*
 * The page is the device's alone until the CPU touches it.  Who has the page
 * locked may be a CPU that waits for our TLB invalidation: not a matter of a
 * few tries, but of time.
 */
int accel_hmm_exclusive(struct accel_hmm *h, u64 addr)
{
	unsigned long limit = jiffies + FAULT_LIMIT;
	int ret;

	do {
		ret = exclusive_try(h, addr);
		if (ret == -EBUSY) {
			accel_hmm_count(h, HMM_RETRIES, 1);
			usleep_range(20, 100);
		}
		if (fatal_signal_pending(current))
			return -EINTR;
	} while (ret == -EBUSY && time_before(jiffies, limit));
	if (!ret)
		accel_hmm_count(h, HMM_EXCLUSIVE, 1);
	return ret;
}

/* ---------------------------------------------------------------- faults */

/* From ummu.ko's worker, one at a time per mirror */
int accel_hmm_fault(void *priv, u64 addr, bool write)
{
	struct accel_hmm *h = priv;
	u64 page = ALIGN_DOWN(addr, PAGE_SIZE), window = accel_param_window();
	struct accel_verdict v;
	u64 moved = 0;
	ktime_t t = ktime_get();
	int ret;

	accel_hmm_count(h, write ? HMM_FAULTS_WRITE : HMM_FAULTS_READ, 1);
	if (!reachable(h, page)) {
		accel_hmm_count(h, HMM_FAULTS_DENIED, 1);
		ret = -EACCES;
		goto out;
	}
	v = accel_hmm_touch(h, page, write);
	if (v.exclusive) {
		ret = accel_hmm_exclusive(h, page);
		goto out;
	}
	if (v.migrate) {
		u64 chunk = accel_param_chunk(), start = ALIGN_DOWN(page, chunk);
		u64 end = start + chunk;

		/* whatever does not move is mirrored where it is */
		accel_hmm_like(h, page, &start, &end);
		accel_move_to_device(h, start, end, v.pinned, &moved);
		window = chunk;
	}
	ret = accel_hmm_map(h, page, ALIGN_DOWN(page, window), ALIGN_DOWN(page, window) + window,
			    write);
out:
	if (ret)
		accel_hmm_count(h, HMM_FAULTS_FAILED, 1);
	trace_accel_hmm_fault(h->tid, addr, write, moved,
			      ktime_to_ns(ktime_sub(ktime_get(), t)), ret);
	return ret;
}

/* ---------------------------------------------------------------- snapshot */

static u8 snapshot_byte(struct accel_hmm *h, unsigned long pfn)
{
	u8 byte = ACCEL_SNAP_READ;
	struct page *page;

	if (pfn & HMM_PFN_ERROR)
		return ACCEL_SNAP_ERROR;
	if (!(pfn & HMM_PFN_VALID))
		return ACCEL_SNAP_NONE;
	page = hmm_pfn_to_page(pfn);
	if (pfn & HMM_PFN_WRITE)
		byte |= ACCEL_SNAP_WRITE;
	if (hmm_pfn_to_map_order(pfn) >= PMD_SHIFT - PAGE_SHIFT)
		byte |= ACCEL_SNAP_HUGE;
	if (accel_vram_owns(h->dev->devmem, page))
		byte |= ACCEL_SNAP_LOCAL;
	else if (is_zone_device_page(page))
		byte |= ACCEL_SNAP_REMOTE;
	else if (is_zero_pfn(page_to_pfn(page)))
		byte |= ACCEL_SNAP_ZERO;
	return byte;
}

static int snapshot_piece(struct accel_hmm *h, u64 start, u64 end, unsigned long *pfns, u8 *bytes)
{
	unsigned long limit = jiffies + FAULT_LIMIT;
	unsigned int n = (end - start) >> PAGE_SHIFT, i;
	struct hmm_range range = {
		.notifier = &h->mni,
		.start = start,
		.end = end,
		.hmm_pfns = pfns,
		.dev_private_owner = h->dev->devmem,
	};
	int ret;

	do {
		memset(pfns, 0, n * sizeof(*pfns));
		range.notifier_seq = mmu_interval_read_begin(range.notifier);
		ret = mmap_read_lock_killable(h->mm);
		if (ret)
			return ret;
		ret = hmm_range_fault(&range);
		mmap_read_unlock(h->mm);
		if (!ret && mmu_interval_read_retry(range.notifier, range.notifier_seq))
			ret = -EBUSY;
	} while (ret == -EBUSY && time_before(jiffies, limit) && !fatal_signal_pending(current));
	for (i = 0; i < n && !ret; i++)
		bytes[i] = snapshot_byte(h, pfns[i]);
	return ret;
}

/* One byte per page, as the process's page table stands; nothing is brought in */
int accel_hmm_snapshot(struct accel_hmm *h, u64 start, u64 end, u8 __user *out)
{
	struct mirror_walk *w = kvmalloc(sizeof(*w), GFP_KERNEL_ACCOUNT);
	u8 *bytes = kvmalloc(VRAM_BLOCK_PAGES, GFP_KERNEL_ACCOUNT);
	int ret = w && bytes ? 0 : -ENOMEM;

	while (!ret && start < end) {
		u64 stop = min_t(u64, end, start + SZ_2M);

		ret = snapshot_piece(h, start, stop, w->pfns, bytes);
		if (!ret && copy_to_user(out, bytes, (stop - start) >> PAGE_SHIFT))
			ret = -EFAULT;
		out += (stop - start) >> PAGE_SHIFT;
		start = stop;
	}
	kvfree(bytes);
	kvfree(w);
	return ret;
}
