// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The pool of device memory: pages of VRAM with a struct page each, handed out
 * singly or as whole blocks of 2 MiB, evicted block by block, compacted now and
 * then.
 */
#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/ioport.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "accel_hmm.h"
#include "accel_trace.h"

#define BAR_VRAM	2
#define EVICT_ROUNDS	4	/* per wish for room, times the number of blocks */

/* All pools: data may have to come from another device's memory */
LIST_HEAD(accel_devmems);
DECLARE_RWSEM(accel_devmems_sem);

/* A hint: pages may come and go meanwhile */
bool accel_vram_empty(struct accel_devmem *dm)
{
	return READ_ONCE(dm->free_pages) == dm->nblocks * VRAM_BLOCK_PAGES;
}

static unsigned long page_index(struct accel_devmem *dm, struct page *page)
{
	return page_to_pfn(page) - dm->first_pfn;
}

bool accel_vram_owns(struct accel_devmem *dm, struct page *page)
{
	return dm && is_zone_device_page(page) && page->pgmap == &dm->pgmap;
}

/* What the device calls the page */
phys_addr_t accel_vram_phys(struct accel_devmem *dm, struct page *page)
{
	return dm->base + page_index(dm, page) * PAGE_SIZE;
}

phys_addr_t accel_page_phys(struct accel_devmem *dm, struct page *page)
{
	return accel_vram_owns(dm, page) ? accel_vram_phys(dm, page) : page_to_phys(page);
}

/* The device uses the page: its block is evicted later than others */
void accel_vram_touch(struct accel_devmem *dm, struct page *page)
{
	struct accel_vram_block *b = &dm->blocks[page_index(dm, page) / VRAM_BLOCK_PAGES];

	spin_lock(&dm->lock);
	b->stamp = ++dm->clock;
	spin_unlock(&dm->lock);
}

/* Where the data goes when nobody in particular wants it back */
void accel_vram_came_from(struct accel_devmem *dm, struct page *page, int nid)
{
	dm->nids[page_index(dm, page)] = nid;
}

int accel_vram_home(struct accel_devmem *dm, struct page *page)
{
	return dm->nids[page_index(dm, page)];
}

/* dm->lock held */
static void take(struct accel_devmem *dm, struct accel_vram_block *b, unsigned int bit,
		 bool pinned, struct page **page)
{
	unsigned long index = (b - dm->blocks) * VRAM_BLOCK_PAGES + bit;

	__set_bit(bit, b->used);
	b->count++;
	b->pinned |= pinned;
	b->stamp = ++dm->clock;
	dm->free_pages--;
	*page = pfn_to_page(dm->first_pfn + index);
}

static void give_back(struct accel_devmem *dm, struct page *page)
{
	unsigned long index = page_index(dm, page);
	struct accel_vram_block *b = &dm->blocks[index / VRAM_BLOCK_PAGES];

	__clear_bit(index % VRAM_BLOCK_PAGES, b->used);
	dm->free_pages++;
	if (!--b->count)
		b->pinned = false;
}

static bool alloc_whole(struct accel_devmem *dm, bool pinned, struct page **pages)
{
	unsigned int i, bit;

	for (i = 0; i < dm->nblocks; i++) {
		struct accel_vram_block *b = &dm->blocks[i];

		if (b->count || b->busy)
			continue;
		for (bit = 0; bit < VRAM_BLOCK_PAGES; bit++)
			take(dm, b, bit, pinned, &pages[bit]);
		return true;
	}
	return false;
}

/* Begun blocks first, the fullest of them; pinned and other pages do not mix */
static struct accel_vram_block *block_for(struct accel_devmem *dm, bool pinned)
{
	struct accel_vram_block *best = NULL;
	unsigned int i;

	for (i = 0; i < dm->nblocks; i++) {
		struct accel_vram_block *b = &dm->blocks[i];

		if (b->busy || b->count == VRAM_BLOCK_PAGES || (b->count && b->pinned != pinned))
			continue;
		if (!best || b->count > best->count)
			best = b;
	}
	return best;
}

static unsigned int alloc_some(struct accel_devmem *dm, unsigned int n, bool pinned,
			       struct page **pages)
{
	unsigned int got = 0, bit;

