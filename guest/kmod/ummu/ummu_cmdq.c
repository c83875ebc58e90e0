// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Command queues (MCMDQ).
 *
 * DOC: completion
 *
 * A CMD_SYNC writes an ever increasing number to one word per queue.  Commands
 * of a queue finish in order, so "the word has reached my number" is free of
 * the reuse races that polling the ring slot itself would have.  Without
 * message support the consumer index is extended to 64 bits and compared with
 * the position of the SYNC, for the same reason.
 *
 * Nothing waits longer than UMMU_SYNC_MS: the device may be broken or gone, and
 * callers hold page table locks.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/iopoll.h>
#include <linux/ktime.h>
#include <linux/log2.h>

#include "ummu.h"
#include "ummu_trace.h"

#define CMD_U64S	(CMD_SIZE / sizeof(u64))

static u32 mcmdq_mask(const struct ummu_mcmdq *q)
{
	return (2u << q->log2) - 1;
}

static __le64 *mcmdq_slot(const struct ummu_mcmdq *q, u32 idx)
{
	return q->ring + (idx & ((1u << q->log2) - 1)) * CMD_U64S;
}

/* Entries between the device's read index and our write index */
static u32 mcmdq_used(const struct ummu_mcmdq *q, u32 ci)
{
	return (q->pi - ci) & mcmdq_mask(q);
}

static void mcmdq_put(struct ummu_mcmdq *q, const struct ummu_cmd *cmd)
{
	__le64 *slot = mcmdq_slot(q, q->pi);
	unsigned int i;

	for (i = 0; i < CMD_U64S; i++)
		slot[i] = cpu_to_le64(cmd->w[i]);
	q->pi = (q->pi + 1) & mcmdq_mask(q);
	q->posted++;
}

static void mcmdq_ring_bell(struct ummu_mcmdq *q)
{
	/* writel() orders the entries before the index */
	writel(MCMDQ_PI_EN | q->errack | q->pi, q->regs + MCMDQ_PI);
}

/*
 * An illegal entry is replaced by a SYNC that signals nobody; a fetch that was
 * aborted is tried again.  Called with the queue locked.
 */
static void mcmdq_recover(struct ummu_mcmdq *q, u32 ci)
{
	u32 err = ci & MCMDQ_CI_ERR;
	u32 reason = FIELD_GET(MCMDQ_CI_ERR_REASON, ci);
	u32 idx = ci & MCMDQ_CI_RD_IDX_WRAP;
	__le64 *slot;

	if (err == q->errack)
		return;
	q->errors++;
	slot = mcmdq_slot(q, idx);
	dev_err_ratelimited(q->unit->dev,
			    "command queue %u stopped at entry %#x: reason %u, opcode %#llx\n",
			    q->index, idx, reason,
			    FIELD_GET(CMD_W0_OPCODE, le64_to_cpu(slot[0])));
	if (reason != UMMU_MCMDQ_ERR_REASON_FETCH_ABORT) {
		memset(slot, 0, CMD_SIZE);
		slot[0] = cpu_to_le64(FIELD_PREP(CMD_W0_OPCODE, UMMU_CMD_SYNC));
	}
	q->errack = err;
	mcmdq_ring_bell(q);
}

static u32 mcmdq_read_ci(struct ummu_mcmdq *q)
{
	u32 ci = readl(q->regs + MCMDQ_CI);

	if (ci == U32_MAX)
		WRITE_ONCE(q->unit->broken, true);
	else
		mcmdq_recover(q, ci);
	return ci;
}

/* Wait for room for @n commands and a SYNC; queue locked */
static int mcmdq_reserve(struct ummu_mcmdq *q, unsigned int n)
{
	ktime_t limit = ktime_add_ms(ktime_get(), UMMU_SYNC_MS);
	u32 size = 1u << q->log2;
	u32 ci;

	for (;;) {
		bool late = ktime_after(ktime_get(), limit);

		ci = mcmdq_read_ci(q);
		if (READ_ONCE(q->unit->broken))
			return -ENODEV;
		if (size - mcmdq_used(q, ci & MCMDQ_CI_RD_IDX_WRAP) > n)
			return 0;
		if (late)
			break;
		udelay(1);
	}
	q->timeouts++;
	dev_err_ratelimited(q->unit->dev,
			    "command queue %u: no room for %u commands after %u ms (PI %#x, CI %#x)\n",
			    q->index, n + 1, UMMU_SYNC_MS, q->pi, ci);
	return -ETIMEDOUT;
}

