// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ummu.ko: module entry.
 */
#include <linux/module.h>

#include "ummu.h"

#define CREATE_TRACE_POINTS
#include "ummu_trace.h"

DEFINE_SRCU(ummu_srcu);

static int __init ummu_init(void)
{
	int ret;

	ret = ummu_sysfs_init();
	if (ret)
		return ret;
	ret = ummu_cdev_init();
	if (ret)
		goto fail_sysfs;
	ret = ummu_pci_register();
	if (ret)
		goto fail_cdev;
	ummu_debugfs_init();
	return 0;

fail_cdev:
	ummu_cdev_exit();
fail_sysfs:
	ummu_sysfs_exit();
	return ret;
}
module_init(ummu_init);

static void __exit ummu_exit(void)
{
	ummu_debugfs_exit();
	ummu_pci_unregister();
	ummu_cdev_exit();
	ummu_sysfs_exit();
}
module_exit(ummu_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("ummulab");
MODULE_DESCRIPTION("Unified Memory Management Unit (UnifiedBus)");