	while (got < n) {
		struct accel_vram_block *b = block_for(dm, pinned);

		if (!b)
			break;
		for (bit = 0; got < n; got++) {
			bit = find_next_zero_bit(b->used, VRAM_BLOCK_PAGES, bit);
			if (bit >= VRAM_BLOCK_PAGES)
				break;
			take(dm, b, bit, pinned, &pages[got]);
		}
	}
	return got;
}

/*
 * @n pages that nobody else has, not yet initialised: accel_vram_release() or
 * zone_device_page_init() follows.  @whole: one block, in order.  All or nothing.
 */
bool accel_vram_alloc(struct accel_devmem *dm, unsigned int n, bool whole, bool pinned,
		      struct page **pages)
{
	unsigned int got, i;

	spin_lock(&dm->lock);
	if (whole) {
		bool ok = alloc_whole(dm, pinned, pages);

		spin_unlock(&dm->lock);
		return ok;
	}
	got = alloc_some(dm, n, pinned, pages);
	if (got < n)
		for (i = 0; i < got; i++)
			give_back(dm, pages[i]);
	spin_unlock(&dm->lock);
	return got == n;
}

/* Pages that were never initialised; NULL entries are passed over */
void accel_vram_release(struct accel_devmem *dm, struct page **pages, unsigned int n)
{
	unsigned int i;

	spin_lock(&dm->lock);
	for (i = 0; i < n; i++)
		if (pages[i])
			give_back(dm, pages[i]);
	spin_unlock(&dm->lock);
}

static void page_free(struct page *page)
{
	struct accel_devmem *dm = container_of(page->pgmap, struct accel_devmem, pgmap);

	spin_lock(&dm->lock);
	give_back(dm, page);
	spin_unlock(&dm->lock);
}

static const struct dev_pagemap_ops pagemap_ops = {
	.page_free = page_free,
	.migrate_to_ram = accel_migrate_to_ram,
};

/* ---------------------------------------------------------------- eviction */

/* The block that was used longest ago, marked busy; -1: none may go */
static int victim(struct accel_devmem *dm, unsigned int most)
{
	int best = -1;
	unsigned int i;

	spin_lock(&dm->lock);
	for (i = 0; i < dm->nblocks; i++) {
		struct accel_vram_block *b = &dm->blocks[i];

		if (!b->count || b->count > most || b->busy || b->pinned)
			continue;
		if (best < 0 || b->stamp < dm->blocks[best].stamp)
			best = i;
	}
	if (best >= 0)
		dm->blocks[best].busy = true;
	spin_unlock(&dm->lock);
	return best;
}

static void block_idle(struct accel_devmem *dm, unsigned int block)
{
	spin_lock(&dm->lock);
	dm->blocks[block].busy = false;
	/* what could not be moved is not the first choice the next time */
	dm->blocks[block].stamp = ++dm->clock;
	spin_unlock(&dm->lock);
}

void accel_evictor_begin(struct accel_devmem *dm, struct accel_evictor *e)
{
	e->task = current;
	spin_lock(&dm->lock);
	list_add(&e->node, &dm->evictors);
	spin_unlock(&dm->lock);
}

void accel_evictor_end(struct accel_devmem *dm, struct accel_evictor *e)
{
	spin_lock(&dm->lock);
	list_del(&e->node);
	spin_unlock(&dm->lock);
}

/* Does the caller, from within a notifier, make room? */
bool accel_evicting(struct accel_devmem *dm)
{
	struct accel_evictor *e;
	bool found = false;

	if (!dm)
		return false;
	spin_lock(&dm->lock);
	list_for_each_entry(e, &dm->evictors, node)
		found |= e->task == current;
	spin_unlock(&dm->lock);
	return found;
}

static bool room(struct accel_devmem *dm, unsigned int n, bool whole)
{
	unsigned long free = 0;
	unsigned int i;

	spin_lock(&dm->lock);
	for (i = 0; i < dm->nblocks && whole; i++)
		if (!dm->blocks[i].count && !dm->blocks[i].busy)
			free = n;
	if (!whole)
		free = dm->free_pages;
	spin_unlock(&dm->lock);
	return free >= n;
}

