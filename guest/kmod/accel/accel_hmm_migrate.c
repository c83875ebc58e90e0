// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pages move between system and device memory.  The device copies; the CPU
 * never touches the data.
 */
#include <linux/highmem.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "accel_hmm.h"
#include "accel_trace.h"

static void no_pages(struct accel_move *mv, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		mv->src[i] &= ~MIGRATE_PFN_MIGRATE;
}

static unsigned int pages_moved(const struct accel_move *mv, unsigned int n)
{
	unsigned int i, moved = 0;

	for (i = 0; i < n; i++)
		moved += mv->dst[i] && mv->src[i] & MIGRATE_PFN_MIGRATE;
	return moved;
}

/* Pair what was collected with the pages taken from the pool */
static void pair_device(struct accel_devmem *dm, struct accel_move *mv, struct vm_area_struct *vma,
			unsigned int n)
{
	bool writable = vma->vm_flags & VM_WRITE;
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct page *from = migrate_pfn_to_page(mv->src[i]);
		phys_addr_t to;

		if (!(mv->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		zone_device_page_init(mv->vram[i]);
		to = accel_vram_phys(dm, mv->vram[i]);
		accel_vram_came_from(dm, mv->vram[i], from ? page_to_nid(from) : numa_mem_id());
		mv->dst[i] = migrate_pfn(page_to_pfn(mv->vram[i]));
		if ((mv->src[i] & MIGRATE_PFN_WRITE) || (!from && writable))
			mv->dst[i] |= MIGRATE_PFN_WRITE;
		mv->vram[i] = NULL;
		if (from) {
			mv->from[mv->copies] = page_to_phys(from);
			mv->to[mv->copies++] = to;
		} else {
			mv->zero[mv->zeros++] = to;
		}
	}
}

/* One vma, one chunk; mmap_lock held.  The room is there before pages are locked */
static int chunk_to_device(struct accel_hmm *h, struct vm_area_struct *vma, u64 start, u64 end,
			   bool pinned, struct accel_move *mv)
{
	struct accel_devmem *dm = h->dev->devmem;
	unsigned int n = (end - start) >> PAGE_SHIFT;
	bool whole = n == VRAM_BLOCK_PAGES && IS_ALIGNED(start, SZ_2M);
	ktime_t t = ktime_get();
	struct migrate_vma args = {
		.vma = vma,
		.src = mv->src,
		.dst = mv->dst,
		.start = start,
		.end = end,
		.pgmap_owner = dm,
		.flags = MIGRATE_VMA_SELECT_SYSTEM,
	};
	unsigned int moved;
	int ret;

	memset(mv, 0, sizeof(*mv));
	if (!accel_vram_alloc(dm, n, whole, pinned, mv->vram) &&
	    !(accel_vram_make_room(dm, n, whole) &&
	      accel_vram_alloc(dm, n, whole, pinned, mv->vram)) &&
	    !accel_vram_alloc(dm, n, false, pinned, mv->vram))
		return -ENOSPC;
	ret = migrate_vma_setup(&args);
	accel_hmm_lap(h, HMM_NS_COLLECT, &t);
	if (ret) {
		accel_vram_release(dm, mv->vram, n);
		return ret;
	}
	pair_device(dm, mv, vma, n);
	ret = accel_dma_run(h->dev->dma, mv);
	accel_hmm_lap(h, HMM_NS_COPY, &t);
	if (ret)
		no_pages(mv, n);
	migrate_vma_pages(&args);
	moved = pages_moved(mv, n);
	migrate_vma_finalize(&args);
	accel_hmm_lap(h, HMM_NS_MAP, &t);
	accel_vram_release(dm, mv->vram, n);
	accel_hmm_count(h, HMM_TO_DEVICE, moved);
	accel_hmm_count(h, HMM_ZEROED, mv->zeros);
	trace_accel_hmm_migrate(h->tid, start, n, moved, true, ret);
	return ret ?: (int)moved;
}

/*
 * Pair what was collected with pages of system memory: where the process runs
 * or its policy says, or, for an eviction, on the node that the data came from.
 */
static void pair_system(struct accel_devmem *dm, struct accel_move *mv, struct vm_area_struct *vma,
			u64 start, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct page *from = migrate_pfn_to_page(mv->src[i]);
		struct page *to;

		if (!from || !(mv->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		to = vma ? alloc_page_vma(GFP_HIGHUSER_MOVABLE | __GFP_NOWARN, vma,
					  start + i * PAGE_SIZE) :
			   alloc_pages_node(accel_vram_home(dm, from),
					    GFP_HIGHUSER_MOVABLE | __GFP_NOWARN, 0);
		if (!to)
			continue;
		lock_page(to);
		mv->dst[i] = migrate_pfn(page_to_pfn(to));
		if (mv->src[i] & MIGRATE_PFN_WRITE)
			mv->dst[i] |= MIGRATE_PFN_WRITE;
		mv->from[mv->copies] = accel_page_phys(dm, from);
		mv->to[mv->copies++] = page_to_phys(to);
	}
}

static int range_to_system(struct accel_hmm *h, struct accel_devmem *dm, struct vm_area_struct *vma,
			   u64 start, u64 end, struct page *fault_page, struct accel_move *mv)
{
	unsigned int n = (end - start) >> PAGE_SHIFT;
	ktime_t t = ktime_get();
	struct migrate_vma args = {
		.vma = vma,
		.src = mv->src,
		.dst = mv->dst,
		.start = start,
		.end = end,
		.pgmap_owner = dm,
		.fault_page = fault_page,
		.flags = dm->pgmap.type == MEMORY_DEVICE_COHERENT ?
			 MIGRATE_VMA_SELECT_DEVICE_COHERENT : MIGRATE_VMA_SELECT_DEVICE_PRIVATE,
	};
	unsigned int moved;
	int ret;

	memset(mv, 0, sizeof(*mv));
	ret = migrate_vma_setup(&args);
	accel_hmm_lap(h, HMM_NS_COLLECT, &t);
	if (ret)
		return ret;
	pair_system(dm, mv, vma, start, n);
	ret = accel_dma_run(dm->dev->dma, mv);
	accel_hmm_lap(h, HMM_NS_COPY, &t);
	if (ret)
		no_pages(mv, n);
	migrate_vma_pages(&args);
	moved = pages_moved(mv, n);
	migrate_vma_finalize(&args);
	accel_hmm_lap(h, HMM_NS_MAP, &t);
	accel_hmm_count(h, HMM_TO_SYSTEM, moved);
	trace_accel_hmm_migrate(h ? h->tid : 0, start, n, moved, false, ret);
	return ret ?: (int)moved;
}

/*
 * What other devices have of it comes home first: no device reads private
 * memory of another.  For them it is as if a CPU had taken it back.
 */
static void chunk_from_others(struct accel_hmm *h, struct vm_area_struct *vma, u64 start, u64 end,
			      struct accel_move *mv)
{
	struct accel_devmem *dm;
	struct accel_hmm *loser;

	if (down_read_killable(&accel_devmems_sem))
		return;
	list_for_each_entry(dm, &accel_devmems, node) {
		/* an empty pool is not worth a walk of the page table */
		if (dm == h->dev->devmem || accel_vram_empty(dm) ||
		    range_to_system(h, dm, vma, start, end, NULL, mv) <= 0)
			continue;
		loser = accel_hmm_find(dm->dev, h->mm);
		if (loser)
			accel_hmm_returned(loser, start);
		accel_hmm_put(loser);
	}
	up_read(&accel_devmems_sem);
}

/* Call chunk_to_device() or range_to_system() for each piece of a range of a living process */
static int move_pieces(struct accel_hmm *h, u64 start, u64 end, bool to_device, bool pinned,
		       u64 *moved)
{
	u64 chunk = accel_param_chunk();
	struct accel_move *mv = kvmalloc(sizeof(*mv), GFP_KERNEL_ACCOUNT);
	u64 addr = start;
	int ret = 0;

	if (!mv)
		return -ENOMEM;
	while (addr < end && ret >= 0) {
		struct vm_area_struct *vma;
		u64 stop = min(end, ALIGN_DOWN(addr, chunk) + chunk);

		ret = mmap_read_lock_killable(h->mm);
		if (ret)
			break;
		vma = vma_lookup(h->mm, addr);
		if (vma) {
			stop = min_t(u64, stop, vma->vm_end);
			if (to_device) {
				chunk_from_others(h, vma, addr, stop, mv);
				ret = chunk_to_device(h, vma, addr, stop, pinned, mv);
			} else {
				ret = range_to_system(h, h->dev->devmem, vma, addr, stop, NULL, mv);
			}
		} else {
			ret = -EFAULT;
		}
		mmap_read_unlock(h->mm);
		if (ret > 0)
			*moved += ret;
		addr = stop;
		if (fatal_signal_pending(current))
			ret = -EINTR;
		cond_resched();
	}
	kvfree(mv);
	return ret < 0 ? ret : 0;
}

/* @moved grows by the pages that moved; what cannot move stays, without an error */
int accel_move_to_device(struct accel_hmm *h, u64 start, u64 end, bool pinned, u64 *moved)
{
	if (!h->dev->devmem)
		return -EOPNOTSUPP;
	return move_pieces(h, start, end, true, pinned, moved);
}

int accel_move_to_system(struct accel_hmm *h, u64 start, u64 end, u64 *moved)
{
	if (!h->dev->devmem)
		return -EOPNOTSUPP;
	return move_pieces(h, start, end, false, false, moved);
}

/* Nothing of what lay there before may be seen in place of data that is lost */
static void clear_targets(struct accel_move *mv)
{
	unsigned int i;

	for (i = 0; i < VRAM_BLOCK_PAGES; i++)
		if (migrate_pfn_to_page(mv->dst[i]))
			clear_highpage(migrate_pfn_to_page(mv->dst[i]));
}

/* Empty a block, whoever its pages belong to.  The pages that went */
unsigned int accel_evict_block(struct accel_devmem *dm, unsigned int block)
{
	unsigned long first = dm->first_pfn + block * VRAM_BLOCK_PAGES;
	struct accel_move *mv = kvzalloc(sizeof(*mv), GFP_KERNEL);
	struct accel_evictor me;
	unsigned int moved;
	int ret;

	if (!mv)
		return 0;
	accel_evictor_begin(dm, &me);
	migrate_device_range(mv->src, first, VRAM_BLOCK_PAGES);
	accel_evictor_end(dm, &me);
	pair_system(dm, mv, NULL, 0, VRAM_BLOCK_PAGES);
	/* A device that has gone takes its data along; the pages come home empty */
	ret = accel_dma_run(dm->dev->dma, mv);
	if (ret && READ_ONCE(dm->dev->gone))
		clear_targets(mv);
	else if (ret)
		no_pages(mv, VRAM_BLOCK_PAGES);
	migrate_device_pages(mv->src, mv->dst, VRAM_BLOCK_PAGES);
	moved = pages_moved(mv, VRAM_BLOCK_PAGES);
	migrate_device_finalize(mv->src, mv->dst, VRAM_BLOCK_PAGES);
	kvfree(mv);
	spin_lock(&dm->lock);
	dm->evicted += moved;
	spin_unlock(&dm->lock);
	trace_accel_hmm_evict(block, moved);
	return moved;
}

/* The CPU touched a page in private device memory: it and its neighbours come back */
vm_fault_t accel_migrate_to_ram(struct vm_fault *vmf)
{
	struct accel_devmem *dm = container_of(vmf->page->pgmap, struct accel_devmem, pgmap);
	struct accel_hmm *h = accel_hmm_find(dm->dev, vmf->vma->vm_mm);
	u64 window = accel_param_window();
	u64 start = max_t(u64, ALIGN_DOWN(vmf->address, window), vmf->vma->vm_start);
	u64 end = min_t(u64, ALIGN_DOWN(vmf->address, window) + window, vmf->vma->vm_end);
	struct accel_move *mv = kvmalloc(sizeof(*mv), GFP_KERNEL);
	int ret = -ENOMEM;

	accel_hmm_count(h, HMM_CPU_FAULTS, 1);
	if (mv)
		ret = range_to_system(h, dm, vmf->vma, start, end, vmf->page, mv);
	if (h && ret > 0)
		accel_hmm_returned(h, vmf->address);
	trace_accel_hmm_cpu_fault(h ? h->tid : 0, vmf->address, ret);
	kvfree(mv);
	accel_hmm_put(h);
	if (ret == -ENOMEM)
		return VM_FAULT_OOM;
	/* nothing moved: somebody else has the page locked, the access is tried again */
	return ret < 0 ? VM_FAULT_SIGBUS : 0;
}
