// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Page tables that the driver builds for the UMMU (MATT).
 *
 * Four levels of 4 KiB tables in VMSAv8-64 format.  A leaf is a page of 4 KiB
 * or a block of 2 MiB.  The callers serialise changes of one table; the UMMU
 * may walk it at any time, so an entry goes from valid to another valid value
 * only through "invalid and invalidated".
 */
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/sizes.h>

#include "ummu.h"

#define LEVELS		4
#define LEAF_LEVEL	(LEVELS - 1)
#define BLOCK_LEVEL	(LEVELS - 2)
#define INDEX_BITS	9
#define ENTRIES		BIT(INDEX_BITS)
#define TABLE_SHIFT	12

#define DESC_VALID	BIT_ULL(0)
#define DESC_TABLE	BIT_ULL(1)	/* table, or page at the last level */
#define DESC_EL0	BIT_ULL(6)
#define DESC_RDONLY	BIT_ULL(7)
#define DESC_INNER_SH	(3ull << 8)
#define DESC_AF		BIT_ULL(10)
#define DESC_NG		BIT_ULL(11)
#define DESC_XN		(3ull << 53)
#define DESC_ADDR	GENMASK_ULL(47, 12)
#define DESC_LEAF	(DESC_VALID | DESC_EL0 | DESC_INNER_SH | DESC_AF | DESC_NG | DESC_XN)

static unsigned int table_index(u64 va, unsigned int level)
{
	return va >> (TABLE_SHIFT + (LEAF_LEVEL - level) * INDEX_BITS) & (ENTRIES - 1);
}

static u64 table_span(unsigned int level)
{
	return BIT_ULL(TABLE_SHIFT + (LEAF_LEVEL - level) * INDEX_BITS);
}

static bool is_block(__le64 desc)
{
	return (le64_to_cpu(desc) & (DESC_VALID | DESC_TABLE)) == DESC_VALID;
}

static __le64 *desc_table(__le64 desc)
{
	return phys_to_virt(le64_to_cpu(desc) & DESC_ADDR);
}

static void free_level(__le64 *table, unsigned int level)
{
	unsigned int i;

	if (level < LEAF_LEVEL)
		for (i = 0; i < ENTRIES; i++)
			if (table[i] && !is_block(table[i]))
				free_level(desc_table(table[i]), level + 1);
	free_page((unsigned long)table);
}

/* Entry for @va at @stop, NULL without memory, or without @make if tables are missing */
static __le64 *walk(struct ummu_table *t, u64 va, unsigned int stop, bool make)
{
	__le64 *table = t->root;
	unsigned int level;

	for (level = 0; level < stop; level++) {
		__le64 *e = &table[table_index(va, level)];
		__le64 *next;

		if (is_block(*e))
			return e;
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
	return &table[table_index(va, stop)];
}

static u64 leaf(u64 pa, bool write)
{
	return (pa & DESC_ADDR) | DESC_LEAF | (write ? 0 : DESC_RDONLY);
}

/* What was emptied */
#define ZAPPED_PAGE	BIT(0)
#define ZAPPED_BLOCK	BIT(1)

static unsigned int zap_level(__le64 *table, unsigned int level, u64 base, u64 start, u64 end)
{
	u64 span = table_span(level);
	unsigned int i = start > base ? (start - base) / span : 0;
	unsigned int any = 0;

	for (; i < ENTRIES && base + i * span < end; i++) {
		if (!table[i])
			continue;
		/* a block goes as a whole: the device faults the rest in again */
		if (level == LEAF_LEVEL || is_block(table[i])) {
			WRITE_ONCE(table[i], 0);
			any |= level == LEAF_LEVEL ? ZAPPED_PAGE : ZAPPED_BLOCK;
		} else {
			any |= zap_level(desc_table(table[i]), level + 1, base + i * span, start,
					 end);
		}
	}
	return any;
}

/* Empties entries and invalidates; tables stay until the end.  True: there were some */
bool ummu_table_zap(struct ummu_table *t, u64 start, u64 end)
{
	unsigned int any;

	end = min_t(u64, end, BIT_ULL(UMMU_VA_BITS));
	if (start >= end)
		return false;
	any = zap_level(t->root, 0, 0, start, end);
	if (any & ZAPPED_BLOCK) {
		start = ALIGN_DOWN(start, SZ_2M);
		end = min_t(u64, ALIGN(end, SZ_2M), BIT_ULL(UMMU_VA_BITS));
	}
	if (any)
		ummu_tlbi_range(t->dom, t->asid, start, end);
	return any;
}

/* One page; an entry that stands for something else is emptied first */
int ummu_table_map(struct ummu_table *t, u64 va, u64 pa, bool write)
{
	__le64 *e = walk(t, va, LEAF_LEVEL, true);
	u64 want = leaf(pa, write) | DESC_TABLE;

	if (e && is_block(*e)) {
		ummu_table_zap(t, va, va + PAGE_SIZE);
		e = walk(t, va, LEAF_LEVEL, true);
	}
	if (!e)
		return -ENOMEM;
	if (*e && le64_to_cpu(*e) != want)
		ummu_table_zap(t, va, va + PAGE_SIZE);
	WRITE_ONCE(*e, cpu_to_le64(want));
	return 0;
}

/* A block of 2 MiB, aligned on both sides; a table in its place is freed */
int ummu_table_map_block(struct ummu_table *t, u64 va, u64 pa, bool write)
{
	__le64 *e = walk(t, va, BLOCK_LEVEL, true);
	u64 want = leaf(pa, write);
	__le64 *old = NULL;

	if (!e)
		return -ENOMEM;
	if (le64_to_cpu(*e) == want)
		return 0;
	if (*e) {
		if (!is_block(*e))
			old = desc_table(*e);
		WRITE_ONCE(*e, 0);
		/* also drops what the unit remembers of the table itself */
		ummu_tlbi_range(t->dom, t->asid, va, va + SZ_2M);
		free_page((unsigned long)old);
	}
	WRITE_ONCE(*e, cpu_to_le64(want));
	return 0;
}

/* May the device reach @va, as the table stands */
bool ummu_table_allows(struct ummu_table *t, u64 va, bool write)
{
	__le64 *e = walk(t, va, LEAF_LEVEL, false);
	u64 desc = e ? le64_to_cpu(*e) : 0;

	return (desc & DESC_VALID) && !(write && (desc & DESC_RDONLY));
}

int ummu_table_init(struct ummu_table *t, struct ummu_domain *dom, u32 asid)
{
	t->dom = dom;
	t->asid = asid;
	t->root = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	return t->root ? 0 : -ENOMEM;
}

/* No context uses the table any more */
void ummu_table_free(struct ummu_table *t)
{
	if (!t->root)
		return;
	ummu_tlbi_asid(t->dom, t->asid);
	free_level(t->root, 0);
	t->root = NULL;
}

phys_addr_t ummu_table_root(const struct ummu_table *t)
{
	return virt_to_phys(t->root);
}
