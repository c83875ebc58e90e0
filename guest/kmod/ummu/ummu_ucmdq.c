// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * User command queues: a process invalidates its own permission entries without
 * a system call.  The queue's context names tag and TID, so a process cannot
 * reach anybody else's entries through it.
 *
 * Each ring is one page: user space computes the ring sizes from the page
 * orders, which are both 0.
 */
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/log2.h>

#include "ummu.h"

#define CTX_U64S	(MAPT_CMDQ_CTX_SIZE / sizeof(u64))
#define CMD_LOG2	ilog2(PAGE_SIZE / UCMD_SIZE)
#define CPL_LOG2	ilog2(PAGE_SIZE / UCPL_SIZE)
#define CTX_READY	1

static void qids_destroy(void *qids)
{
	ida_destroy(qids);
}

int ummu_ucmdq_table_alloc(struct ummu_unit *u)
{
	struct ummu_ucmdq_table *t = &u->uq;
	u32 count = max_t(u32, u->ctrl_count, 1);

	t->log2 = ilog2(count);
	t->ctx = dmam_alloc_coherent(u->dev, MAPT_CMDQ_CTX_SIZE << t->log2, &t->dma, GFP_KERNEL);
	if (!t->ctx)
		return -ENOMEM;
	mutex_init(&t->release_lock);
	ida_init(&t->qids);
	return devm_add_action_or_reset(u->dev, qids_destroy, &t->qids);
}

void ummu_ucmdq_table_program(struct ummu_unit *u)
{
	ummu_wr64(u, UMMU_MAPT_CMDQ_CTXT_BADDR,
		  (u->uq.dma & UMMU_MAPT_CMDQ_CTXT_BADDR_ADDR) |
		  FIELD_PREP(UMMU_MAPT_CMDQ_CTXT_BADDR_LOG2SIZE, u->uq.log2));
	ummu_wr(u, UMMU_MAPT_CMDQ_CTXT_MATTR, 0);
}

static void __iomem *uq_ctrl(struct ummu_unit *u, u32 qid)
{
	return u->ctrl_pages + (size_t)qid * PAGE_SIZE;
}

static void uq_clear_indices(struct ummu_unit *u, u32 qid)
{
	void __iomem *c = uq_ctrl(u, qid);

	writel(0, c + UCMDQ_CI);
	writel(0, c + UCMDQ_PI);
	writel(0, c + UCPLQ_PI);
	writel(0, c + UCPLQ_CI);
}

static void uq_write_context(struct ummu_unit *u, const struct ummu_uq *q, u32 tid)
{
	__le64 *e = u->uq.ctx + q->qid * CTX_U64S;

	e[4] = cpu_to_le64(FIELD_PREP(MAPT_CMDQ_CTX_W4_TID, tid));
	e[2] = cpu_to_le64(FIELD_PREP(MAPT_CMDQ_CTX_W2_TECTE_TAG, UMMU_LOCAL_TAG));
	e[1] = cpu_to_le64(FIELD_PREP(MAPT_CMDQ_CTX_W1_UCPLQ_QSIZE, CPL_LOG2) |
			   (page_to_phys(q->cpl) & MAPT_CMDQ_CTX_W1_UCPLQ_BASE) |
			   FIELD_PREP(MAPT_CMDQ_CTX_W1_UCPLQ_MA, 1) |
			   FIELD_PREP(MAPT_CMDQ_CTX_W1_UCPLQ_SH, 3));
	dma_wmb();
	WRITE_ONCE(e[0], cpu_to_le64(FIELD_PREP(MAPT_CMDQ_CTX_W0_STATUS, CTX_READY) |
			   FIELD_PREP(MAPT_CMDQ_CTX_W0_UCMDQ_QSIZE, CMD_LOG2) |
			   (page_to_phys(q->cmd) & MAPT_CMDQ_CTX_W0_UCMDQ_BASE) |
			   FIELD_PREP(MAPT_CMDQ_CTX_W0_UCMDQ_MA, 1) |
			   FIELD_PREP(MAPT_CMDQ_CTX_W0_UCMDQ_SH, 3)));
}

