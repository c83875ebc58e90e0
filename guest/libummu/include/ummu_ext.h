/* SPDX-License-Identifier: MIT */
/*
 * libummu, beyond the original: batches, a look at what is granted, and a change
 * of token without a gap.  Programs that must also run on the original library
 * do not include this header.
 *
 * The conventions are those of ummu_api.h: 0 on success, a negative value on
 * failure; any thread; calls on different TIDs run side by side.
 */
#ifndef UMMU_EXT_H
#define UMMU_EXT_H

#include "ummu_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One range of a batch; perm and attr are not looked at by ummu_ungrant_many(). */
struct ummu_range {
	void *data;
	size_t size;
	enum ummu_mapt_perm perm;
	struct ummu_seg_attr *attr;
};

/*
 * Open (close) all ranges, or none: when one cannot be, those before it are as they
 * were, and *failed (if not NULL) is its number.  The device is told once, at the
 * end; when the call returns it knows.  Errors are those of ummu_grant() and
 * ummu_ungrant(); ummu_ungrant_many() also gives -EINVAL for a range named twice.
 */
int ummu_grant_many(uint32_t tid, const struct ummu_range *ranges, size_t count, size_t *failed);
int ummu_ungrant_many(uint32_t tid, const struct ummu_range *ranges, size_t count, size_t *failed);

enum ummu_verdict {
	UMMU_ALLOWED = 0,
	UMMU_NOT_GRANTED = 1,	/* a byte is in no range */
	UMMU_WRONG_EBIT = 2,	/* the range wants E_bit 1 */
	UMMU_WRONG_ACCESS = 3,	/* a right is missing */
	UMMU_WRONG_TOKEN = 4,	/* neither of its tokens, or none given */
};

struct ummu_answer {
	enum ummu_verdict verdict;
	void *at;		/* first byte that is refused; NULL when allowed */
};

/*
 * What may a request do?  Looks at this process's own records, asks nobody, and
 * answers as the UMMU would: every byte must be covered, and in each range E_bit,
 * access and token are checked in this order.  access: MAPT_PERM_* bits that are
 * needed; token NULL: the request carries none; e_bit: of the request.
 * -EINVAL: unknown TID, size 0, a NULL answer, or a range behind 2^48.
 */
int ummu_query(uint32_t tid, const void *data, size_t size, enum ummu_mapt_perm access,
	       const uint32_t *token, enum ummu_ebit_state e_bit, struct ummu_answer *answer);

/*
 * Replace a token of a range.  At every moment the device accepts the old token,
 * both, or the new one, never neither; when the call returns it has lost the old
 * one.  next->input = 1: the library chooses a value and writes it back.
 * -EINVAL: no range with exactly these ends, or it has not exactly one token, old.
 */
int ummu_rotate_token(uint32_t tid, void *data, size_t size, uint32_t old,
		      struct ummu_token_info *next);

#ifdef __cplusplus
}
#endif

#endif /* UMMU_EXT_H */
