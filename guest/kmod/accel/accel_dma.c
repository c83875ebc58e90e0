// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Copies by the device itself: a queue of the driver's own.
 *
 * Its TID belongs to the kernel.  For each copy the source pages are lined up
 * in one window of that TID's address space and the destination pages in
 * another, so that a scattered set of pages is one job; afterwards the windows
 * are emptied and the device has lost the pages.
 */
#include <linux/bitfield.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "accel_hmm.h"
#include "accel_trace.h"

#define RING_LOG2	4
#define RING_IOVA	SZ_1M
#define CQ_OFFSET	(ACCEL_DESC_SIZE << RING_LOG2)
#define FROM_IOVA	BIT_ULL(30)
#define TO_IOVA		BIT_ULL(31)
#define ZERO_IOVA	(TO_IOVA + SZ_2M)
#define DESC_U64S	(ACCEL_DESC_SIZE / sizeof(u64))
#define CPL_U64S	(ACCEL_CPL_SIZE / sizeof(u64))
#define WAIT_MS		10000

static int map_window(struct accel_dma *dma, u64 iova, const phys_addr_t *pa, unsigned int n,
		      bool write)
{
	unsigned int i;
	int ret;

	if (n == VRAM_BLOCK_PAGES && IS_ALIGNED(pa[0], SZ_2M)) {
		for (i = 1; i < n && pa[i] == pa[0] + i * PAGE_SIZE; i++)
			;
		if (i == n)
			return ummu_svm_map_block(dma->svm, iova, pa[0], write);
	}
	for (i = 0; i < n; i++) {
		ret = ummu_svm_map(dma->svm, iova + i * PAGE_SIZE, pa[i], write);
		if (ret)
			return ret;
	}
	return 0;
}

static void push(struct accel_dma *dma, u8 op, u64 length, u64 from, u64 to, bool interrupt)
{
	u32 slot = dma->sq_pi & (BIT(RING_LOG2) - 1);
	__le64 *d = dma->rings + slot * ACCEL_DESC_SIZE;
	u64 tid = ummu_svm_tid(dma->svm);
	u64 w[DESC_U64S] = {
		FIELD_PREP(ACCEL_DESC_W0_OPCODE, op) |
		FIELD_PREP(ACCEL_DESC_W0_FLAGS, interrupt ? ACCEL_DESC_FLAG_INT : 0),
		length,
		from,		/* FILL: the pattern */
		op == ACCEL_OP_COPY ? tid : 0,
		to,
		tid,
	};
	unsigned int i;

	for (i = 0; i < DESC_U64S; i++)
		WRITE_ONCE(d[i], cpu_to_le64(w[i]));
	dma->sq_pi = (dma->sq_pi + 1) & ((2u << RING_LOG2) - 1);
}

/* Register access while the device is there */
static bool ring_bell(struct accel_dma *dma, u32 reg, u32 value)
{
	bool ok;

	spin_lock(&dma->dev->hw_lock);
	ok = !dma->dev->gone;
	if (ok)
		writel(value, accel_dbreg(&dma->q, reg));
	spin_unlock(&dma->dev->hw_lock);
	return ok;
}

static bool arrived(struct accel_dma *dma, u32 want)
{
	u32 pi = 0;
	bool gone;

	spin_lock(&dma->dev->hw_lock);
	gone = dma->dev->gone;
	if (!gone)
		pi = readl(accel_dbreg(&dma->q, ACCEL_DB_CQ_PI));
	spin_unlock(&dma->dev->hw_lock);
	return gone || pi == want;
}

static int collect(struct accel_dma *dma, unsigned int jobs)
{
	u32 mask = (2u << RING_LOG2) - 1;
	u32 want = (dma->cq_ci + jobs) & mask;
	int ret = 0;

	if (!wait_event_timeout(dma->q.wait, arrived(dma, want), msecs_to_jiffies(WAIT_MS))) {
		dev_err(&dma->dev->pdev->dev, "copy not finished after %u ms\n", WAIT_MS);
		dma->failed = true;
		return -ETIMEDOUT;
	}
	dma_rmb();
	while (dma->cq_ci != want) {
		u32 slot = dma->cq_ci & (BIT(RING_LOG2) - 1);
		__le64 *c = dma->rings + CQ_OFFSET + slot * ACCEL_CPL_SIZE;
		u64 w0 = le64_to_cpu(READ_ONCE(c[0]));

		if (FIELD_GET(ACCEL_CPL_W0_STATUS, w0) != ACCEL_STATUS_OK)
			ret = -EIO;
		dma->cq_ci = (dma->cq_ci + 1) & mask;
	}
	return ring_bell(dma, ACCEL_DB_CQ_CI, dma->cq_ci) ? ret : -ENODEV;
}

static int run_locked(struct accel_dma *dma, const struct accel_move *mv)
{
	unsigned int jobs = 0;
	int ret;

	if (dma->failed)
		return -EIO;
	ret = map_window(dma, FROM_IOVA, mv->from, mv->copies, false);
	if (!ret)
		ret = map_window(dma, TO_IOVA, mv->to, mv->copies, true);
	if (!ret)
		ret = map_window(dma, ZERO_IOVA, mv->zero, mv->zeros, true);
	if (ret)
		return ret;
	dma_wmb();
	if (mv->zeros) {
		push(dma, ACCEL_OP_FILL, (u64)mv->zeros * PAGE_SIZE, 0, ZERO_IOVA, !mv->copies);
		jobs++;
	}
	if (mv->copies) {
		push(dma, ACCEL_OP_COPY, (u64)mv->copies * PAGE_SIZE, FROM_IOVA, TO_IOVA, true);
		jobs++;
	}
	wmb();	/* the device reads whole descriptors */
	if (!ring_bell(dma, ACCEL_DB_SQ_PI, dma->sq_pi))
		return -ENODEV;
	ret = collect(dma, jobs);
	if (!ret)
		dma->bytes += (u64)(mv->zeros + mv->copies) * PAGE_SIZE;
	return ret;
}

