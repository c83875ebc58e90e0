// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Configuration tables in memory: target entity config table (TECT) and target
 * context table (TCT).  One set serves all units.
 */
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/slab.h>

#include "ummu.h"
#include "ummu_arch.h"
#include "ummu_trace.h"

#define TECT_SPLIT	8
#define TECT_L2_ENTRIES	BIT(TECT_SPLIT)
#define TCT_SPLIT	10
#define TCT_L2_ENTRIES	BIT(TCT_SPLIT)
#define ENTRY_U64S	(TECTE_SIZE / sizeof(u64))

static void *table_alloc(size_t size)
{
	return alloc_pages_exact(roundup_pow_of_two(size),
				 GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN);
}

static void table_free(void *table, size_t size)
{
	if (table)
		free_pages_exact(table, roundup_pow_of_two(size));
}

static size_t tect_bytes(const struct ummu_domain *dom)
{
	if (dom->caps.tect_two_level)
		return max_t(size_t, BIT(dom->caps.tag_bits - TECT_SPLIT) * TECT_L1_DESC_SIZE,
			     PAGE_SIZE);
	return max_t(size_t, BIT(dom->caps.tag_bits) * TECTE_SIZE, PAGE_SIZE);
}

static size_t tct_bytes(const struct ummu_domain *dom)
{
	if (dom->caps.tct_two_level)
		return max_t(size_t, BIT(dom->tct_num - TCT_SPLIT) * TCT_L1_DESC_SIZE, PAGE_SIZE);
	return max_t(size_t, BIT(dom->tct_num) * TCTE_SIZE, PAGE_SIZE);
}

static void tecte_init(__le64 *entry)
{
	entry[0] = cpu_to_le64(TECTE_W0_MAPT_EN);
}

/* Address of a TECTE; its level-2 table is made when first needed */
static __le64 *tecte_get(struct ummu_domain *dom, u32 tag)
{
	u32 l1 = tag >> TECT_SPLIT;
	__le64 *l2;
	unsigned int i;

	if (!dom->caps.tect_two_level)
		return (__le64 *)dom->tect + tag * ENTRY_U64S;
	if (!dom->tect_l2[l1]) {
		l2 = table_alloc(TECT_L2_ENTRIES * TECTE_SIZE);
		if (!l2)
			return NULL;
		for (i = 0; i < TECT_L2_ENTRIES; i++)
			tecte_init(l2 + i * ENTRY_U64S);
		dom->tect_l2[l1] = l2;
		dma_wmb();
		WRITE_ONCE(((__le64 *)dom->tect)[l1],
			   cpu_to_le64(TECT_L1_DESC_W0_V |
				       FIELD_PREP(TECT_L1_DESC_W0_L2TECTE_NUM, TECT_SPLIT) |
				       (virt_to_phys(l2) & TECT_L1_DESC_W0_L2PTR)));
	}
	return (__le64 *)dom->tect_l2[l1] + (tag & (TECT_L2_ENTRIES - 1)) * ENTRY_U64S;
}

static __le64 *tcte_get(struct ummu_domain *dom, u32 tid, bool *fresh)
{
	u32 l1 = tid >> TCT_SPLIT;
	__le64 *l2;

	*fresh = false;
	if (!dom->caps.tct_two_level)
		return (__le64 *)dom->tct + tid * ENTRY_U64S;
	if (!dom->tct_l2[l1]) {
		l2 = table_alloc(TCT_L2_ENTRIES * TCTE_SIZE);
		if (!l2)
			return NULL;
		dom->tct_l2[l1] = l2;
		dma_wmb();
		WRITE_ONCE(((__le64 *)dom->tct)[l1],
			   cpu_to_le64(TCT_L1_DESC_W0_V |
				       (virt_to_phys(l2) & TCT_L1_DESC_W0_L2TCT_PTR)));
		*fresh = true;
	}
	return (__le64 *)dom->tct_l2[l1] + (tid & (TCT_L2_ENTRIES - 1)) * ENTRY_U64S;
}

/* For debugfs: look without making tables; cfg_lock held */
const __le64 *ummu_tct_peek(struct ummu_domain *dom, u32 tid)
{
	if (tid >= BIT(dom->tct_num))
		return NULL;
	if (!dom->caps.tct_two_level)
		return (__le64 *)dom->tct + tid * ENTRY_U64S;
	if (!dom->tct_l2[tid >> TCT_SPLIT])
		return NULL;
	return (__le64 *)dom->tct_l2[tid >> TCT_SPLIT] + (tid & (TCT_L2_ENTRIES - 1)) * ENTRY_U64S;
}

