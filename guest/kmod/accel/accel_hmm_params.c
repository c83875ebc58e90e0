// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Knobs of memory management.  All can be changed while the module is loaded
 * (/sys/module/ummu_accel/parameters) except the mode; a value that makes no
 * sense is brought to the nearest that does when it is used.
 */
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/string.h>

#include "accel_hmm.h"

static char *hmm_mode = "private";
module_param(hmm_mode, charp, 0444);
MODULE_PARM_DESC(hmm_mode, "device memory: private, coherent, or mirror (none) (private)");

static ulong migrate_chunk_size = SZ_2M;
module_param(migrate_chunk_size, ulong, 0644);
MODULE_PARM_DESC(migrate_chunk_size, "bytes moved to the device at once, 4K to 2M (2M)");

static ulong cow_threshold = SZ_512K;
module_param(cow_threshold, ulong, 0644);
MODULE_PARM_DESC(cow_threshold,
		 "shared runs in device memory below this are copied, others also migrated again (512K)");

static ulong fault_window = SZ_64K;
module_param(fault_window, ulong, 0644);
MODULE_PARM_DESC(fault_window, "bytes mapped or brought back around a fault, 4K to 2M (64K)");

static uint touch_threshold = 4;
module_param(touch_threshold, uint, 0644);
MODULE_PARM_DESC(touch_threshold, "device faults in a chunk before it migrates, 0: never (4)");

static uint pingpong_ms = 100;
module_param(pingpong_ms, uint, 0644);
MODULE_PARM_DESC(pingpong_ms,
		 "a chunk that the CPU took back stays for so long, doubled each time, 0: no guard (100)");

static uint exclusive_hold_us = 1000;
module_param(exclusive_hold_us, uint, 0644);
MODULE_PARM_DESC(exclusive_hold_us,
		 "a page made exclusive is the device's for so long at least, up to 10000 (1000)");

static uint defrag_interval_ms = 10000;
module_param(defrag_interval_ms, uint, 0644);
MODULE_PARM_DESC(defrag_interval_ms, "between compactions of device memory, 0: never (10000)");

static u64 size_between(ulong value, u64 low, u64 high)
{
	u64 v = READ_ONCE(value);

	return rounddown_pow_of_two(clamp_t(u64, v, low, high));
}

u64 accel_param_chunk(void)
{
	return size_between(migrate_chunk_size, PAGE_SIZE, SZ_2M);
}

u64 accel_param_window(void)
{
	return size_between(fault_window, PAGE_SIZE, SZ_2M);
}

u64 accel_param_cow_threshold(void)
{
	return READ_ONCE(cow_threshold);
}

unsigned int accel_param_touches(void)
{
	return READ_ONCE(touch_threshold);
}

unsigned int accel_param_pingpong_ms(void)
{
	return READ_ONCE(pingpong_ms);
}

unsigned int accel_param_hold_us(void)
{
	return min(READ_ONCE(exclusive_hold_us), 10000u);
}

unsigned int accel_param_defrag_ms(void)
{
	return READ_ONCE(defrag_interval_ms);
}

enum accel_hmm_mode accel_param_mode(void)
{
	if (sysfs_streq(hmm_mode, "coherent"))
		return ACCEL_HMM_COHERENT;
	return sysfs_streq(hmm_mode, "mirror") ? ACCEL_HMM_MIRROR : ACCEL_HMM_PRIVATE;
}