/* Copy mv->from to mv->to, clear mv->zero.  Not interruptible: page locks are held */
int accel_dma_run(struct accel_dma *dma, struct accel_move *mv)
{
	ktime_t begin = ktime_get();
	int ret;

	if (!mv->copies && !mv->zeros)
		return 0;
	mutex_lock(&dma->lock);
	ret = run_locked(dma, mv);
	if (dma->failed) {
		/* The job may still run: the queue ends before the pages are used */
		spin_lock(&dma->dev->hw_lock);
		if (!dma->dev->gone)
			writel(0, accel_qreg(&dma->q, ACCEL_Q_CTRL));
		spin_unlock(&dma->dev->hw_lock);
	}
	ummu_svm_unmap(dma->svm, FROM_IOVA, FROM_IOVA + SZ_2M);
	ummu_svm_unmap(dma->svm, TO_IOVA, ZERO_IOVA + SZ_2M);
	mutex_unlock(&dma->lock);
	trace_accel_hmm_copy(mv->copies, mv->zeros, ktime_to_ns(ktime_sub(ktime_get(), begin)),
			     ret);
	return ret;
}

static int queue_on(struct accel_dma *dma)
{
	struct accel_queue *q = &dma->q;
	u32 tid = ummu_svm_tid(dma->svm);
	u32 status;

	writel(0, accel_qreg(q, ACCEL_Q_CTRL));
	writeq(RING_IOVA, accel_qreg(q, ACCEL_Q_SQ_BASE));
	writeq(RING_IOVA + CQ_OFFSET, accel_qreg(q, ACCEL_Q_CQ_BASE));
	writel(FIELD_PREP(ACCEL_Q_SIZE_SQ_LOG2, RING_LOG2) |
	       FIELD_PREP(ACCEL_Q_SIZE_CQ_LOG2, RING_LOG2), accel_qreg(q, ACCEL_Q_SIZE));
	writel(tid, accel_qreg(q, ACCEL_Q_TID));
	writel(0, accel_qreg(q, ACCEL_Q_TOKEN));
	writel(0, accel_qreg(q, ACCEL_Q_FLAGS));
	writel(ACCEL_Q_CTRL_EN | ACCEL_Q_CTRL_INT_EN, accel_qreg(q, ACCEL_Q_CTRL));
	writel(ACCEL_Q_TID_BIND_BIND | FIELD_PREP(ACCEL_Q_TID_BIND_TID, tid),
	       accel_qreg(q, ACCEL_Q_TID_BIND));
	status = readl(accel_qreg(q, ACCEL_Q_STATUS));
	return FIELD_GET(ACCEL_Q_STATUS_STATE, status) == ACCEL_Q_STATE_RUNNING ? 0 : -EIO;
}

static void slot_set(struct accel_dma *dma, struct accel_queue *q)
{
	unsigned long flags;

	spin_lock_irqsave(&dma->dev->irq_lock, flags);
	dma->dev->slots[dma->q.qid] = q;
	spin_unlock_irqrestore(&dma->dev->irq_lock, flags);
}

/* The device is enabled; it takes the last queue */
int accel_dma_init(struct accel_dev *dev)
{
	struct accel_dma *dma = kzalloc(sizeof(*dma), GFP_KERNEL);
	int ret = -ENOMEM;

	if (!dma)
		return -ENOMEM;
	dma->dev = dev;
	dma->q.dev = dev;
	mutex_init(&dma->lock);
	init_waitqueue_head(&dma->q.wait);
	dma->svm = ummu_svm_kernel();
	if (IS_ERR(dma->svm)) {
		ret = PTR_ERR(dma->svm);
		goto fail;
	}
	dma->rings = (void *)get_zeroed_page(GFP_KERNEL);
	if (!dma->rings)
		goto fail_svm;
	ret = ummu_svm_map(dma->svm, RING_IOVA, virt_to_phys(dma->rings), true);
	if (ret)
		goto fail_rings;
	ret = ida_alloc_range(&dev->qids, dev->queues - 1, dev->queues - 1, GFP_KERNEL);
	if (ret < 0)
		goto fail_rings;
	dma->q.qid = ret;
	slot_set(dma, &dma->q);
	dev->dma = dma;
	ret = queue_on(dma);
	if (ret)
		accel_dma_exit(dev);
	return ret;

fail_rings:
	free_page((unsigned long)dma->rings);
fail_svm:
	ummu_svm_detach(dma->svm, NULL);
fail:
	mutex_destroy(&dma->lock);
	kfree(dma);
	return ret;
}

void accel_dma_exit(struct accel_dev *dev)
{
	struct accel_dma *dma = dev->dma;

	if (!dma)
		return;
	spin_lock(&dev->hw_lock);
	if (!dev->gone)
		writel(0, accel_qreg(&dma->q, ACCEL_Q_CTRL));
	spin_unlock(&dev->hw_lock);
	slot_set(dma, NULL);
	ida_free(&dev->qids, dma->q.qid);
	ummu_svm_detach(dma->svm, NULL);
	free_page((unsigned long)dma->rings);
	mutex_destroy(&dma->lock);
	kfree(dma);
	dev->dma = NULL;
}