const __le64 *ummu_tect_peek(struct ummu_domain *dom, u32 tag)
{
	if (tag >= BIT(dom->caps.tag_bits))
		return NULL;
	if (!dom->caps.tect_two_level)
		return (__le64 *)dom->tect + tag * ENTRY_U64S;
	if (!dom->tect_l2[tag >> TECT_SPLIT])
		return NULL;
	return (__le64 *)dom->tect_l2[tag >> TECT_SPLIT] +
	       (tag & (TECT_L2_ENTRIES - 1)) * ENTRY_U64S;
}

int ummu_cfg_alloc(struct ummu_domain *dom)
{
	unsigned int i;

	dom->tect = table_alloc(tect_bytes(dom));
	dom->tct = table_alloc(tct_bytes(dom));
	if (!dom->tect || !dom->tct)
		return -ENOMEM;
	if (dom->caps.tect_two_level) {
		dom->tect_l2 = kcalloc(BIT(dom->caps.tag_bits - TECT_SPLIT), sizeof(void *),
				       GFP_KERNEL);
		if (!dom->tect_l2)
			return -ENOMEM;
	} else {
		for (i = 0; i < BIT(dom->caps.tag_bits); i++)
			tecte_init((__le64 *)dom->tect + i * ENTRY_U64S);
	}
	if (dom->caps.tct_two_level) {
		dom->tct_l2 = kcalloc(BIT(dom->tct_num - TCT_SPLIT), sizeof(void *), GFP_KERNEL);
		if (!dom->tct_l2)
			return -ENOMEM;
	}
	return 0;
}

void ummu_cfg_free(struct ummu_domain *dom)
{
	unsigned int i;

	if (dom->tect_l2)
		for (i = 0; i < BIT(dom->caps.tag_bits - TECT_SPLIT); i++)
			table_free(dom->tect_l2[i], TECT_L2_ENTRIES * TECTE_SIZE);
	if (dom->tct_l2)
		for (i = 0; i < BIT(dom->tct_num - TCT_SPLIT); i++)
			table_free(dom->tct_l2[i], TCT_L2_ENTRIES * TCTE_SIZE);
	kfree(dom->tect_l2);
	kfree(dom->tct_l2);
	table_free(dom->tect, tect_bytes(dom));
	table_free(dom->tct, tct_bytes(dom));
}

void ummu_tect_program(struct ummu_unit *u)
{
	struct ummu_domain *dom = u->dom;
	u32 cfg = FIELD_PREP(UMMU_TECT_BASE_CFG_LOG2SIZE, dom->caps.tag_bits);

	if (dom->caps.tect_two_level)
		cfg |= FIELD_PREP(UMMU_TECT_BASE_CFG_SPLIT, TECT_SPLIT) |
		       FIELD_PREP(UMMU_TECT_BASE_CFG_FMT, 1);
	ummu_wr64(u, UMMU_TECT_BASE,
		  (virt_to_phys(dom->tect) & UMMU_TECT_BASE_ADDR) | UMMU_TECT_BASE_RA);
	ummu_wr(u, UMMU_TECT_BASE_CFG, cfg);
}

static int cfgi_tect(struct ummu_domain *dom, bool leaf)
{
	struct ummu_cmd cmds[2];

	cmds[0] = ummu_cmd_op(UMMU_CMD_CFGI_TECT);
	cmds[0].w[0] |= FIELD_PREP(CMD_CFGI_TECT_W0_LEAF, leaf);
	cmds[0].w[2] = FIELD_PREP(CMD_DEID128_W2_DEID_LO, UMMU_LOCAL_TAG);
	cmds[1] = ummu_cmd_op(UMMU_CMD_PREFET_CFG);
	cmds[1].w[2] = FIELD_PREP(CMD_DEID128_W2_DEID_LO, UMMU_LOCAL_TAG);
	return ummu_issue(dom, cmds, 2);
}

