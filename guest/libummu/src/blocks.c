// SPDX-License-Identifier: MIT
/* MAPT blocks (mapped from the kernel) and the level tables inside them. */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"
#include "log.h"
#include "sys.h"

static uint64_t block_offset(const struct tid *t, uint32_t index)
{
	return (((uint64_t)t->tid << 12) | ((uint64_t)index << 2) | MMAP_TYPE_BLOCK) << ummu_sys.page_shift;
}

/* Bytes to map: a block, or the one page that holds the record of entry mode. */
static size_t block_bytes(const struct tid *t)
{
	return t->mode == MAPT_MODE_TABLE ? t->block_bytes : 4096;
}

int blocks_map(struct tid *t, uint32_t index)
{
	t->blocks.block[index] = ummu_sys.map(ummu_device_fd(), block_bytes(t), block_offset(t, index));
	return t->blocks.block[index] ? 0 : -ENOMEM;
}

int blocks_init(struct tid *t)
{
	struct blocks *b = &t->blocks;
	uint32_t blocks = t->hw_cap & HW_CAP_EXPAN ? BLOCKS_MAX : 1;

	if (t->mode == MAPT_MODE_ENTRY)
		return blocks_map(t, 0);
	if (t->block_bytes < TABLE_BYTES || t->block_bytes > BLOCK_BYTES_MAX ||
	    t->block_bytes & (t->block_bytes - 1)) {
		log_error("tid 0x%x: block size 0x%llx is not usable", t->tid,
			  (unsigned long long)t->block_bytes);
		return -ENOMEM;
	}
	b->per_block = (uint32_t)(t->block_bytes / TABLE_BYTES);
	b->tables = b->per_block * blocks;
	b->used = ummu_sys.alloc((b->tables + 63) / 64, sizeof(*b->used));
	b->valid_nodes = ummu_sys.alloc(b->tables, sizeof(*b->valid_nodes));
	if (!b->used || !b->valid_nodes || blocks_map(t, 0))
		return -ENOMEM;
	/* Table 0 is the root for ever. */
	b->used[0] = 1;
	b->used_in_block[0] = 1;
	b->lowest_free = 1;
	return 0;
}

/* Block 0 goes last: without it the kernel cannot find the others' table any more. */
void blocks_unmap_all(struct tid *t)
{
	for (uint32_t i = BLOCKS_MAX; i-- > 0;) {
		if (t->blocks.block[i]) {
			ummu_sys.unmap(t->blocks.block[i], block_bytes(t));
			t->blocks.block[i] = NULL;
		}
	}
}

static uint32_t find_free(const struct blocks *b)
{
	for (uint32_t w = b->lowest_free / 64; w < (b->tables + 63) / 64; w++) {
		if (~b->used[w]) {
			uint32_t n = w * 64 + (uint32_t)__builtin_ctzll(~b->used[w]);

			return n < b->tables ? n : b->tables;
		}
	}
	return b->tables;
}

/* Inside a batch: the device may still follow a pointer to a table that was freed. */
static void tables_settle(struct tid *t)
{
	if (t->plbi_deferred && t->plbi_pending) {
		plbi_flush(t);
		plbi_defer(t);
	}
}

int table_alloc(struct tid *t, uint32_t *number)
{
	struct blocks *b = &t->blocks;
	uint32_t n = find_free(b);

	tables_settle(t);
	if (n >= b->tables) {
		log_error("tid 0x%x: all %u level tables are in use", t->tid, b->tables);
		return -ERANGE;
	}
	if (!b->block[n / b->per_block] && blocks_map(t, n / b->per_block)) {
		log_error("tid 0x%x: no memory for block %u", t->tid, n / b->per_block);
		return -ENOMEM;
	}
	b->used[n / 64] |= 1ull << n % 64;
	b->used_in_block[n / b->per_block]++;
	b->valid_nodes[n] = 0;
	b->lowest_free = n + 1;
	*number = n;
	return 0;
}

void table_free(struct tid *t, uint32_t n)
{
	struct blocks *b = &t->blocks;
	uint32_t index = n / b->per_block;

	b->used[n / 64] &= ~(1ull << n % 64);
	if (n < b->lowest_free)
		b->lowest_free = n;
	if (--b->used_in_block[index] == 0 && index > 0) {
		tables_settle(t);
		ummu_sys.unmap(b->block[index], t->block_bytes);
		b->block[index] = NULL;
	}
}

mapt_node *table_nodes(const struct tid *t, uint32_t n)
{
	const struct blocks *b = &t->blocks;

	return b->block[n / b->per_block] + (size_t)(n % b->per_block) * NODES_PER_TABLE;
}