/* Evict until @n pages are free; bounded, ends early for a process that was killed */
bool accel_vram_make_room(struct accel_devmem *dm, unsigned int n, bool whole)
{
	unsigned int rounds = dm->nblocks * EVICT_ROUNDS;

	while (!room(dm, n, whole)) {
		int block;

		if (!rounds-- || fatal_signal_pending(current))
			return false;
		block = victim(dm, VRAM_BLOCK_PAGES);
		if (block < 0)
			return false;
		accel_evict_block(dm, block);
		block_idle(dm, block);
		cond_resched();
	}
	return true;
}

/* ---------------------------------------------------------------- compaction */

/* The emptiest of two or more blocks that are less than half full */
static int sparse_block(struct accel_devmem *dm)
{
	unsigned int i, sparse = 0;
	int best = -1;

	spin_lock(&dm->lock);
	for (i = 0; i < dm->nblocks; i++) {
		struct accel_vram_block *b = &dm->blocks[i];

		if (!b->count || b->count > VRAM_BLOCK_PAGES / 2 || b->busy || b->pinned)
			continue;
		sparse++;
		if (best < 0 || b->count < dm->blocks[best].count)
			best = i;
	}
	if (sparse > 1)
		dm->blocks[best].busy = true;
	spin_unlock(&dm->lock);
	return sparse > 1 ? best : -1;
}

/* Move what is in @block into holes of others; the device copies within VRAM */
static unsigned int compact_block(struct accel_devmem *dm, struct accel_move *mv,
				  unsigned int block)
{
	unsigned long first = dm->first_pfn + block * VRAM_BLOCK_PAGES;
	unsigned int i, moved = 0;

	memset(mv, 0, sizeof(*mv));
	migrate_device_range(mv->src, first, VRAM_BLOCK_PAGES);
	for (i = 0; i < VRAM_BLOCK_PAGES; i++) {
		struct page *from = migrate_pfn_to_page(mv->src[i]);

		if (!from || !(mv->src[i] & MIGRATE_PFN_MIGRATE) ||
		    !accel_vram_alloc(dm, 1, false, false, &mv->vram[i]))
			continue;
		zone_device_page_init(mv->vram[i]);
		accel_vram_came_from(dm, mv->vram[i], accel_vram_home(dm, from));
		mv->dst[i] = migrate_pfn(page_to_pfn(mv->vram[i]));
		mv->from[mv->copies] = accel_vram_phys(dm, from);
		mv->to[mv->copies++] = accel_vram_phys(dm, mv->vram[i]);
	}
	if (accel_dma_run(dm->dev->dma, mv))
		for (i = 0; i < VRAM_BLOCK_PAGES; i++)
			mv->src[i] &= ~MIGRATE_PFN_MIGRATE;
	migrate_device_pages(mv->src, mv->dst, VRAM_BLOCK_PAGES);
	for (i = 0; i < VRAM_BLOCK_PAGES; i++)
		moved += mv->dst[i] && mv->src[i] & MIGRATE_PFN_MIGRATE;
	migrate_device_finalize(mv->src, mv->dst, VRAM_BLOCK_PAGES);
	return moved;
}

static void defrag_work(struct work_struct *work)
{
	struct accel_devmem *dm = container_of(to_delayed_work(work), struct accel_devmem, defrag);
	struct accel_move *mv = kvmalloc(sizeof(*mv), GFP_KERNEL);
	unsigned int rounds = dm->nblocks, moved;
	unsigned int interval = accel_param_defrag_ms();
	int block;

	while (mv && interval && rounds-- && !READ_ONCE(dm->dev->gone)) {
		block = sparse_block(dm);
		if (block < 0)
			break;
		moved = compact_block(dm, mv, block);
		spin_lock(&dm->lock);
		dm->defrag_moved += moved;
		dm->defrag_blocks += !dm->blocks[block].count;
		spin_unlock(&dm->lock);
		block_idle(dm, block);
		trace_accel_hmm_defrag(block, moved);
		cond_resched();
	}
	kvfree(mv);
	schedule_delayed_work(&dm->defrag, msecs_to_jiffies(interval ?: 1000));
}

/* ---------------------------------------------------------------- life */

