// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Invalidations: permission entries (PLBI), translations (TLBI), contexts (CFGI).
 *
 * All of them wait for completion on every unit before they return; a caller
 * may then release the memory that the dropped entries described.
 */
#include <linux/log2.h>

#include "ummu.h"
#include "ummu_arch.h"
#include "ummu_trace.h"

#define TLBI_MAX_RANGES		12
#define TLBI_FULL_PAGES		BIT_ULL(24)

static u64 local_tag(void)
{
	return FIELD_PREP(CMD_TECTE_TAG_W2_TECTE_TAG, UMMU_LOCAL_TAG);
}

/* First generation hardware may miss one of two: everything is sent twice */
static int plbi_send(struct ummu_domain *dom, struct ummu_cmd cmd)
{
	struct ummu_cmd pair[2] = { cmd, cmd };

	return ummu_issue(dom, pair, dom->caps.options & UMMU_OPT_DOUBLE_PLBI ? 2 : 1);
}

int ummu_plbi_tid(struct ummu_domain *dom, u32 tid)
{
	struct ummu_cmd cmd = ummu_cmd_op(UMMU_CMD_PLBI_OS_EIDTID);

	cmd.w[0] |= FIELD_PREP(CMD_PLBI_OS_EIDTID_W0_TID, tid);
	cmd.w[2] = local_tag();
	trace_ummu_plbi(tid, 0, U64_MAX);
	return plbi_send(dom, cmd);
}

int ummu_plbi_range(struct ummu_domain *dom, u32 tid, u64 va, u64 size)
{
	struct ummu_cmd cmd = ummu_cmd_op(UMMU_CMD_PLBI_OS_VA);

	if (!size)
		return 0;
	/* Old libraries round up to the span of a whole level, and beyond */
	if (size >= BIT_ULL(UMMU_VA_BITS))
		return ummu_plbi_tid(dom, tid);
	cmd.w[0] |= FIELD_PREP(CMD_PLBI_OS_VA_W0_TID, tid) |
		    FIELD_PREP(CMD_PLBI_OS_VA_W0_RANGE, order_base_2(size));
	cmd.w[1] = va & GENMASK_ULL(UMMU_VA_BITS - 1, 0);
	cmd.w[2] = local_tag();
	trace_ummu_plbi(tid, va, size);
	return plbi_send(dom, cmd);
}

static int tlbi_send(struct ummu_domain *dom, const struct ummu_cmd *cmds, unsigned int n)
{
	int ret = ummu_issue(dom, cmds, n);

	if (!ret && (dom->caps.options & UMMU_OPT_DOUBLE_TLBI))
		ret = ummu_issue(dom, cmds, n);
	return ret;
}

void ummu_tlbi_asid(struct ummu_domain *dom, u32 asid)
{
	struct ummu_cmd cmd = ummu_cmd_op(dom->caps.el2_regime ? UMMU_CMD_TLBI_HYP_ASID_U :
								 UMMU_CMD_TLBI_OS_ASID_U);

	cmd.w[0] |= FIELD_PREP(CMD_TLBI_OS_ASID_U_W0_ASID, asid);
	tlbi_send(dom, &cmd, 1);
}

static u64 tlbi_gs(void)
{
	return PAGE_SHIFT == 16 ? UMMU_TLBI_GS_64K :
	       PAGE_SHIFT == 14 ? UMMU_TLBI_GS_16K : UMMU_TLBI_GS_4K;
}

