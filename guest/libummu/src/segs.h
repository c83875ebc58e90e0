/* SPDX-License-Identifier: MIT */
/* The ranges of one TID, ordered by start; disjoint.  Every operation is O(log n). */
#ifndef SEGS_H
#define SEGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seg {
	uint64_t first, last;		/* bytes, inclusive */
	uint8_t perm, e_bit;
	uint8_t tokens;			/* 0, 1, 2 */
	uint32_t token[2];
	bool marked;			/* named by the batch that runs */
	/* tree */
	uint32_t priority;
	struct seg *left, *right;
};

struct segs {
	struct seg *root;
	size_t count;
	uint32_t seed;
};

/* The range that has the byte, or NULL. */
struct seg *segs_at(const struct segs *s, uint64_t byte);
/* Any range with a byte in [first, last], or NULL. */
struct seg *segs_overlap(const struct segs *s, uint64_t first, uint64_t last);
/* The range with exactly these ends, or NULL. */
struct seg *segs_exact(const struct segs *s, uint64_t first, uint64_t last);
/* Takes over n, which overlaps nothing. */
void segs_insert(struct segs *s, struct seg *n);
/* Unlinks n; the caller frees it. */
void segs_remove(struct segs *s, struct seg *n);
void segs_free_all(struct segs *s);

#endif
