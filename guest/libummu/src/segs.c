// SPDX-License-Identifier: MIT
/* A treap: a search tree by start, a heap by random priority; expected depth O(log n). */
#include <stdlib.h>

#include "segs.h"

static uint32_t next_priority(struct segs *s)
{
	uint32_t x = s->seed ? s->seed : 0x9e3779b9u;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return s->seed = x;
}

/* The range with the largest start <= byte. */
static struct seg *floor_of(const struct segs *s, uint64_t byte)
{
	struct seg *n = s->root, *best = NULL;

	while (n) {
		if (n->first <= byte) {
			best = n;
			n = n->right;
		} else {
			n = n->left;
		}
	}
	return best;
}

struct seg *segs_at(const struct segs *s, uint64_t byte)
{
	struct seg *n = floor_of(s, byte);

	return n && n->last >= byte ? n : NULL;
}

struct seg *segs_overlap(const struct segs *s, uint64_t first, uint64_t last)
{
	/* Ranges are disjoint: of those that start at or before `last` the rightmost ends last. */
	struct seg *n = floor_of(s, last);

	return n && n->last >= first ? n : NULL;
}

struct seg *segs_exact(const struct segs *s, uint64_t first, uint64_t last)
{
	struct seg *n = floor_of(s, first);

	return n && n->first == first && n->last == last ? n : NULL;
}

/* Split t into starts < key and starts >= key; iterative, so depth costs no stack. */
static void split(struct seg *t, uint64_t key, struct seg **low, struct seg **high)
{
	while (t) {
		if (t->first < key) {
			*low = t;
			low = &t->right;
			t = t->right;
		} else {
			*high = t;
			high = &t->left;
			t = t->left;
		}
	}
	*low = *high = NULL;
}

static struct seg *merge(struct seg *low, struct seg *high)
{
	struct seg *root, **link = &root;

	while (low && high) {
		if (low->priority > high->priority) {
			*link = low;
			link = &low->right;
			low = low->right;
		} else {
			*link = high;
			link = &high->left;
			high = high->left;
		}
	}
	*link = low ? low : high;
	return root;
}

void segs_insert(struct segs *s, struct seg *n)
{
	struct seg **link = &s->root;

	n->priority = next_priority(s);
	while (*link && (*link)->priority >= n->priority)
		link = n->first < (*link)->first ? &(*link)->left : &(*link)->right;
	split(*link, n->first, &n->left, &n->right);
	*link = n;
	s->count++;
}

void segs_remove(struct segs *s, struct seg *n)
{
	struct seg **link = &s->root;

	while (*link && *link != n)
		link = n->first < (*link)->first ? &(*link)->left : &(*link)->right;
	if (!*link)
		return;
	*link = merge(n->left, n->right);
	s->count--;
}

void segs_free_all(struct segs *s)
{
	/* Rotate left children away: frees in order without recursion. */
	struct seg *n = s->root;

	while (n) {
		if (n->left) {
			struct seg *l = n->left;

			n->left = l->right;
			l->right = n;
			n = l;
		} else {
			struct seg *r = n->right;

			free(n);
			n = r;
		}
	}
	s->root = NULL;
	s->count = 0;
}
