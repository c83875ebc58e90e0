// SPDX-License-Identifier: MIT
/*
 * Table mode: a radix tree of nodes, four levels of 512.
 *
 * A node carries one range of its own and may have a table of children beside
 * it; the own range wins.  A range is stored on the highest level where its
 * first and last node have room: free node -> stored right there; vacated node
 * with children -> used again; occupied node -> the part goes one level down.
 */
#include <errno.h>

#include "arch.h"
#include "internal.h"

struct part {			/* what of a range falls into one node */
	uint32_t index;
	uint64_t first, last;	/* inside the node's span */
	uint64_t span_start;	/* address of the node's first byte */
};

static unsigned int span_bits(unsigned int level)
{
	return 39 - 9 * level;
}

static uint32_t index_of(unsigned int level, uint64_t address)
{
	return (address >> span_bits(level)) & (NODES_PER_TABLE - 1);
}

/* The part of [first, last] that falls into the index-th node of this level; table_start = span of the table. */
static struct part part_of(unsigned int level, uint32_t index, uint64_t first, uint64_t last)
{
	const unsigned int bits = span_bits(level);
	const uint64_t table_start = first >> (bits + 9) << (bits + 9);
	const uint64_t start = table_start + ((uint64_t)index << bits);
	const uint64_t end = start + (1ull << bits) - 1;

	return (struct part){
		.index = index,
		.first = (first > start ? first : start) - start,
		.last = (last < end ? last : end) - start,
		.span_start = start,
	};
}

/* ---- one node -------------------------------------------------------------- */

static bool is_valid(const mapt_node *n)
{
	return n->w[0] & MAPTE_W0_V_MASK;
}

static bool has_children(const mapt_node *n)
{
	return !(n->w[0] & MAPTE_W0_T_MASK);
}

static bool is_void(const struct tid *t, const mapt_node *n)
{
	if (t->hw_cap & HW_CAP_FREE_BIT)
		return n->w[0] & MAPTE_W0_F_BIT_MASK;
	return (n->w[2] & VOID_OFFSET) == VOID_OFFSET && (n->w[4] & VOID_OFFSET) == VOID_OFFSET &&
	       !(n->w[0] & MAPTE_W0_PERMISSION_MASK);
}

static bool own_range_meets(const struct tid *t, const mapt_node *n, const struct part *p)
{
	uint64_t first = n->w[2] | (uint64_t)GET(MAPTE_W3_BASE_HI, n->w[3]) << 32;
	uint64_t last = n->w[4] | (uint64_t)GET(MAPTE_W5_LIMIT_HI, n->w[5]) << 32;

	return !is_void(t, n) && first <= p->last && last >= p->first;
}

static uint32_t child_of(const struct tid *t, const mapt_node *n)
{
	uint32_t offset = GET(MAPTE_W0_NEXT_LV_OFFSET_LO, n->w[0]) |
			  GET(MAPTE_W1_NEXT_LV_OFFSET_HI, n->w[1]) << 20;

	return GET(MAPTE_W1_NEXT_LV_INDEX, n->w[1]) * t->blocks.per_block + offset / NODES_PER_TABLE;
}

static uint32_t rights_word(const struct rights *r)
{
	return MAPTE_W0_V_MASK | FIELD(MAPTE_W0_E_BIT, r->e_bit) | FIELD(MAPTE_W0_PERMISSION, r->perm);
}

static void write_tokens(mapt_node *n, const struct rights *r)
{
	n->w[6] = r->token[0];
	n->w[7] = r->token[1];
}

/* Words 1 to 7 first, word 0 last; `keep` holds the child fields of a node that is used again. */
static void node_open(mapt_node *n, const struct part *p, const struct rights *r, uint32_t keep)
{
	write_tokens(n, r);
	n->w[2] = (uint32_t)p->first;
	n->w[3] = FIELD(MAPTE_W3_BASE_HI, p->first >> 32) | FIELD(MAPTE_W3_TOKEN_CHK, r->tokens != 0);
	n->w[4] = (uint32_t)p->last;
	n->w[5] = FIELD(MAPTE_W5_LIMIT_HI, p->last >> 32) | FIELD(MAPTE_W5_NONCE, r->tokens);
	device_wmb();
	n->w[0] = keep | rights_word(r);
	device_wmb();
}

static void node_clear(mapt_node *n)
{
	n->w[0] = 0;
	device_wmb();
	for (unsigned int i = 1; i < MAPTE_WORDS; i++)
		n->w[i] = 0;
	device_wmb();
}

/*
 * The own range goes, the children stay.  Rights first; then the limit before
 * the base, so that the range only shrinks on its way to the marker and never
 * covers a child.
 */
static void node_vacate(const struct tid *t, mapt_node *n)
{
	if (t->hw_cap & HW_CAP_FREE_BIT) {
		n->w[0] |= MAPTE_W0_F_BIT_MASK;
		device_wmb();
		return;
	}
	n->w[0] &= ~(uint32_t)(MAPTE_W0_PERMISSION_MASK | MAPTE_W0_E_BIT_MASK);
	device_wmb();
	n->w[4] = VOID_OFFSET;
	device_wmb();
	n->w[5] = 0;
	device_wmb();
	n->w[2] = VOID_OFFSET;
	device_wmb();
	n->w[3] = 0;
	n->w[6] = 0;
	n->w[7] = 0;
	device_wmb();
}