static int pagemap_on(struct accel_devmem *dm, u64 size)
{
	struct device *device = &dm->dev->pdev->dev;
	void *addr;

	dm->pgmap.ops = &pagemap_ops;
	dm->pgmap.owner = dm;
	dm->pgmap.nr_range = 1;
	if (accel_param_mode() == ACCEL_HMM_COHERENT) {
		dm->pgmap.type = MEMORY_DEVICE_COHERENT;
		dm->pgmap.range.start = dm->base;
	} else {
		dm->region = request_free_mem_region(&iomem_resource, size, "ummu_accel vram");
		if (IS_ERR(dm->region))
			return PTR_ERR(dm->region);
		dm->pgmap.type = MEMORY_DEVICE_PRIVATE;
		dm->pgmap.range.start = dm->region->start;
	}
	dm->pgmap.range.end = dm->pgmap.range.start + size - 1;
	addr = memremap_pages(&dm->pgmap, dev_to_node(device));
	if (!IS_ERR(addr))
		return 0;
	if (dm->region)
		release_mem_region(dm->region->start, resource_size(dm->region));
	return PTR_ERR(addr);
}

/* Device memory is optional: without it the driver mirrors only */
int accel_devmem_init(struct accel_dev *dev)
{
	u64 size = ALIGN_DOWN(pci_resource_len(dev->pdev, BAR_VRAM), SZ_2M);
	struct accel_devmem *dm;
	int ret;

	if (!size || accel_param_mode() == ACCEL_HMM_MIRROR)
		return 0;
	dm = kzalloc(sizeof(*dm), GFP_KERNEL);
	if (!dm)
		return -ENOMEM;
	dm->dev = dev;
	dm->base = pci_resource_start(dev->pdev, BAR_VRAM);
	dm->nblocks = size / SZ_2M;
	dm->free_pages = size / PAGE_SIZE;
	spin_lock_init(&dm->lock);
	INIT_LIST_HEAD(&dm->evictors);
	INIT_DELAYED_WORK(&dm->defrag, defrag_work);
	dm->blocks = kvcalloc(dm->nblocks, sizeof(*dm->blocks), GFP_KERNEL);
	dm->nids = kvcalloc(dm->free_pages, sizeof(*dm->nids), GFP_KERNEL);
	ret = dm->blocks && dm->nids ? pagemap_on(dm, size) : -ENOMEM;
	if (ret) {
		kvfree(dm->nids);
		kvfree(dm->blocks);
		kfree(dm);
		return ret;
	}
	dm->first_pfn = PHYS_PFN(dm->pgmap.range.start);
	dev->devmem = dm;
	down_write(&accel_devmems_sem);
	list_add_tail(&dm->node, &accel_devmems);
	up_write(&accel_devmems_sem);
	schedule_delayed_work(&dm->defrag, msecs_to_jiffies(accel_param_defrag_ms() ?: 1000));
	return 0;
}

/*
 * Every page goes home first: a process may outlive the device.  A page that
 * somebody holds for the moment is tried again; the kernel waits for all of
 * them anyway, here it is said what for.
 */
void accel_devmem_exit(struct accel_dev *dev)
{
	struct accel_devmem *dm = dev->devmem;
	unsigned int i, round;

	if (!dm)
		return;
	down_write(&accel_devmems_sem);
	list_del(&dm->node);
	up_write(&accel_devmems_sem);
	cancel_delayed_work_sync(&dm->defrag);
	for (round = 0; !room(dm, dm->nblocks * VRAM_BLOCK_PAGES, false); round++) {
		for (i = 0; i < dm->nblocks; i++)
			if (READ_ONCE(dm->blocks[i].count))
				accel_evict_block(dm, i);
		if (round % 100 == 99)
			dev_warn(&dev->pdev->dev, "pages of device memory are still held\n");
		if (round)
			msleep(20);
	}
	memunmap_pages(&dm->pgmap);
	/* whole sections, more than was asked for */
	if (dm->region)
		release_mem_region(dm->region->start, resource_size(dm->region));
	kvfree(dm->nids);
	kvfree(dm->blocks);
	kfree(dm);
	dev->devmem = NULL;
}
