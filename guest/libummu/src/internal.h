/* SPDX-License-Identifier: MIT */
/*
 * Inside libummu.
 *
 * DOC: locking
 *
 *   registry.lock (rwlock)  which TIDs exist; held for look-ups and changes of the
 *                           registry only, never across a system call
 *   tid->lock (mutex)       everything of one TID; held for a whole call, so calls
 *                           on one TID are serialised and those on others are not
 *
 * Order: registry.lock, then tid->lock (fork only).  A call takes a reference
 * under registry.lock and lets it go before it takes tid->lock.
 *
 * DOC: what the device sees
 *
 * It may read a node at any moment.  Nodes are written so that every state in
 * between grants nothing that neither the old nor the new state grants; word 0
 * with the valid bit is written last when a range opens and first when it closes.
 */
#ifndef INTERNAL_H
#define INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include <ummu_api.h>

#include "mapt_layout.h"
#include "segs.h"

#define LEVELS		 4
#define NODES_PER_TABLE	 512u
#define TABLE_BYTES	 (NODES_PER_TABLE * MAPTE_SIZE)	/* 16 KiB */
#define BLOCKS_MAX	 512u
#define BLOCK_BYTES_MAX	 (2ul << 20)
#define ADDRESS_BITS	 48
#define GRANT_ALIGN	 4096u
#define TID_BITS	 20
#define VOID_OFFSET	 0xfffu		/* first and last offset of a vacated node */

#define FIELD(name, value) (((uint32_t)(value) << name##_SHIFT) & name##_MASK)
#define GET(name, word)	   (((word) & name##_MASK) >> name##_SHIFT)

/* One node as the device reads it. */
typedef struct {
	volatile uint32_t w[MAPTE_WORDS];
} mapt_node;

/* What a range allows; the node and UMAPTE fields in one place. */
struct rights {
	uint8_t perm, e_bit, tokens;
	uint32_t token[2];
};

/* The blocks of a table and which level tables in them are in use. */
struct blocks {
	mapt_node *block[BLOCKS_MAX];	/* NULL: not mapped */
	uint32_t per_block;		/* level tables in a block */
	uint32_t tables;		/* limit: per_block * blocks allowed */
	uint32_t lowest_free;		/* no free table below this number */
	uint64_t *used;			/* bitmap, one bit a table */
	uint16_t *valid_nodes;		/* per table */
	uint16_t used_in_block[BLOCKS_MAX];
};

struct queue {			/* user queue pair of one UMMU */
	uint32_t (*ucmd)[UCMD_WORDS];
	uint32_t *ucpl;
	volatile uint16_t *page;
};

struct tid {
	uint32_t tid;
	enum ummu_mapt_mode mode;
	uint64_t hw_cap;
	uint64_t block_bytes;
	struct segs segs;
	struct blocks blocks;
	/* user queues; queue_map NULL when invalidations go by ioctl */
	void *queue_map;
	size_t queue_bytes;
	struct queue *queues;
	uint32_t ummu_cnt;
	uint8_t ucmd_log2, ucpl_log2;

	bool plbi_deferred;		/* a batch runs: tell the device once, at its end */
	bool plbi_pending;

	pthread_mutex_t lock;
	unsigned int refs;		/* atomic */
	bool dead;
};

/* device.c: the node, fork */
int ummu_device_fd(void);		/* -1: never opened */

/* registry.c */
struct tid *tid_get(uint32_t tid);	/* with a reference and its lock held, or NULL */
void tid_put(struct tid *t);		/* unlock, drop the reference */
int registry_add(struct tid *t);	/* -1: the ID is known already, -ENOMEM */
struct tid *registry_take(uint32_t tid);	/* unlink; with its lock held; ends in tid_put() */
void registry_lock_all(void);		/* fork: prepare */
void registry_unlock_all(void);		/* fork: parent */
void registry_forget_all(void);		/* fork: child; frees book-keeping only */
void registry_end_all(void (*fn)(struct tid *));	/* at exit, each with its lock held */

/* tid.c */
void tid_release_memory(struct tid *t);	/* unmap blocks and queues, no ioctl but PLBI */
void tid_free_bookkeeping(struct tid *t);

/* blocks.c: level tables */
int blocks_init(struct tid *t);
int blocks_map(struct tid *t, uint32_t index);
void blocks_unmap_all(struct tid *t);
/* A zeroed level table with the lowest free number; -ERANGE, -ENOMEM. */
int table_alloc(struct tid *t, uint32_t *number);
void table_free(struct tid *t, uint32_t number);
mapt_node *table_nodes(const struct tid *t, uint32_t number);

/* mapt.c: table mode; ranges are inclusive */
int mapt_insert(struct tid *t, uint64_t first, uint64_t last, const struct rights *r);
void mapt_remove(struct tid *t, uint64_t first, uint64_t last);
void mapt_retoken(struct tid *t, uint64_t first, uint64_t last, const struct rights *r);

/* entry.c: single-entry mode */
void entry_write(struct tid *t, uint64_t first, uint64_t last, const struct rights *r);
void entry_clear(struct tid *t);

/* grant.c: one range; all with the TID's lock held */
int tid_grant(struct tid *t, uint64_t addr, uint64_t size, unsigned int perm, struct ummu_seg_attr *attr);
int seg_drop_token(struct tid *t, struct seg *s, uint32_t token);
void seg_write_tokens(struct tid *t, const struct seg *s);
void seg_close(struct tid *t, struct seg *s);	/* frees s */

/* plbi.c: invalidation; returns when the device has lost what was cached */
void plbi_range(struct tid *t, uint64_t first, uint64_t size);
void plbi_node(struct tid *t, uint64_t span_start, uint32_t table_number);
void plbi_all(struct tid *t);
/*
 * Until plbi_flush() the ones above only take note.  Flush before memory that the
 * device may still look at as a table is used otherwise or given back.
 */
void plbi_defer(struct tid *t);
void plbi_flush(struct tid *t);
int queues_map(struct tid *t, const struct ummu_tid_info *info);
void queues_unmap(struct tid *t);

#endif