/* TECTE 0: stage 1, contexts from our TCT, everything privileged; cfg_lock held */
int ummu_tecte_local_on(struct ummu_domain *dom)
{
	__le64 *e = tecte_get(dom, UMMU_LOCAL_TAG);
	u64 w0, w1;

	if (!e)
		return -ENOMEM;
	w1 = FIELD_PREP(TECTE_W1_TCT_NUM, dom->tct_num) |
	     (virt_to_phys(dom->tct) & TECTE_W1_TCT_PTR) |
	     FIELD_PREP(TECTE_W1_TCT_FMT, dom->caps.tct_two_level ? UMMU_TCT_FMT_L2_1024 :
							    UMMU_TCT_FMT_LINEAR) |
	     FIELD_PREP(TECTE_W1_TCT_STALL_DISABLE, !dom->caps.stall) |
	     FIELD_PREP(TECTE_W1_TCT_PTR_MD0, 1) | FIELD_PREP(TECTE_W1_TCT_PTR_MD1, 1) |
	     FIELD_PREP(TECTE_W1_TCT_PTR_MSD, 3);
	w0 = TECTE_W0_V | TECTE_W0_MAPT_EN | FIELD_PREP(TECTE_W0_ST_MODE, UMMU_ST_MODE_S1) |
	     FIELD_PREP(TECTE_W0_PRIV_SEL, 3) |
	     FIELD_PREP(TECTE_W0_TCRC_SEL, dom->caps.el2_regime ? 2 : 0);
	e[1] = cpu_to_le64(w1);
	dma_wmb();
	WRITE_ONCE(e[0], cpu_to_le64(w0));
	return cfgi_tect(dom, false);
}

void ummu_tecte_local_off(struct ummu_domain *dom)
{
	__le64 *e = tecte_get(dom, UMMU_LOCAL_TAG);

	if (!e)
		return;
	WRITE_ONCE(e[0], cpu_to_le64(TECTE_W0_MAPT_EN));
	cfgi_tect(dom, true);
}

/* ---------------------------------------------------------------- TCTEs */

static unsigned int block_code(unsigned long size)
{
	return ilog2(size / SZ_4K);
}

static u64 tcte_w0_live(struct ummu_ctx *ctx)
{
	const struct ummu_caps *caps = &ctx->proc->dom->caps;
	bool table = ctx->mode == UMMU_MAPT_TABLE;
	u64 w0;

	w0 = TCTE_W0_V | TCTE_W0_AA64 | TCTE_W0_FBR | TCTE_W0_FBA | TCTE_W0_ASH |
	     FIELD_PREP(TCTE_W0_GPAS, min_t(u32, caps->oas_code, ummu_arch_pa_code())) |
	     FIELD_PREP(TCTE_W0_ASID, ummu_ctx_asid(ctx));
	if (caps->httu >= 1)
		w0 |= TCTE_W0_HAF;
	if (caps->httu >= 2)
		w0 |= TCTE_W0_HDF;
	if (caps->stall)
		w0 |= TCTE_W0_FBS;
	/* the kernel's own TIDs reach what their page table holds, nothing else */
	if (caps->mapt && ctx->proc->mm)
		/* 1 = table: the opposite of the software's mode number */
		w0 |= TCTE_W0_MAPT_EN | FIELD_PREP(TCTE_W0_MAPT_MODE, table) |
		      FIELD_PREP(TCTE_W0_RTGS, table ? 1 : 0);
	return w0;
}

static void tcte_fill(struct ummu_ctx *ctx, __le64 *e, const struct ummu_block *base)
{
	struct ummu_proc *p = ctx->proc;
	bool own = p->matt || ctx->svm;
	u64 mair = own ? UMMU_OWN_MAIR : ummu_arch_mair();
	u64 root = ctx->svm ? ummu_table_root(&ctx->svm->table) :
		   own ? ummu_matt_root(p) : virt_to_phys(p->mm->pgd);
	u64 bits = own ? UMMU_VA_BITS : ummu_arch_user_va_bits();
	u64 w3 = FIELD_PREP(TCTE_W3_MAPT_BB_MA, 1) | FIELD_PREP(TCTE_W3_MAPT_BB_SH, 3) |
		 (page_to_phys(base->page) & TCTE_W3_MAPT_BBA);
	u64 w4 = FIELD_PREP(TCTE_W4_MAPT_BT_MA, 1) | FIELD_PREP(TCTE_W4_MAPT_BT_SH, 3);

	if (ctx->mode == UMMU_MAPT_TABLE) {
		w3 |= FIELD_PREP(TCTE_W3_MAPT_BB_SZ, block_code(ctx->block_size));
		w4 |= (virt_to_phys(ctx->block_table) & TCTE_W4_MAPT_BTA);
	}
	e[1] = cpu_to_le64(FIELD_PREP(TCTE_W1_SZ, 64 - bits) |
			   FIELD_PREP(TCTE_W1_TGS, own ? 0 : ummu_arch_tgs()) |
			   FIELD_PREP(TCTE_W1_MD0, 1) | FIELD_PREP(TCTE_W1_MD1, 1) |
			   FIELD_PREP(TCTE_W1_MSD, 3));
	e[2] = cpu_to_le64(root & TCTE_W2_MATTBA);
	e[3] = cpu_to_le64(w3);
	e[4] = cpu_to_le64(w4);
	e[5] = cpu_to_le64(mair);
}

