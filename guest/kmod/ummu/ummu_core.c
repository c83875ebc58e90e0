// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A unit from reset to running, in the documented order, and back.
 */
#include <linux/bitfield.h>
#include <linux/device.h>
#include <linux/io.h>
#include <linux/iopoll.h>

#include "ummu.h"

#define CTRL1_VALUE	(FIELD_PREP(UMMU_CTRL1_QUEUE_IC_T, 1) |	\
			 FIELD_PREP(UMMU_CTRL1_QUEUE_OC_T, 1) |	\
			 FIELD_PREP(UMMU_CTRL1_QUEUE_SH_T, 3) |	\
			 FIELD_PREP(UMMU_CTRL1_TABLE_IC_T, 1) |	\
			 FIELD_PREP(UMMU_CTRL1_TABLE_OC_T, 1) |	\
			 FIELD_PREP(UMMU_CTRL1_TABLE_SH_T, 3) |	\
			 UMMU_CTRL1_E2H | UMMU_CTRL1_TECT_MODE_SEL)

static int poll_reg(struct ummu_unit *u, u32 off, u32 mask, u32 want, const char *what)
{
	u32 val;
	int ret;

	ret = readl_poll_timeout(u->regs + off, val, (val & mask) == want, 1, UMMU_POLL_US);
	if (ret)
		dev_err(u->dev, "%s: register %#x is %#x, expected %#x in mask %#x\n", what, off,
			val, want, mask);
	return ret;
}

static int ctrl0_write(struct ummu_unit *u, u32 val)
{
	ummu_wr(u, UMMU_CTRL0, val);
	return poll_reg(u, UMMU_CTRL0_ACK, U32_MAX, val, "CTRL0 not acknowledged");
}

static int ctrl0_set(struct ummu_unit *u, u32 bits)
{
	return ctrl0_write(u, ummu_rd(u, UMMU_CTRL0) | bits);
}

/* While the unit is off, transactions are refused instead of passed through */
static int gbpa_abort(struct ummu_unit *u)
{
	int ret;

	ret = poll_reg(u, UMMU_GBPA, UMMU_GBPA_UPDATE, 0, "GBPA busy");
	if (ret)
		return ret;
	ummu_wr(u, UMMU_GBPA, UMMU_GBPA_UPDATE | UMMU_GBPA_ABORT);
	return poll_reg(u, UMMU_GBPA, UMMU_GBPA_UPDATE, 0, "GBPA not taken over");
}

static int unit_reset(struct ummu_unit *u)
{
	int ret;

	if (ummu_rd(u, UMMU_CTRL0) & UMMU_CTRL0_UMMU_EN) {
		dev_info(u->dev, "found running (kexec): switching it off first\n");
		ret = gbpa_abort(u);
		if (ret)
			return ret;
	}
	return ctrl0_write(u, 0);
}

static int mcmdq_mem_init(struct ummu_unit *u)
{
	u32 val = ummu_rd(u, UMMU_USER_CONFIG2);
	int ret;

	ummu_wr(u, UMMU_USER_CONFIG2, val | UMMU_USER_CONFIG2_MCMDQ_MEM_INIT_EN);
	ret = poll_reg(u, UMMU_USER_CONFIG2, UMMU_USER_CONFIG2_MCMDQ_MEM_INITING, 0,
		       "command queue memory");
	ummu_wr(u, UMMU_USER_CONFIG2, val & ~UMMU_USER_CONFIG2_MCMDQ_MEM_INIT_EN);
	return ret;
}

static int evtq_enable(struct ummu_unit *u)
{
	ummu_wr64(u, UMMU_EVENT_QUE_BASE,
		  (u->evtq.dma & UMMU_EVENT_QUE_BASE_ADDR) | UMMU_EVENT_QUE_BASE_WA |
		  FIELD_PREP(UMMU_EVENT_QUE_BASE_LOG2SIZE, u->evtq.log2));
	ummu_wr(u, UMMU_EVENT_QUE_PI, 0);
	ummu_wr(u, UMMU_EVENT_QUE_CI, 0);
	u->evtq.ci = 0;
	u->evtq.ovf = 0;
	return ctrl0_set(u, UMMU_CTRL0_EVENTQ_EN);
}

