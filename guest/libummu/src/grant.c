// SPDX-License-Identifier: MIT
/* ummu_grant(), ummu_ungrant(), ummu_ungrant_by_token(): checks in the order of the interface. */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"
#include "log.h"
#include "sys.h"

#define ADDRESS_END (1ull << ADDRESS_BITS)

static bool perm_legal(unsigned int perm)
{
	/* Bit 2 (atomic) never stands alone, and there is no empty permission. */
	return perm <= MAPT_PERM_ATOMIC_RW && (perm & MAPT_PERM_RW);
}

static int check_grant(const struct tid *t, uint64_t addr, uint64_t size, unsigned int perm,
		       const struct ummu_seg_attr *attr)
{
	if (!size || addr >= ADDRESS_END || size > ADDRESS_END || addr + size > ADDRESS_END)
		return -EINVAL;
	if (t->mode == MAPT_MODE_TABLE && addr % GRANT_ALIGN)
		return -EINVAL;
	if (!perm_legal(perm) || (unsigned int)attr->e_bit >= UMMU_EBIT_END)
		return -EINVAL;
	return attr->token && attr->token->input > 1 ? -EINVAL : 0;
}

static int make_rights(struct rights *r, unsigned int perm, struct ummu_seg_attr *attr)
{
	*r = (struct rights){ .perm = (uint8_t)perm, .e_bit = (uint8_t)attr->e_bit };
	if (!attr->token)
		return 0;
	if (attr->token->input && !ummu_sys.random(&attr->token->tokenVal, sizeof(attr->token->tokenVal))) {
		log_error("no random numbers for a token");
		return -EINVAL;
	}
	r->tokens = 1;
	r->token[0] = r->token[1] = attr->token->tokenVal;
	return 0;
}

static struct rights rights_of(const struct seg *s)
{
	return (struct rights){ s->perm, s->e_bit, s->tokens, { s->token[0], s->token[1] } };
}

/* Write the tokens of an open range again, after s->token changed. */
void seg_write_tokens(struct tid *t, const struct seg *s)
{
	struct rights r = rights_of(s);

	if (t->mode == MAPT_MODE_TABLE)
		mapt_retoken(t, s->first, s->last, &r);
	else
		entry_write(t, s->first, s->last, &r);
}

static int add_token(struct tid *t, struct seg *s, const struct rights *r)
{
	if (!r->tokens || s->tokens != 1 || s->perm != r->perm || s->e_bit != r->e_bit)
		return -EINVAL;
	s->tokens = 2;
	s->token[1] = r->token[0];
	seg_write_tokens(t, s);
	if (!(t->hw_cap & HW_CAP_PPLBI))
		plbi_range(t, s->first, s->last - s->first + 1);
	return 0;
}

static int open_range(struct tid *t, uint64_t first, uint64_t last, const struct rights *r)
{
	struct seg *s = ummu_sys.alloc(1, sizeof(*s));
	int ret = 0;

	if (!s)
		return -ENOMEM;
	*s = (struct seg){ .first = first, .last = last, .perm = r->perm, .e_bit = r->e_bit,
			   .tokens = r->tokens, .token = { r->token[0], r->token[1] } };
	if (t->mode == MAPT_MODE_TABLE)
		ret = mapt_insert(t, first, last, r);
	else
		entry_write(t, first, last, r);
	if (ret) {
		/* Parts of the range were visible for a moment. */
		if (!(t->hw_cap & HW_CAP_PPLBI))
			plbi_range(t, first, last - first + 1);
		free(s);
		return ret;
	}
	segs_insert(&t->segs, s);
	return 0;
}

int tid_grant(struct tid *t, uint64_t addr, uint64_t size, unsigned int perm, struct ummu_seg_attr *attr)
{
	uint64_t last = addr + size - 1;
	struct rights r;
	struct seg *s;
	int ret = check_grant(t, addr, size, perm, attr);

	if (!ret)
		ret = make_rights(&r, perm, attr);
	if (ret)
		return ret;
	s = segs_exact(&t->segs, addr, last);
	if (s)
		return add_token(t, s, &r);
	if (segs_overlap(&t->segs, addr, last) || (t->mode == MAPT_MODE_ENTRY && t->segs.count))
		return -EINVAL;
	return open_range(t, addr, last, &r);
}

int ummu_grant(uint32_t tid, void *data, size_t data_size, enum ummu_mapt_perm perm, struct ummu_seg_attr *attr)
{
	struct tid *t;
	int ret;

	if (!attr || ummu_device_fd() < 0)
		return -EINVAL;
	t = tid_get(tid);
	if (!t)
		return -EINVAL;
	ret = tid_grant(t, (uintptr_t)data, data_size, (unsigned int)perm, attr);
	tid_put(t);
	return ret;
}

void seg_close(struct tid *t, struct seg *s)
{
	if (t->mode == MAPT_MODE_TABLE)
		mapt_remove(t, s->first, s->last);
	else
		entry_clear(t);
	plbi_range(t, s->first, s->last - s->first + 1);
	segs_remove(&t->segs, s);
	free(s);
}

int seg_drop_token(struct tid *t, struct seg *s, uint32_t token)
{
	if (!s->tokens || (token != s->token[0] && token != s->token[1]))
		return -EINVAL;
	if (s->tokens == 1) {
		seg_close(t, s);
		return 0;
	}
	if (token == s->token[0])
		s->token[0] = s->token[1];
	else
		s->token[1] = s->token[0];
	s->tokens = 1;
	seg_write_tokens(t, s);
	plbi_range(t, s->first, s->last - s->first + 1);
	return 0;
}

/* token NULL: whatever the range has. */
static int ungrant(uint32_t tid, uint64_t addr, uint64_t size, const uint32_t *token)
{
	int ret = -EINVAL;
	struct seg *s;
	struct tid *t;

	if (!size)
		return -ENOMEM;
	t = ummu_device_fd() < 0 ? NULL : tid_get(tid);
	if (!t)
		return -EINVAL;
	if (t->mode == MAPT_MODE_TABLE && addr % GRANT_ALIGN)
		goto out;
	s = segs_exact(&t->segs, addr, addr + size - 1);
	if (s && token) {
		ret = seg_drop_token(t, s, *token);
	} else if (s) {
		seg_close(t, s);
		ret = 0;
	}
out:
	tid_put(t);
	return ret;
}

int ummu_ungrant(uint32_t tid, void *data, size_t size)
{
	return ungrant(tid, (uintptr_t)data, size, NULL);
}

int ummu_ungrant_by_token(uint32_t tid, void *data, size_t size, uint32_t token_val)
{
	return ungrant(tid, (uintptr_t)data, size, &token_val);
}
