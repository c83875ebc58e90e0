// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Module parameters and the choices that follow from them.
 */
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sizes.h>

#include "ummu.h"
#include "ummu_arch.h"

static bool mapt_exp = true;
module_param(mapt_exp, bool, 0444);
MODULE_PARM_DESC(mapt_exp, "permission tables may grow beyond their first block (default 1)");

static unsigned long mapt_base_size = UMMU_BLOCK_DEFAULT;

static int block_size_set(const char *val, const struct kernel_param *kp)
{
	char *end;
	unsigned long long size = memparse(val, &end);

	if (end == val || (*end && *end != '\n'))
		return -EINVAL;
	/* As documented: what is no usable size falls back, it does not fail */
	if (size < UMMU_BLOCK_MIN || size > UMMU_BLOCK_MAX || !is_power_of_2(size))
		size = UMMU_BLOCK_DEFAULT;
	mapt_base_size = size;
	return 0;
}

static const struct kernel_param_ops block_size_ops = {
	.set = block_size_set,
	.get = param_get_ulong,
};
module_param_cb(mapt_base_size, &block_size_ops, &mapt_base_size, 0444);
MODULE_PARM_DESC(mapt_base_size, "bytes of a permission table block, 16K to 2M (default 64K)");

static int kcmd_plbi = -1;
module_param(kcmd_plbi, int, 0444);
MODULE_PARM_DESC(kcmd_plbi, "invalidate by ioctl: 1 yes, 0 by user queues, -1 by product (default)");

static char *matt = "auto";
module_param(matt, charp, 0444);
MODULE_PARM_DESC(matt, "translation of user TIDs: shared, separated or auto (default)");

bool ummu_param_expan(void)
{
	return mapt_exp;
}

unsigned long ummu_param_block_size(void)
{
	return mapt_base_size;
}

bool ummu_param_kcmd(const struct ummu_caps *caps)
{
	if (kcmd_plbi >= 0)
		return kcmd_plbi;
	return caps->options & UMMU_OPT_KCMD_PLBI;
}

/*
 * Sharing needs the CPU's page size as a granule and coherent walks; a process
 * page table may also name any physical address the CPU can.
 */
bool ummu_param_shared(const struct ummu_caps *caps)
{
	bool possible = ummu_arch_can_share() && caps->coherent && caps->granule_ok &&
			caps->oas_code >= ummu_arch_pa_code() && !caps->broadcast;

	if (!strcmp(matt, "separated"))
		return false;
	return possible;
}