static int mapt_enable(struct ummu_unit *u)
{
	int ret;

	if (!u->caps.mapt)
		return 0;
	ummu_ucmdq_table_program(u);
	ret = ctrl0_set(u, UMMU_CTRL0_MAPT_EN);
	if (!ret && u->caps.pplb)
		ummu_wr(u, UMMU_CTRL2, ummu_rd(u, UMMU_CTRL2) | UMMU_CTRL2_POSITIVE_PLB);
	return ret;
}

/*
 * MSI-X carries the two messages, so the unit's own message addresses stay 0.
 * A unit without interrupts works, but cannot recover from page faults.
 */
static void irq_enable(struct ummu_unit *u)
{
	ummu_wr(u, UMMU_GLB_INT_EN, 0);
	ummu_wr64(u, UMMU_EVENT_QUE_USI_ADDR, 0);
	ummu_wr64(u, UMMU_GLB_ERR_INT_USI_ADDR, 0);
	ummu_wr(u, UMMU_GLB_ERR_RESP, ummu_rd(u, UMMU_GLB_ERR));
	if (u->irq_evtq <= 0 || u->irq_glb <= 0)
		return;
	ummu_wr(u, UMMU_GLB_INT_EN,
		UMMU_GLB_INT_EN_GLB_ERR_INT_EN | UMMU_GLB_INT_EN_EVENT_QUE_INT_EN);
}

static int unit_enable(struct ummu_unit *u)
{
	int ret;

	ret = unit_reset(u);
	if (ret)
		return ret;
	ummu_wr(u, UMMU_CTRL1, CTRL1_VALUE);
	ummu_tect_program(u);
	ummu_kv_program(u);
	ret = mcmdq_mem_init(u);
	if (!ret)
		ret = ummu_mcmdq_enable(u);
	if (!ret)
		ret = evtq_enable(u);
	if (!ret)
		ret = mapt_enable(u);
	if (ret)
		return ret;
	WRITE_ONCE(u->running, true);
	irq_enable(u);
	/* The command queues run while UMMU_EN is still 0 */
	ummu_init_invalidate(u);
	ummu_domain_publish(u);
	ummu_entities_replay(u);
	return ctrl0_set(u, UMMU_CTRL0_UMMU_EN);
}

/*
 * A unit that checked accesses must not let them through when it is off.  A
 * unit that was unplugged answers nothing and is not waited for.
 */
static void unit_off(struct ummu_unit *u)
{
	ummu_wr(u, UMMU_GLB_INT_EN, 0);
	if (READ_ONCE(u->broken))
		return;
	gbpa_abort(u);
	ctrl0_write(u, 0);
}

/* Memory of the unit; nothing is switched on */
int ummu_unit_prepare(struct ummu_unit *u)
{
	int ret;

	ret = ummu_mcmdq_alloc(u);
	if (!ret)
		ret = ummu_evtq_alloc(u);
	if (!ret)
		ret = ummu_kv_alloc(u);
	if (!ret && u->caps.mapt)
		ret = ummu_ucmdq_table_alloc(u);
	return ret;
}

int ummu_unit_start(struct ummu_unit *u)
{
	struct ummu_domain *dom;
	int ret;

	dom = ummu_domain_attach(u);
	if (IS_ERR(dom))
		return PTR_ERR(dom);
	ret = unit_enable(u);
	if (ret) {
		unit_off(u);
		WRITE_ONCE(u->running, false);
		ummu_domain_detach(u);
		ummu_domain_put(dom);
		return ret;
	}
	dev_info(u->dev,
		 "UMMU %u: product %#x, TIDs %#x-%#x, %u command queues, stalls %s, %s, %s\n",
		 u->id, (u32)FIELD_GET(UMMU_IIDR_PROD_ID, u->caps.iidr), dom->tid_first,
		 dom->tid_last, u->mcmdq_count, u->caps.stall ? "on" : "off",
		 ummu_param_kcmd(&u->caps) ? "invalidation by ioctl" : "user queues",
		 ummu_param_shared(&u->caps) ? "shared page tables" : "own page tables");
	return 0;
}

/* The caller frees the interrupts and then drops the domain */
void ummu_unit_stop(struct ummu_unit *u)
{
	struct ummu_domain *dom = u->dom;

	unit_off(u);
	ummu_domain_detach(u);
	ummu_procs_unit_gone(dom);
}

void ummu_unit_shutdown(struct ummu_unit *u)
{
	unit_off(u);
}
