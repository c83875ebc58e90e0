// SPDX-License-Identifier: MIT
/* From struct accel_job to a submission ring entry. */
#include <errno.h>
#include <string.h>

#include "internal.h"

/* All three operand slots have the same layout: words 2/3, 4/5, 6/7. */
static int put_operand(uint64_t *desc, unsigned int n, const struct accel_operand *op)
{
	if (op->tid > (ACCEL_DESC_W3_OP0_TID_MASK >> ACCEL_DESC_W3_OP0_TID_SHIFT))
		return -EINVAL;
	desc[2 + 2 * n] = (uintptr_t)op->addr;
	desc[3 + 2 * n] = FIELD(ACCEL_DESC_W3_OP0_TID, op->tid) |
			  FIELD(ACCEL_DESC_W3_OP0_TV, op->has_token) |
			  FIELD(ACCEL_DESC_W3_OP0_WIRE, op->wire);
	if (op->has_token)
		desc[3 + 2 * n] |= FIELD(ACCEL_DESC_W3_OP0_TOKEN, op->token);
	return 0;
}

static int put_gemm_size(uint64_t *desc, const struct accel_job *job)
{
	const uint32_t max = ACCEL_DESC_W1_M_MASK >> ACCEL_DESC_W1_M_SHIFT;

	if (job->m > max || job->n > max || job->k > max)
		return -EINVAL;
	desc[1] = FIELD(ACCEL_DESC_W1_M, job->m) | FIELD(ACCEL_DESC_W1_N, job->n) |
		  FIELD(ACCEL_DESC_W1_K, job->k);
	return 0;
}

static int put_body(uint64_t *desc, const struct accel_job *job)
{
	int ret;

	desc[1] = job->length;
	switch (job->op) {
	case ACCEL_NOP:
	case ACCEL_FENCE:
		desc[1] = 0;
		return 0;
	case ACCEL_FILL:
		desc[2] = job->pattern;
		return put_operand(desc, 1, &job->dst);
	case ACCEL_CRC32C:
		return put_operand(desc, 0, &job->src);
	case ACCEL_COPY:
	case ACCEL_COMPARE:
	case ACCEL_ADD:
		ret = put_operand(desc, 0, &job->src);
		return ret ? ret : put_operand(desc, 1, &job->dst);
	case ACCEL_ATOMIC:
		desc[4] = job->value;
		desc[6] = job->compare;
		return put_operand(desc, 0, &job->src);
	case ACCEL_GEMM:
		ret = put_gemm_size(desc, job);
		if (ret)
			return ret;
		break;
	case ACCEL_GATHER:
		break;
	default:
		/* Left to the device to refuse: tests submit operations it does not know. */
		break;
	}
	ret = put_operand(desc, 0, &job->src);
	if (!ret)
		ret = put_operand(desc, 1, &job->dst);
	return ret ? ret : put_operand(desc, 2, &job->out);
}

int accel_encode(const struct accel_job *job, uint32_t cookie, uint64_t desc[ACCEL_DESC_WORDS])
{
	unsigned int flags = ACCEL_DESC_FLAG_INT;

	if ((unsigned int)job->op > 0xff || (unsigned int)job->atomic > 0xff ||
	    (unsigned int)job->dtype > 0xff)
		return -EINVAL;
	if (job->fence_before)
		flags |= ACCEL_DESC_FLAG_FENCE_BEFORE;
	memset(desc, 0, ACCEL_DESC_SIZE);
	desc[0] = FIELD(ACCEL_DESC_W0_OPCODE, job->op) | FIELD(ACCEL_DESC_W0_FLAGS, flags) |
		  FIELD(ACCEL_DESC_W0_COOKIE, cookie);
	if (job->op == ACCEL_ATOMIC)
		desc[0] |= FIELD(ACCEL_DESC_W0_SUBOP, job->atomic);
	if (job->op >= ACCEL_ADD && job->op <= ACCEL_ATOMIC)
		desc[0] |= FIELD(ACCEL_DESC_W0_DTYPE, job->dtype);
	return put_body(desc, job);
}
