// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Capability registers: read in the documented order, checked, decoded.
 */
#include <linux/device.h>
#include <linux/io.h>

#include "ummu.h"
#include "ummu_arch.h"

static int caps_check(struct ummu_unit *u)
{
	const struct ummu_caps *c = &u->caps;
	u32 form = FIELD_GET(UMMU_CAP2_TRANS_FORM, c->cap[2]);

	if (form != 2 && form != 3) {
		dev_err(u->dev, "no AArch64 translation tables (TRANS_FORM %u)\n", form);
		return -ENXIO;
	}
	if (!(c->cap[2] & (UMMU_CAP2_S1_TRANS | UMMU_CAP2_S2_TRANS))) {
		dev_err(u->dev, "neither stage 1 nor stage 2 translation\n");
		return -ENXIO;
	}
	if (!(c->cap[1] & UMMU_CAP1_MCMDQ_SUPPORT) || !(c->cap[1] & UMMU_CAP1_EVENTQ_SUPPORT)) {
		dev_err(u->dev, "no command queue or no event queue (CAP1 %#x)\n", c->cap[1]);
		return -EOPNOTSUPP;
	}
	if (!(c->cap[2] & UMMU_CAP2_S1_TRANS))
		dev_warn(u->dev, "no stage 1 translation: user TIDs are not available\n");
	return 0;
}

static void caps_options(struct ummu_caps *c)
{
	if (c->vendor_id != UMMU_VENDOR_HUAWEI || FIELD_GET(UMMU_IIDR_PROD_ID, c->iidr))
		return;
	c->options = UMMU_OPT_DOUBLE_PLBI | UMMU_OPT_KCMD_PLBI | UMMU_OPT_CHECK_CONT |
		     UMMU_OPT_SYNC_PLBI | UMMU_OPT_KV_CAM_CONT | UMMU_OPT_ONE_MCMDQ |
		     UMMU_OPT_DOUBLE_TLBI | UMMU_OPT_SCALE_LIMIT;
	/* The first generation neither stalls nor hears broadcasts correctly */
	c->stall = false;
	c->broadcast = false;
}

static void caps_decode(struct ummu_unit *u)
{
	struct ummu_caps *c = &u->caps;
	u32 oas = FIELD_GET(UMMU_CAP2_OA_SIZE, c->cap[2]);
	u32 gran = PAGE_SHIFT == 16 ? UMMU_CAP2_GRAN64K_T :
		   PAGE_SHIFT == 14 ? UMMU_CAP2_GRAN16K_T : UMMU_CAP2_GRAN4K_T;

	if (oas > 5) {
		dev_warn(u->dev, "unknown output address size %u, using 48 bits\n", oas);
		oas = 5;
	}
	c->oas_code = oas;
	c->tag_bits = min_t(u32, FIELD_GET(UMMU_CAP0_DSTEID_SIZE, c->cap[0]), 16);
	c->tid_bits = min_t(u32, FIELD_GET(UMMU_CAP0_TOKENID_SIZE, c->cap[0]), UMMU_TID_BITS);
	c->tect_two_level = (c->cap[0] & UMMU_CAP0_TECT_LEVEL) && c->tag_bits >= 8;
	c->tct_two_level = (c->cap[0] & UMMU_CAP0_TCT_LEVEL) && c->tid_bits > 10;
	c->granule_ok = c->cap[2] & gran;
	c->range_tlbi = c->cap[2] & UMMU_CAP2_RANGE_TLBI;
	c->broadcast = c->cap[2] & UMMU_CAP2_TLB_BROADCAST;
	c->coherent = c->cap[3] & UMMU_CAP3_COHERENT_ACCESS;
	c->usi = c->cap[3] & UMMU_CAP3_USI_SUPPORT;
	c->sync_by_write = c->coherent && c->usi;
	c->httu = FIELD_GET(UMMU_CAP3_HTTU_SUPPORT, c->cap[3]);
	c->el2_regime = (c->cap[3] & UMMU_CAP3_HYP_S1CONTEXT) && ummu_arch_el2();
	c->stall = FIELD_GET(UMMU_CAP3_STALL_MODEL, c->cap[3]) != 1 && c->usi;
	c->pplb = c->cap[4] & UMMU_CAP4_PPLB_SUPPORT;
	c->mapt = c->cap[5] & UMMU_CAP5_MAPT_SUPPORT;
	c->free_bit = c->cap[5] & UMMU_CAP5_FREE_BIT;
	if (FIELD_GET(UMMU_CAP3_BBM_LEVEL, c->cap[3]) == 3)
		dev_warn(u->dev, "reserved break-before-make level\n");
	caps_options(c);
}

int ummu_caps_read(struct ummu_unit *u)
{
	struct ummu_caps *c = &u->caps;
	unsigned int i;
	u32 sel;
	int ret;

	for (i = 0; i < 5; i++)
		c->cap[i] = ummu_rd(u, UMMU_CAP0 + i * 4);

	sel = ummu_rd(u, UMMU_UMCMD_PAGE_SEL);
	if (PAGE_SIZE == SZ_64K)
		sel &= ~UMMU_UMCMD_PAGE_SEL_PAGE_MODEL_SEL_EN;
	else
		sel |= UMMU_UMCMD_PAGE_SEL_PAGE_MODEL_SEL_EN;
	ummu_wr(u, UMMU_UMCMD_PAGE_SEL, sel);

	c->cap[5] = ummu_rd(u, UMMU_CAP5);
	if (c->cap[3] & UMMU_CAP3_MTM_SUPPORT)
		c->cap[6] = ummu_rd(u, UMMU_CAP6);
	c->iidr = ummu_rd(u, UMMU_IIDR);

	if (c->cap[0] == U32_MAX && c->cap[1] == U32_MAX) {
		dev_err(u->dev, "registers do not answer\n");
		return -ENODEV;
	}
	ret = caps_check(u);
	if (ret)
		return ret;
	caps_decode(u);
	return 0;
}

/* All units share one set of tables, so they must agree in everything */
bool ummu_caps_equal(const struct ummu_caps *a, const struct ummu_caps *b)
{
	return !memcmp(a->cap, b->cap, sizeof(a->cap)) && a->iidr == b->iidr &&
	       a->min_tid == b->min_tid && a->max_tid == b->max_tid &&
	       a->vendor_id == b->vendor_id;
}
