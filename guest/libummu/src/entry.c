// SPDX-License-Identifier: MIT
/* Entry mode: one record at the start of the page, absolute addresses. */
#include "arch.h"
#include "internal.h"

void entry_write(struct tid *t, uint64_t first, uint64_t last, const struct rights *r)
{
	mapt_node *n = t->blocks.block[0];

	n->w[1] = 0;
	n->w[2] = (uint32_t)first;
	n->w[3] = FIELD(UMAPTE_W3_BASE_HI, first >> 32) | FIELD(UMAPTE_W3_TOKEN_CHK, r->tokens != 0);
	n->w[4] = (uint32_t)last;
	n->w[5] = FIELD(UMAPTE_W5_LIMIT_HI, last >> 32) | FIELD(UMAPTE_W5_NONCE, r->tokens);
	n->w[6] = r->token[0];
	n->w[7] = r->token[1];
	device_wmb();
	n->w[0] = UMAPTE_W0_V_MASK | FIELD(UMAPTE_W0_E_BIT, r->e_bit) | FIELD(UMAPTE_W0_PERMISSION, r->perm);
	device_wmb();
}

void entry_clear(struct tid *t)
{
	mapt_node *n = t->blocks.block[0];

	n->w[0] = 0;
	device_wmb();
	for (unsigned int i = 1; i < UMAPTE_WORDS; i++)
		n->w[i] = 0;
	device_wmb();
}
