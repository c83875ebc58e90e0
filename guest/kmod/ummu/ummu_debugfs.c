// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * debugfs: /sys/kernel/debug/ummu/{units,tids,entities}, decoded.
 *
 * Tables are printed from memory, as the device reads them, beside what the
 * driver believes.
 */
#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/seq_file.h>

#include "ummu.h"

static struct dentry *root;

static const char * const state_names[] = { "off", "live", "quiet" };

static void show_unit(struct ummu_unit *u, void *arg)
{
	struct seq_file *s = arg;
	unsigned int i;

	seq_printf(s, "unit %u: %s, ctrl0 %#x, iidr %#x, broken %d\n", u->id, dev_name(u->dev),
		   ummu_rd(u, UMMU_CTRL0), u->caps.iidr, u->broken);
	for (i = 0; i < ARRAY_SIZE(u->caps.cap); i++)
		seq_printf(s, "  cap%u %#010x\n", i, u->caps.cap[i]);
	seq_printf(s, "  options %#x, user queues %u\n", u->caps.options, u->ctrl_count);
	for (i = 0; i < u->mcmdq_count; i++) {
		struct ummu_mcmdq *q = &u->mcmdq[i];

		seq_printf(s, "  mcmdq %u: %u entries, pi %#x, ci %#x, posted %llu, errors %llu, timeouts %llu\n",
			   i, 1u << q->log2, q->pi, readl(q->regs + MCMDQ_CI), q->posted,
			   q->errors, q->timeouts);
	}
	seq_printf(s, "  evtq: %u entries, ci %#x, events %llu, overflows %llu, global errors %llu\n",
		   1u << u->evtq.log2, u->evtq.ci, u->evtq.seen, u->evtq.lost, u->glb_errors);
}

static int units_show(struct seq_file *s, void *v)
{
	ummu_units_for_each(show_unit, s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(units);

static void show_tcte(struct seq_file *s, const __le64 *e)
{
	u64 w0, w1;

	if (!e)
		return;
	w0 = le64_to_cpu(e[0]);
	w1 = le64_to_cpu(e[1]);
	seq_printf(s, "  tcte: v %llu asid %llu haf %llu hdf %llu fbs %llu fbr %llu e_bit %llu gpas %llu\n",
		   FIELD_GET(TCTE_W0_V, w0), FIELD_GET(TCTE_W0_ASID, w0),
		   FIELD_GET(TCTE_W0_HAF, w0), FIELD_GET(TCTE_W0_HDF, w0),
		   FIELD_GET(TCTE_W0_FBS, w0), FIELD_GET(TCTE_W0_FBR, w0),
		   FIELD_GET(TCTE_W0_E_BIT, w0), FIELD_GET(TCTE_W0_GPAS, w0));
	seq_printf(s, "  mapt: en %llu mode %s rtgs %llu bba %#llx bta %#llx\n",
		   FIELD_GET(TCTE_W0_MAPT_EN, w0),
		   FIELD_GET(TCTE_W0_MAPT_MODE, w0) ? "table" : "entry",
		   FIELD_GET(TCTE_W0_RTGS, w0), le64_to_cpu(e[3]) & TCTE_W3_MAPT_BBA,
		   le64_to_cpu(e[4]) & TCTE_W4_MAPT_BTA);
	seq_printf(s, "  matt: sz %llu tgs %llu mattwd %llu base %#llx mair %#llx\n",
		   FIELD_GET(TCTE_W1_SZ, w1), FIELD_GET(TCTE_W1_TGS, w1),
		   FIELD_GET(TCTE_W1_MATTWD, w1), le64_to_cpu(e[2]) & TCTE_W2_MATTBA,
		   le64_to_cpu(e[5]));
}

static void show_ctx(struct seq_file *s, struct ummu_ctx *ctx)
{
	struct ummu_domain *dom = ctx->proc->dom;
	unsigned long index;
	struct ummu_block *b;

	seq_printf(s, "tid %#x: %s, %s, caps %#llx, mappings %u, queue mappings %u\n", ctx->tid,
		   ctx->mode == UMMU_MAPT_ENTRY ? "entry" : "table", state_names[ctx->state],
		   ctx->hw_cap, ctx->maps, ctx->uq_maps);
	mutex_lock(&dom->cfg_lock);
	show_tcte(s, ummu_tct_peek(dom, ctx->tid));
	mutex_unlock(&dom->cfg_lock);
	xa_for_each(&ctx->blocks, index, b)
		seq_printf(s, "  block %lu: %#llx, %lu bytes, mappings %u\n", index,
			   (u64)page_to_phys(b->page), PAGE_SIZE << b->order, b->maps);
}

static void show_proc(struct ummu_proc *p, void *arg)
{
	struct seq_file *s = arg;
	struct ummu_ctx *ctx;

	mutex_lock(&p->lock);
	seq_printf(s, "process: asid %u, %s page table, mm %s, tids %u, faults retried %llu, aborted %llu\n",
		   p->asid, p->matt ? "own" : "shared", p->mm_dead ? "dead" : "alive",
		   p->ctx_count, p->faults_retried, p->faults_aborted);
	list_for_each_entry(ctx, &p->ctxs, node)
		show_ctx(s, ctx);
	mutex_unlock(&p->lock);
}

static int tids_show(struct seq_file *s, void *v)
{
	ummu_procs_for_each(show_proc, s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(tids);

static int entities_show(struct seq_file *s, void *v)
{
	struct ummu_domain *dom = ummu_domain_get();
	struct ummu_entity *e;
	const __le64 *te;

	if (!dom)
		return 0;
	mutex_lock(&dom->cfg_lock);
	te = ummu_tect_peek(dom, UMMU_LOCAL_TAG);
	if (te)
		seq_printf(s, "tecte %u: v %llu st_mode %llu mapt_en %llu tct_num %llu tct %#llx\n",
			   UMMU_LOCAL_TAG, FIELD_GET(TECTE_W0_V, le64_to_cpu(te[0])),
			   FIELD_GET(TECTE_W0_ST_MODE, le64_to_cpu(te[0])),
			   FIELD_GET(TECTE_W0_MAPT_EN, le64_to_cpu(te[0])),
			   FIELD_GET(TECTE_W1_TCT_NUM, le64_to_cpu(te[1])),
			   le64_to_cpu(te[1]) & TECTE_W1_TCT_PTR);
	mutex_unlock(&dom->cfg_lock);
	mutex_lock(&dom->bind_lock);
	list_for_each_entry(e, &dom->entities, node)
		seq_printf(s, "eid %#llx:%#llx tag %u: %s\n", e->eid_hi, e->eid_lo,
			   UMMU_LOCAL_TAG, dev_name(e->consumer));
	mutex_unlock(&dom->bind_lock);
	ummu_domain_put(dom);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(entities);

void ummu_debugfs_init(void)
{
	root = debugfs_create_dir("ummu", NULL);
	debugfs_create_file("units", 0400, root, NULL, &units_fops);
	debugfs_create_file("tids", 0400, root, NULL, &tids_fops);
	debugfs_create_file("entities", 0400, root, NULL, &entities_fops);
}

void ummu_debugfs_exit(void)
{
	debugfs_remove(root);
}