/* Put a SYNC behind the commands; its number goes to @seq.  Queue locked. */
static void mcmdq_put_sync(struct ummu_mcmdq *q, u32 *seq)
{
	struct ummu_cmd sync = ummu_cmd_op(UMMU_CMD_SYNC);

	if (q->unit->caps.sync_by_write) {
		*seq = ++q->sync_seq;
		sync.w[0] |= FIELD_PREP(CMD_SYNC_W0_CM, UMMU_SYNC_CM_USI) |
			     FIELD_PREP(CMD_SYNC_W0_MSISH, 3) |
			     FIELD_PREP(CMD_SYNC_W0_MSIATTR, 0xf) |
			     FIELD_PREP(CMD_SYNC_W0_MSIDATA, *seq);
		sync.w[1] = q->sync_dma & CMD_SYNC_W1_MSIADDR;
	}
	mcmdq_put(q, &sync);
}

static bool mcmdq_reached(struct ummu_mcmdq *q, u64 pos)
{
	unsigned long flags;
	bool done;
	u32 ci;

	spin_lock_irqsave(&q->lock, flags);
	ci = mcmdq_read_ci(q) & MCMDQ_CI_RD_IDX_WRAP;
	done = q->posted - mcmdq_used(q, ci) >= pos;
	spin_unlock_irqrestore(&q->lock, flags);
	return done;
}

static bool mcmdq_synced(struct ummu_mcmdq *q, u32 seq, u64 pos, bool by_word)
{
	if (by_word)
		return (s32)(le32_to_cpu(READ_ONCE(*q->sync_word)) - seq) >= 0;
	return mcmdq_reached(q, pos);
}

static int mcmdq_wait(struct ummu_mcmdq *q, u32 seq, u64 pos)
{
	bool by_word = q->unit->caps.sync_by_write;
	ktime_t limit = ktime_add_ms(ktime_get(), UMMU_SYNC_MS);
	unsigned int spins = 0;

	for (;;) {
		bool late = ktime_after(ktime_get(), limit);

		if (mcmdq_synced(q, seq, pos, by_word)) {
			/* what the device did before its answer is visible now */
			dma_rmb();
			return 0;
		}
		if (READ_ONCE(q->unit->broken))
			return -ENODEV;
		/* the interrupt may be unavailable: look for errors ourselves */
		if (by_word && !(++spins % 16) && mcmdq_reached(q, pos))
			by_word = false;
		if (late)
			break;
		udelay(1);
	}
	q->timeouts++;
	dev_err_ratelimited(q->unit->dev,
			    "command queue %u: CMD_SYNC not done after %u ms (PI %#x, CI %#x)\n",
			    q->index, UMMU_SYNC_MS, q->pi, readl(q->regs + MCMDQ_CI));
	return -ETIMEDOUT;
}

/* At most UMMU_CMD_BATCH commands as one piece, optionally waited for */
static int mcmdq_batch(struct ummu_mcmdq *q, const struct ummu_cmd *cmds, unsigned int n,
		       bool sync)
{
	unsigned long flags;
	unsigned int i;
	u32 seq = 0;
	u64 pos;
	int ret;

	spin_lock_irqsave(&q->lock, flags);
	ret = mcmdq_reserve(q, n);
	if (ret) {
		spin_unlock_irqrestore(&q->lock, flags);
		return ret;
	}
	for (i = 0; i < n; i++)
		mcmdq_put(q, &cmds[i]);
	if (sync)
		mcmdq_put_sync(q, &seq);
	pos = q->posted;
	mcmdq_ring_bell(q);
	spin_unlock_irqrestore(&q->lock, flags);

	return sync ? mcmdq_wait(q, seq, pos) : 0;
}

