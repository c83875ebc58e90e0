// SPDX-License-Identifier: MIT
/* Beyond the original interface: batches, look-up, change of token (ummu_ext.h). */
#include <errno.h>
#include <stdlib.h>

#include <ummu_ext.h>

#include "internal.h"
#include "log.h"
#include "sys.h"

#define ADDRESS_END (1ull << ADDRESS_BITS)

static struct tid *get(uint32_t tid)
{
	return ummu_device_fd() < 0 ? NULL : tid_get(tid);
}

static uint64_t last_of(const struct ummu_range *r)
{
	return (uintptr_t)r->data + r->size - 1;
}

/* ---- batches ----------------------------------------------------------------- */

/* Take back what one successful grant of a batch did. */
static void undo(struct tid *t, const struct ummu_range *r)
{
	struct seg *s = segs_exact(&t->segs, (uintptr_t)r->data, last_of(r));

	if (s->tokens == 2)
		seg_drop_token(t, s, s->token[1]);
	else
		seg_close(t, s);
}

int ummu_grant_many(uint32_t tid, const struct ummu_range *ranges, size_t count, size_t *failed)
{
	struct tid *t = ranges || !count ? get(tid) : NULL;
	size_t i;
	int ret = 0;

	if (!t)
		return -EINVAL;
	plbi_defer(t);
	for (i = 0; i < count && !ret; i++) {
		const struct ummu_range *r = &ranges[i];

		ret = r->attr ? tid_grant(t, (uintptr_t)r->data, r->size, (unsigned int)r->perm, r->attr) :
				-EINVAL;
	}
	if (ret) {
		if (failed)
			*failed = i - 1;
		while (--i)
			undo(t, &ranges[i - 1]);
	}
	plbi_flush(t);
	tid_put(t);
	return ret;
}

/* The ranges that exist are marked; returns how many before the first that does not. */
static size_t mark_all(struct tid *t, const struct ummu_range *ranges, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct ummu_range *r = &ranges[i];
		struct seg *s = r->size ? segs_exact(&t->segs, (uintptr_t)r->data, last_of(r)) : NULL;

		if (!s || s->marked)
			return i;
		s->marked = true;
	}
	return count;
}

int ummu_ungrant_many(uint32_t tid, const struct ummu_range *ranges, size_t count, size_t *failed)
{
	struct tid *t = ranges || !count ? get(tid) : NULL;
	size_t good;

	if (!t)
		return -EINVAL;
	good = mark_all(t, ranges, count);
	plbi_defer(t);
	for (size_t i = 0; i < good; i++) {
		struct seg *s = segs_exact(&t->segs, (uintptr_t)ranges[i].data, last_of(&ranges[i]));

		s->marked = false;
		if (good == count)
			seg_close(t, s);
	}
	plbi_flush(t);
	tid_put(t);
	if (good == count)
		return 0;
	if (failed)
		*failed = good;
	return ranges[good].size ? -EINVAL : -ENOMEM;
}

/* ---- look-up ----------------------------------------------------------------- */

static enum ummu_verdict check(const struct seg *s, unsigned int access, const uint32_t *token, unsigned int e_bit)
{
	if (s->e_bit && !e_bit)
		return UMMU_WRONG_EBIT;
	if (access & ~(unsigned int)s->perm)
		return UMMU_WRONG_ACCESS;
	if (s->tokens && (!token || (*token != s->token[0] && *token != s->token[1])))
		return UMMU_WRONG_TOKEN;
	return UMMU_ALLOWED;
}

static enum ummu_verdict query(const struct tid *t, uint64_t first, uint64_t last, unsigned int access,
			       const uint32_t *token, unsigned int e_bit, uint64_t *at)
{
	for (*at = first; ; ) {
		const struct seg *s = segs_at(&t->segs, *at);
		enum ummu_verdict v = s ? check(s, access, token, e_bit) : UMMU_NOT_GRANTED;

		if (v != UMMU_ALLOWED || s->last >= last)
			return v;
		*at = s->last + 1;
	}
}

int ummu_query(uint32_t tid, const void *data, size_t size, enum ummu_mapt_perm access, const uint32_t *token,
	       enum ummu_ebit_state e_bit, struct ummu_answer *answer)
{
	uint64_t first = (uintptr_t)data, at;
	struct tid *t;

	if (!answer || !size || first >= ADDRESS_END || size > ADDRESS_END - first)
		return -EINVAL;
	t = get(tid);
	if (!t)
		return -EINVAL;
	answer->verdict = query(t, first, first + size - 1, (unsigned int)access, token, (unsigned int)e_bit, &at);
	answer->at = answer->verdict == UMMU_ALLOWED ? NULL : (void *)(uintptr_t)at;
	tid_put(t);
	return 0;
}

/* ---- change of token --------------------------------------------------------- */

static int rotate(struct tid *t, struct seg *s, uint32_t old, struct ummu_token_info *next)
{
	if (s->tokens != 1 || s->token[0] != old)
		return -EINVAL;
	if (next->input && !ummu_sys.random(&next->tokenVal, sizeof(next->tokenVal))) {
		log_error("no random numbers for a token");
		return -EINVAL;
	}
	/* Both, told to the device: what it had cached knew the old one only. */
	s->tokens = 2;
	s->token[1] = next->tokenVal;
	seg_write_tokens(t, s);
	plbi_range(t, s->first, s->last - s->first + 1);
	/* And only the new one. */
	s->tokens = 1;
	s->token[0] = next->tokenVal;
	seg_write_tokens(t, s);
	plbi_range(t, s->first, s->last - s->first + 1);
	return 0;
}

int ummu_rotate_token(uint32_t tid, void *data, size_t size, uint32_t old, struct ummu_token_info *next)
{
	uint64_t first = (uintptr_t)data;
	struct tid *t;
	struct seg *s;
	int ret;

	if (!next || next->input > 1 || !size)
		return -EINVAL;
	t = get(tid);
	if (!t)
		return -EINVAL;
	s = segs_exact(&t->segs, first, first + size - 1);
	ret = s ? rotate(t, s, old, next) : -EINVAL;
	tid_put(t);
	return ret;
}