static void node_link(struct tid *t, mapt_node *n, uint32_t table, uint32_t child)
{
	const uint32_t per_block = t->blocks.per_block;
	const uint32_t offset = child % per_block * NODES_PER_TABLE;
	uint32_t w0 = n->w[0] & ~(uint32_t)(MAPTE_W0_T_MASK | MAPTE_W0_N_MASK | MAPTE_W0_NEXT_LV_OFFSET_LO_MASK);

	n->w[1] = FIELD(MAPTE_W1_NEXT_LV_OFFSET_HI, offset >> 20) |
		  FIELD(MAPTE_W1_NEXT_LV_INDEX, child / per_block);
	device_wmb();
	w0 |= FIELD(MAPTE_W0_NEXT_LV_OFFSET_LO, offset) | FIELD(MAPTE_W0_N, child / per_block != table / per_block);
	n->w[0] = w0;
	device_wmb();
}

/* ---- insert ------------------------------------------------------------------- */

static int insert_range(struct tid *t, uint32_t table, unsigned int level, uint64_t first, uint64_t last,
			const struct rights *r);

static int insert_below(struct tid *t, uint32_t table, mapt_node *n, unsigned int level, const struct part *p,
			const struct rights *r)
{
	uint32_t child;
	int ret;

	if (level == LEVELS - 1)
		return -EINVAL;		/* two ranges in one page: the checks before let none through */
	if (has_children(n)) {
		child = child_of(t, n);
	} else {
		ret = table_alloc(t, &child);
		if (ret)
			return ret;
		node_link(t, n, table, child);
	}
	return insert_range(t, child, level + 1, p->span_start + p->first, p->span_start + p->last, r);
}

static int insert_part(struct tid *t, uint32_t table, unsigned int level, const struct part *p,
		       const struct rights *r)
{
	mapt_node *n = table_nodes(t, table) + p->index;

	if (!is_valid(n)) {
		node_open(n, p, r, MAPTE_W0_T_MASK);
		t->blocks.valid_nodes[table]++;
		return 0;
	}
	if (is_void(t, n)) {
		node_open(n, p, r, n->w[0] & (MAPTE_W0_T_MASK | MAPTE_W0_N_MASK | MAPTE_W0_NEXT_LV_OFFSET_LO_MASK));
		/* A cached copy of the vacated node would hide the new range. */
		plbi_node(t, p->span_start, table);
		return 0;
	}
	return insert_below(t, table, n, level, p, r);
}

static int insert_range(struct tid *t, uint32_t table, unsigned int level, uint64_t first, uint64_t last,
			const struct rights *r)
{
	for (uint32_t i = index_of(level, first); i <= index_of(level, last); i++) {
		struct part p = part_of(level, i, first, last);
		int ret = insert_part(t, table, level, &p, r);

		if (ret)
			return ret;
	}
	return 0;
}

int mapt_insert(struct tid *t, uint64_t first, uint64_t last, const struct rights *r)
{
	int ret = insert_range(t, 0, 0, first, last, r);

	if (ret)
		mapt_remove(t, first, last);
	return ret;
}

/* ---- remove -------------------------------------------------------------------- */

static void remove_range(struct tid *t, uint32_t table, unsigned int level, uint64_t first, uint64_t last);

/* After something went from the child table: unlink and release it when it is empty. */
static void tidy_child(struct tid *t, uint32_t table, mapt_node *n, uint32_t child, uint64_t span_start)
{
	if (t->blocks.valid_nodes[child])
		return;
	if (is_void(t, n)) {
		node_clear(n);
		t->blocks.valid_nodes[table]--;
	} else {
		n->w[0] |= MAPTE_W0_T_MASK;
		device_wmb();
	}
	/* The table's memory may be used again or go away: no cached copy may still lead there. */
	plbi_node(t, span_start, child);
	table_free(t, child);
}

static void remove_part(struct tid *t, uint32_t table, unsigned int level, const struct part *p)
{
	mapt_node *n = table_nodes(t, table) + p->index;

	if (!is_valid(n))
		return;
	if (own_range_meets(t, n, p)) {
		if (has_children(n)) {
			node_vacate(t, n);
		} else {
			node_clear(n);
			t->blocks.valid_nodes[table]--;
		}
		return;
	}
	if (has_children(n) && level < LEVELS - 1) {
		uint32_t child = child_of(t, n);

		remove_range(t, child, level + 1, p->span_start + p->first, p->span_start + p->last);
		tidy_child(t, table, n, child, p->span_start);
	}
}

static void remove_range(struct tid *t, uint32_t table, unsigned int level, uint64_t first, uint64_t last)
{
	for (uint32_t i = index_of(level, first); i <= index_of(level, last); i++) {
		struct part p = part_of(level, i, first, last);

		remove_part(t, table, level, &p);
	}
}

void mapt_remove(struct tid *t, uint64_t first, uint64_t last)
{
	remove_range(t, 0, 0, first, last);
}

/* ---- tokens ----------------------------------------------------------------------- */

static void retoken_range(struct tid *t, uint32_t table, unsigned int level, uint64_t first, uint64_t last,
			  const struct rights *r)
{
	for (uint32_t i = index_of(level, first); i <= index_of(level, last); i++) {
		struct part p = part_of(level, i, first, last);
		mapt_node *n = table_nodes(t, table) + i;

		if (!is_valid(n))
			continue;
		if (own_range_meets(t, n, &p)) {
			write_tokens(n, r);
			n->w[5] = (n->w[5] & ~(uint32_t)MAPTE_W5_NONCE_MASK) | FIELD(MAPTE_W5_NONCE, r->tokens);
			device_wmb();
		} else if (has_children(n) && level < LEVELS - 1) {
			retoken_range(t, child_of(t, n), level + 1, p.span_start + p.first, p.span_start + p.last, r);
		}
	}
}

void mapt_retoken(struct tid *t, uint64_t first, uint64_t last, const struct rights *r)
{
	retoken_range(t, 0, 0, first, last, r);
}