/**
 * ummu_unit_issue() - send commands to one unit
 * @u: the unit
 * @cmds: the commands
 * @n: their number
 * @sync: wait until all have taken effect
 *
 * All pieces go to the same queue, so one SYNC at the end covers them all.
 */
int ummu_unit_issue(struct ummu_unit *u, const struct ummu_cmd *cmds, unsigned int n, bool sync)
{
	struct ummu_mcmdq *q = &u->mcmdq[raw_smp_processor_id() % u->mcmdq_count];
	int ret;

	if (READ_ONCE(u->broken))
		return -ENODEV;
	while (n > UMMU_CMD_BATCH) {
		ret = mcmdq_batch(q, cmds, UMMU_CMD_BATCH, false);
		if (ret)
			return ret;
		cmds += UMMU_CMD_BATCH;
		n -= UMMU_CMD_BATCH;
	}
	ret = mcmdq_batch(q, cmds, n, sync);
	trace_ummu_cmd(u->id, q->index, n ? cmds[0].w[0] & CMD_W0_OPCODE : 0, n, sync, ret);
	return ret;
}

/* Send to every unit and wait; the first error is returned, all units are tried */
int ummu_issue(struct ummu_domain *dom, const struct ummu_cmd *cmds, unsigned int n)
{
	int i, idx, ret = 0;

	idx = srcu_read_lock(&ummu_srcu);
	for (i = 0; i < UMMU_MAX_UNITS; i++) {
		struct ummu_unit *u = srcu_dereference(dom->units[i], &ummu_srcu);
		int err = u ? ummu_unit_issue(u, cmds, n, true) : 0;

		if (err && !ret)
			ret = err;
	}
	srcu_read_unlock(&ummu_srcu, idx);
	return ret;
}

int ummu_issue_one(struct ummu_domain *dom, struct ummu_cmd cmd)
{
	return ummu_issue(dom, &cmd, 1);
}

void ummu_mcmdq_recover_all(struct ummu_unit *u)
{
	unsigned long flags;
	unsigned int i;

	for (i = 0; i < u->mcmdq_count; i++) {
		struct ummu_mcmdq *q = &u->mcmdq[i];

		spin_lock_irqsave(&q->lock, flags);
		mcmdq_read_ci(q);
		spin_unlock_irqrestore(&q->lock, flags);
	}
}

/* First generation only: the answer is written into the command's own slot */
static int unit_check_continuity(struct ummu_unit *u, struct ummu_cmd cmd, u32 index)
{
	struct ummu_mcmdq *q = &u->mcmdq[0];
	unsigned long flags;
	__le64 *slot;
	u32 seq = 0;
	u64 res;
	int ret;

	spin_lock_irqsave(&q->lock, flags);
	ret = mcmdq_reserve(q, 1);
	if (ret)
		goto out;
	slot = mcmdq_slot(q, q->pi);
	mcmdq_put(q, &cmd);
	mcmdq_put_sync(q, &seq);
	mcmdq_ring_bell(q);
	/* Until the ring is empty; locked, so that nobody reuses the slot */
	ret = mcmdq_reserve(q, (1u << q->log2) - 1);
	res = le64_to_cpu(READ_ONCE(slot[0]));
	if (!ret && FIELD_GET(CMD_NULL_OP_W0_RESULT, res))
		ret = -ENOSPC;
	else if (!ret && FIELD_GET(CMD_NULL_OP_W0_FLAG, res) && index)
		ret = -ERANGE;
out:
	spin_unlock_irqrestore(&q->lock, flags);
	return ret;
}

int ummu_check_continuity(struct ummu_domain *dom, phys_addr_t pa, unsigned int order, u32 index)
{
	struct ummu_cmd cmd = ummu_cmd_op(UMMU_CMD_NULL_OP);
	int i, idx, ret = 0;

	if (!(dom->caps.options & UMMU_OPT_CHECK_CONT))
		return 0;
	cmd.w[0] |= FIELD_PREP(CMD_NULL_OP_W0_SUB_OP, 1) |
		    FIELD_PREP(CMD_NULL_OP_W0_SIZE_ORDER, order) |
		    FIELD_PREP(CMD_NULL_OP_W0_ID, index);
	cmd.w[1] = pa & CMD_NULL_OP_W1_ADDR;

	idx = srcu_read_lock(&ummu_srcu);
	for (i = 0; i < UMMU_MAX_UNITS && !ret; i++) {
		struct ummu_unit *u = srcu_dereference(dom->units[i], &ummu_srcu);

		if (u)
			ret = unit_check_continuity(u, cmd, index);
	}
	srcu_read_unlock(&ummu_srcu, idx);
	return ret;
}