static __le64 *ctx_tcte(struct ummu_ctx *ctx)
{
	bool fresh;

	return tcte_get(ctx->proc->dom, ctx->tid, &fresh);
}

/* Make the context usable: block 0 exists, ctx->state is not LIVE */
int ummu_ctx_write_live(struct ummu_ctx *ctx)
{
	struct ummu_domain *dom = ctx->proc->dom;
	struct ummu_block *base = xa_load(&ctx->blocks, 0);
	bool fresh;
	__le64 *e;

	if (!base)
		return -EINVAL;
	mutex_lock(&dom->cfg_lock);
	e = tcte_get(dom, ctx->tid, &fresh);
	if (!e) {
		mutex_unlock(&dom->cfg_lock);
		return -ENOMEM;
	}
	if (ctx->state != UMMU_CTX_OFF) {
		WRITE_ONCE(e[0], 0);
		ummu_cfgi_tct(dom, ctx->tid, true);
	}
	tcte_fill(ctx, e, base);
	dma_wmb();
	WRITE_ONCE(e[0], cpu_to_le64(tcte_w0_live(ctx)));
	ctx->state = UMMU_CTX_LIVE;
	ummu_cfgi_tct(dom, ctx->tid, !fresh);
	mutex_unlock(&dom->cfg_lock);
	trace_ummu_context(ctx->tid, ctx->state, ummu_ctx_asid(ctx));
	return 0;
}

/*
 * Refuse everything from now on, without events and without touching the
 * process's tables.  Two steps: walks are forbidden and cached translations
 * dropped first, so that the second step, which also ends the permission
 * check, never lets anything through.  At no time is the entry invalid: that
 * would make the device record an event per access.
 */
void ummu_ctx_write_quiet(struct ummu_ctx *ctx)
{
	struct ummu_domain *dom = ctx->proc->dom;
	__le64 *e;
	u64 w0;

	if (ctx->state != UMMU_CTX_LIVE)
		return;
	mutex_lock(&dom->cfg_lock);
	e = ctx_tcte(ctx);
	WRITE_ONCE(e[1], e[1] | cpu_to_le64(TCTE_W1_MATTWD));
	ummu_cfgi_tct(dom, ctx->tid, true);
	ummu_tlbi_asid(dom, ummu_ctx_asid(ctx));
	w0 = le64_to_cpu(e[0]) & ~(TCTE_W0_FBR | TCTE_W0_FBS | TCTE_W0_MAPT_EN);
	WRITE_ONCE(e[0], cpu_to_le64(w0));
	ctx->state = UMMU_CTX_QUIET;
	ummu_cfgi_tct(dom, ctx->tid, true);
	ummu_plbi_tid(dom, ctx->tid);
	mutex_unlock(&dom->cfg_lock);
	trace_ummu_context(ctx->tid, ctx->state, ummu_ctx_asid(ctx));
}

void ummu_ctx_write_off(struct ummu_ctx *ctx)
{
	struct ummu_domain *dom = ctx->proc->dom;
	__le64 *e;
	unsigned int i;

	if (ctx->state == UMMU_CTX_OFF)
		return;
	mutex_lock(&dom->cfg_lock);
	e = ctx_tcte(ctx);
	WRITE_ONCE(e[0], 0);
	ummu_cfgi_tct(dom, ctx->tid, true);
	ummu_plbi_tid(dom, ctx->tid);
	ummu_tlbi_asid(dom, ummu_ctx_asid(ctx));
	for (i = 1; i < ENTRY_U64S; i++)
		e[i] = 0;
	ctx->state = UMMU_CTX_OFF;
	mutex_unlock(&dom->cfg_lock);
	trace_ummu_context(ctx->tid, ctx->state, ummu_ctx_asid(ctx));
}
