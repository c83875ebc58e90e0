/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Heterogeneous memory management of the accelerator.
 *
 * DOC: overview
 *
 * A *mirror* (struct accel_hmm) is one TID of one process whose page table in
 * the UMMU this driver fills: from the process's own page table, on faults of
 * the device, and with pages of device memory (VRAM).  VRAM is one pool per
 * device (struct accel_devmem), of blocks of 2 MiB, with a struct page each:
 * private (the CPU faults and the page comes back) or coherent (the CPU maps
 * it).  Data moves by jobs on a queue of the driver's own (struct accel_dma),
 * whose TID reaches exactly the pages of the copy at hand.
 *
 *   device touches a page          CPU touches a page in VRAM
 *     stall, EVENTQ                  do_swap_page()
 *     ummu.ko: ummu_svm_fault()      accel_migrate_to_ram()
 *     accel_hmm_fault()              migrate_vma_*(), DMA, a window of pages
 *       policy: migrate the chunk?
 *       hmm_range_fault(), fill, resume
 *
 * DOC: locking, in the order in which locks nest
 *
 *  accel_hmm.life     calls in progress, against the end of the mirror
 *  ummu_svm.lock      (ummu.ko) around accel_hmm_fault()
 *  mmap_lock          for reading
 *  page locks         only tried, while others are held
 *  accel_devmems_sem  for reading, while pages of another device are fetched
 *  accel_dma.lock     one copy at a time per device
 *  accel_hmm.lock     "driver->update" of Documentation/mm/hmm.rst: entries of
 *                     the UMMU's table; taken by the notifier
 *  accel_devmem.lock  the pool; spinlock, pages are freed from any context
 */
#ifndef _ACCEL_HMM_H
#define _ACCEL_HMM_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/maple_tree.h>
#include <linux/memremap.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "accel.h"

#define VRAM_BLOCK_PAGES	(SZ_2M / PAGE_SIZE)

/* Counters of a mirror, in the order of struct accel_hmm_stats */
enum accel_hmm_counter {
	HMM_FAULTS_READ,
	HMM_FAULTS_WRITE,
	HMM_FAULTS_FAILED,
	HMM_FAULTS_DENIED,
	HMM_CPU_FAULTS,
	HMM_RETRIES,
	HMM_INVALIDATIONS,
	HMM_PAGES_MAPPED,
	HMM_BLOCKS_MAPPED,
	HMM_TO_DEVICE,
	HMM_TO_SYSTEM,
	HMM_ZEROED,
	HMM_COW_COPIED,
	HMM_COW_MIGRATED,
	HMM_EXCLUSIVE,
	HMM_EXCLUSIVE_REVOKED,
	HMM_PINGPONG_HELD,
	HMM_EVICTIONS,
	HMM_NS_COLLECT,
	HMM_NS_COPY,
	HMM_NS_MAP,
	HMM_NS_INVALIDATE,
	HMM_COUNTERS,
};

struct accel_vram_block {
	DECLARE_BITMAP(used, VRAM_BLOCK_PAGES);
	unsigned int count;
	bool pinned;
	bool busy;		/* being emptied: no new pages */
	u64 stamp;		/* last use by the device */
};

struct accel_devmem {
	struct accel_dev *dev;
	struct list_head node;		/* accel_devmems */
	struct dev_pagemap pgmap;
	struct resource *region;	/* of private memory: addresses of no device */
	phys_addr_t base;		/* BAR: what the device and the UMMU use */
	unsigned long first_pfn;	/* what the kernel uses */
	unsigned int nblocks;

	spinlock_t lock;		/* blocks, clock, totals */
	struct accel_vram_block *blocks;
	s16 *nids;			/* of each page: the node its data came from */
	unsigned long free_pages;
	u64 clock;
	u64 evicted;
	struct list_head evictors;
	u64 defrag_moved;
	u64 defrag_blocks;

	struct delayed_work defrag;
};

/* A task that makes room: mirrors tell its invalidations from others by it */
struct accel_evictor {
	struct list_head node;
	struct task_struct *task;
};

struct accel_dma {
	struct accel_dev *dev;
	struct ummu_svm *svm;
	struct mutex lock;	/* one batch at a time: rings, windows, failed */
	struct accel_queue q;	/* what the interrupt handler needs */
	void *rings;
	u32 sq_pi;
	u32 cq_ci;
	bool failed;		/* a job never came back: the queue is not used again */
	u64 bytes;
};

/* A page made exclusive a moment ago; two that share a slot do no harm */
struct accel_hold {
	u64 addr;
	u64 until;		/* ktime_get_ns() */
};

#define ACCEL_HOLDS	16

struct accel_hmm {
	struct kref ref;
	struct list_head node;		/* accel_dev.hmms */
	struct accel_dev *dev;
	struct mm_struct *mm;
	struct ummu_svm *svm;
	u32 tid;
	u32 flags;
	int pid;
	bool dead;
	struct rw_semaphore life;
	struct mutex lock;		/* the table behind svm against mni's sequence; advice */
	struct mmu_interval_notifier mni;
	struct maple_tree regions;
	struct maple_tree advice;
	struct xarray chunks;		/* chunk number -> touches and guard, see policy */
	struct accel_hold holds[ACCEL_HOLDS];
	atomic64_t n[HMM_COUNTERS];
};