static unsigned int mcmdq_log2(struct ummu_unit *u)
{
	unsigned int max = min_t(unsigned int, FIELD_GET(UMMU_CAP1_MCMDQ_SIZE, u->caps.cap[1]), 15);
	unsigned int want;

	if (u->caps.options & UMMU_OPT_ONE_MCMDQ)
		return max;
	want = 8 + order_base_2(DIV_ROUND_UP(num_possible_cpus(), u->mcmdq_count));
	return clamp_t(unsigned int, want, 6, max_t(unsigned int, max, 6));
}

int ummu_mcmdq_alloc(struct ummu_unit *u)
{
	unsigned int numb = 1u << FIELD_GET(UMMU_CAP1_MCMDQ_NUMB, u->caps.cap[1]);
	unsigned int i;

	u->mcmdq_count = min_t(unsigned int, numb, num_possible_cpus());
	if (u->caps.options & UMMU_OPT_ONE_MCMDQ)
		u->mcmdq_count = 1;
	u->mcmdq = devm_kcalloc(u->dev, u->mcmdq_count, sizeof(*u->mcmdq), GFP_KERNEL);
	if (!u->mcmdq)
		return -ENOMEM;

	for (i = 0; i < u->mcmdq_count; i++) {
		struct ummu_mcmdq *q = &u->mcmdq[i];

		spin_lock_init(&q->lock);
		q->unit = u;
		q->index = i;
		q->regs = u->regs + MCMDQ_BANK_BASE + i * MCMDQ_BANK_STRIDE;
		q->log2 = mcmdq_log2(u);
		q->ring = dmam_alloc_coherent(u->dev, CMD_SIZE << q->log2, &q->ring_dma,
					      GFP_KERNEL);
		q->sync_word = dmam_alloc_coherent(u->dev, sizeof(*q->sync_word), &q->sync_dma,
						   GFP_KERNEL);
		if (!q->ring || !q->sync_word)
			return -ENOMEM;
	}
	return 0;
}

/* A kdump or kexec kernel finds queues running: they are stopped first */
int ummu_mcmdq_enable(struct ummu_unit *u)
{
	unsigned int i;
	u32 val;
	int ret;

	for (i = 0; i < u->mcmdq_count; i++) {
		struct ummu_mcmdq *q = &u->mcmdq[i];

		val = readl(q->regs + MCMDQ_PI);
		if (val & MCMDQ_PI_EN) {
			writel(val & ~MCMDQ_PI_EN, q->regs + MCMDQ_PI);
			ret = readl_poll_timeout(q->regs + MCMDQ_CI, val,
						 !(val & MCMDQ_CI_EN_RESP), 1, UMMU_POLL_US);
			if (ret) {
				dev_err(u->dev, "command queue %u does not stop (CI %#x)\n",
					i, val);
				return ret;
			}
		}
		q->pi = 0;
		q->posted = 0;
		q->sync_seq = 0;
		*q->sync_word = 0;
		writel(0, q->regs + MCMDQ_PI);
		writel(0, q->regs + MCMDQ_CI);
		writeq((q->ring_dma & MCMDQ_BASE_ADDR) | MCMDQ_BASE_RWA |
		       FIELD_PREP(MCMDQ_BASE_LOG2SIZE, q->log2), q->regs + MCMDQ_BASE);
		q->errack = readl(q->regs + MCMDQ_CI) & MCMDQ_CI_ERR;
		mcmdq_ring_bell(q);
		ret = readl_poll_timeout(q->regs + MCMDQ_CI, val, val & MCMDQ_CI_EN_RESP, 1,
					 UMMU_POLL_US);
		if (ret) {
			dev_err(u->dev, "command queue %u does not start (CI %#x)\n", i, val);
			return ret;
		}
	}
	return 0;
}