/* The device forgets the queue; after that it does not touch the rings */
static void uq_release_device(struct ummu_unit *u, u32 qid)
{
	__le64 *e = u->uq.ctx + qid * CTX_U64S;
	u32 val;
	int ret;

	WRITE_ONCE(e[0], 0);
	dma_wmb();
	mutex_lock(&u->uq.release_lock);
	ummu_wr(u, UMMU_RELEASE_UM_QUEUE_ID, qid);
	ummu_wr(u, UMMU_RELEASE_UM_QUEUE, UMMU_RELEASE_UM_QUEUE_RELEASE);
	ret = readl_poll_timeout(u->regs + UMMU_RELEASE_UM_QUEUE, val,
				 !(val & UMMU_RELEASE_UM_QUEUE_RELEASE), 1, UMMU_RELEASE_US);
	mutex_unlock(&u->uq.release_lock);
	if (ret)
		dev_err_ratelimited(u->dev, "user queue %u is not released after %u us\n", qid,
				    UMMU_RELEASE_US);
}

static void uq_free_pages(struct ummu_uq *q)
{
	if (q->cmd)
		__free_page(q->cmd);
	if (q->cpl)
		__free_page(q->cpl);
	q->cmd = NULL;
	q->cpl = NULL;
}

static int uq_open(struct ummu_unit *u, struct ummu_uq *q, u32 tid)
{
	const gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	int qid;

	if (!u->ctrl_pages || !u->ctrl_count)
		return -ENODEV;
	qid = ida_alloc_max(&u->uq.qids, BIT(u->uq.log2) - 1, GFP_KERNEL);
	if (qid < 0)
		return qid == -ENOSPC ? -EBUSY : qid;
	q->cmd = alloc_page(gfp);
	q->cpl = alloc_page(gfp);
	if (!q->cmd || !q->cpl) {
		uq_free_pages(q);
		ida_free(&u->uq.qids, qid);
		return -ENOMEM;
	}
	q->unit_id = u->id;
	q->slot = u->slot;
	q->qid = qid;
	q->ctrl = u->ctrl_phys + (phys_addr_t)qid * PAGE_SIZE;
	uq_write_context(u, q, tid);
	uq_clear_indices(u, qid);
	return 0;
}

static void uq_close(struct ummu_domain *dom, struct ummu_uq *q)
{
	int idx = srcu_read_lock(&ummu_srcu);
	struct ummu_unit *u = srcu_dereference(dom->units[q->slot], &ummu_srcu);

	if (u && u->id == q->unit_id) {
		uq_release_device(u, q->qid);
		uq_clear_indices(u, q->qid);
		ida_free(&u->uq.qids, q->qid);
	}
	srcu_read_unlock(&ummu_srcu, idx);
	uq_free_pages(q);
}

static void uq_close_all(struct ummu_ctx *ctx)
{
	while (ctx->uq_count)
		uq_close(ctx->proc->dom, &ctx->uq[--ctx->uq_count]);
}

/* First mapping opens one queue pair per unit; ummu_proc.lock held */
int ummu_uq_get(struct ummu_ctx *ctx)
{
	struct ummu_domain *dom = ctx->proc->dom;
	int i, idx, ret = 0;

	if (ctx->uq_maps) {
		ctx->uq_maps++;
		return 0;
	}
	idx = srcu_read_lock(&ummu_srcu);
	for (i = 0; i < UMMU_MAX_UNITS && !ret; i++) {
		struct ummu_unit *u = srcu_dereference(dom->units[i], &ummu_srcu);

		if (!u)
			continue;
		ret = uq_open(u, &ctx->uq[ctx->uq_count], ctx->tid);
		if (!ret)
			ctx->uq_count++;
	}
	srcu_read_unlock(&ummu_srcu, idx);
	if (!ret && !ctx->uq_count)
		ret = -ENODEV;
	if (ret)
		uq_close_all(ctx);
	else
		ctx->uq_maps = 1;
	return ret;
}

void ummu_uq_put(struct ummu_ctx *ctx)
{
	if (!--ctx->uq_maps)
		uq_close_all(ctx);
}