/* Working space of one migration, at most a block */
struct accel_move {
	unsigned long src[VRAM_BLOCK_PAGES];
	unsigned long dst[VRAM_BLOCK_PAGES];
	struct page *vram[VRAM_BLOCK_PAGES];
	phys_addr_t from[VRAM_BLOCK_PAGES];
	phys_addr_t to[VRAM_BLOCK_PAGES];
	phys_addr_t zero[VRAM_BLOCK_PAGES];
	unsigned int copies;
	unsigned int zeros;
};

static inline void accel_hmm_count(struct accel_hmm *h, enum accel_hmm_counter c, u64 n)
{
	if (h)
		atomic64_add(n, &h->n[c]);
}

/* Add the time since *@t and start anew */
static inline void accel_hmm_lap(struct accel_hmm *h, enum accel_hmm_counter c, ktime_t *t)
{
	ktime_t now = ktime_get();

	accel_hmm_count(h, c, ktime_to_ns(ktime_sub(now, *t)));
	*t = now;
}

/* accel_hmm.c */
int accel_hmm_init(struct accel_dev *dev);
void accel_hmm_exit(struct accel_dev *dev);
struct accel_hmm *accel_hmm_find(struct accel_dev *dev, struct mm_struct *mm);
void accel_hmm_put(struct accel_hmm *h);
bool accel_hmm_registered(struct accel_hmm *h, u64 addr);

/* accel_hmm_mirror.c */
extern const struct mmu_interval_notifier_ops accel_hmm_mni_ops;
int accel_hmm_fault(void *priv, u64 addr, bool write);
int accel_hmm_map(struct accel_hmm *h, u64 addr, u64 start, u64 end, bool write);
int accel_hmm_exclusive(struct accel_hmm *h, u64 addr);
int accel_hmm_snapshot(struct accel_hmm *h, u64 start, u64 end, u8 __user *out);

/* accel_hmm_policy.c */
struct accel_verdict {
	bool migrate;
	bool pinned;
	bool exclusive;
};

u32 accel_hmm_advice(struct accel_hmm *h, u64 addr);
void accel_hmm_like(struct accel_hmm *h, u64 addr, u64 *start, u64 *end);
struct accel_verdict accel_hmm_touch(struct accel_hmm *h, u64 addr, bool write);
void accel_hmm_returned(struct accel_hmm *h, u64 addr);

/* accel_hmm_migrate.c */
int accel_move_to_device(struct accel_hmm *h, u64 start, u64 end, bool pinned, u64 *moved);
int accel_move_to_system(struct accel_hmm *h, u64 start, u64 end, u64 *moved);
unsigned int accel_evict_block(struct accel_devmem *dm, unsigned int block);
vm_fault_t accel_migrate_to_ram(struct vm_fault *vmf);

/* accel_devmem.c */
extern struct list_head accel_devmems;
extern struct rw_semaphore accel_devmems_sem;
int accel_devmem_init(struct accel_dev *dev);
void accel_devmem_exit(struct accel_dev *dev);
bool accel_vram_alloc(struct accel_devmem *dm, unsigned int n, bool whole, bool pinned,
		      struct page **pages);
void accel_vram_release(struct accel_devmem *dm, struct page **pages, unsigned int n);
bool accel_vram_make_room(struct accel_devmem *dm, unsigned int n, bool whole);
void accel_vram_touch(struct accel_devmem *dm, struct page *page);
void accel_vram_came_from(struct accel_devmem *dm, struct page *page, int nid);
int accel_vram_home(struct accel_devmem *dm, struct page *page);
void accel_evictor_begin(struct accel_devmem *dm, struct accel_evictor *e);
void accel_evictor_end(struct accel_devmem *dm, struct accel_evictor *e);
bool accel_evicting(struct accel_devmem *dm);
bool accel_vram_empty(struct accel_devmem *dm);
bool accel_vram_owns(struct accel_devmem *dm, struct page *page);
phys_addr_t accel_vram_phys(struct accel_devmem *dm, struct page *page);
phys_addr_t accel_page_phys(struct accel_devmem *dm, struct page *page);

/* accel_dma.c */
int accel_dma_init(struct accel_dev *dev);
void accel_dma_exit(struct accel_dev *dev);
int accel_dma_run(struct accel_dma *dma, struct accel_move *mv);

/* accel_hmm_params.c */
u64 accel_param_chunk(void);
u64 accel_param_cow_threshold(void);
u64 accel_param_window(void);
unsigned int accel_param_touches(void);
unsigned int accel_param_pingpong_ms(void);
unsigned int accel_param_hold_us(void);
unsigned int accel_param_defrag_ms(void);
enum accel_hmm_mode accel_param_mode(void);

/* accel_hmm_debugfs.c */
void accel_hmm_debugfs_add(struct accel_dev *dev);
void accel_hmm_debugfs_del(struct accel_dev *dev);
void accel_hmm_debugfs_init(void);
void accel_hmm_debugfs_exit(void);
extern const char * const accel_hmm_counter_names[HMM_COUNTERS];

#endif /* _ACCEL_HMM_H */