/* Cut @pages into pieces of (num + 1) << scale pages */
static unsigned int tlbi_ranges(struct ummu_domain *dom, struct ummu_cmd base, u64 start,
				u64 pages, struct ummu_cmd *out)
{
	unsigned int max_scale = dom->caps.options & UMMU_OPT_SCALE_LIMIT ? 15 : 31;
	unsigned int n = 0;

	while (pages && n < TLBI_MAX_RANGES) {
		unsigned int scale = min_t(unsigned int, __ffs64(pages), max_scale);
		u64 num = min_t(u64, (pages >> scale) & 31 ?: 32, pages >> scale);

		out[n] = base;
		out[n].w[0] |= FIELD_PREP(CMD_TLBI_RANGE_W0_NUM, num - 1) |
			       FIELD_PREP(CMD_TLBI_RANGE_W0_SCALE, scale);
		out[n].w[1] = (start & CMD_TLBI_RANGE_W1_ADDR) |
			      FIELD_PREP(CMD_TLBI_RANGE_W1_GS, tlbi_gs());
		n++;
		start += (num << scale) << PAGE_SHIFT;
		pages -= num << scale;
	}
	return pages ? 0 : n;
}

/* Called under page table locks: must not sleep or allocate */
void ummu_tlbi_range(struct ummu_domain *dom, u32 asid, u64 start, u64 end)
{
	struct ummu_cmd base = ummu_cmd_op(dom->caps.el2_regime ? UMMU_CMD_TLBI_HYP_VA_U :
								  UMMU_CMD_TLBI_OS_VA_U);
	struct ummu_cmd cmds[TLBI_MAX_RANGES];
	unsigned int n = 0;
	u64 pages;

	start = ALIGN_DOWN(start, PAGE_SIZE);
	if (end > BIT_ULL(UMMU_VA_BITS) || end <= start) {
		ummu_tlbi_asid(dom, asid);
		return;
	}
	pages = DIV_ROUND_UP_ULL(end - start, PAGE_SIZE);
	base.w[0] |= FIELD_PREP(CMD_TLBI_OS_VA_U_W0_ASID, asid);

	if (dom->caps.range_tlbi) {
		if (pages < TLBI_FULL_PAGES)
			n = tlbi_ranges(dom, base, start, pages, cmds);
	} else if (pages <= TLBI_MAX_RANGES) {
		for (n = 0; n < pages; n++) {
			cmds[n] = base;
			cmds[n].w[1] = (start + n * PAGE_SIZE) & CMD_TLBI_RANGE_W1_ADDR;
		}
	}
	if (n)
		tlbi_send(dom, cmds, n);
	else
		ummu_tlbi_asid(dom, asid);
}

int ummu_cfgi_tct(struct ummu_domain *dom, u32 tid, bool leaf)
{
	struct ummu_cmd cmd = ummu_cmd_op(UMMU_CMD_CFGI_TCT);

	if (dom->caps.options & UMMU_OPT_SYNC_PLBI)
		ummu_plbi_tid(dom, tid);
	cmd.w[0] |= FIELD_PREP(CMD_CFGI_TCT_W0_TID, tid) | FIELD_PREP(CMD_CFGI_TCT_W0_LEAF, leaf);
	cmd.w[2] = FIELD_PREP(CMD_DEID128_W2_DEID_LO, UMMU_LOCAL_TAG);
	return ummu_issue_one(dom, cmd);
}

/* Before a unit is switched on its caches may hold anything; each step waits */
void ummu_init_invalidate(struct ummu_unit *u)
{
	struct ummu_cmd cmd = ummu_cmd_op(UMMU_CMD_CFGI_TECT_RANGE);

	cmd.w[0] |= FIELD_PREP(CMD_CFGI_TECT_RANGE_W0_RANGE, 31);
	ummu_unit_issue(u, &cmd, 1, true);
	if (u->caps.cap[3] & UMMU_CAP3_HYP_S1CONTEXT) {
		cmd = ummu_cmd_op(UMMU_CMD_TLBI_HYP_ALL);
		ummu_unit_issue(u, &cmd, 1, true);
	}
	cmd = ummu_cmd_op(UMMU_CMD_TLBI_NS_OS_ALL);
	ummu_unit_issue(u, &cmd, 1, true);
	cmd = ummu_cmd_op(UMMU_CMD_PLBI_OS_EID);
	cmd.w[2] = local_tag();
	ummu_unit_issue(u, &cmd, 1, true);
}
