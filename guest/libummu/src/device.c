// SPDX-License-Identifier: MIT
/* Load, fork, unload: the one open of the device node. */
#include "internal.h"
#include "log.h"
#include "sys.h"

static int device_fd = -1;

int ummu_device_fd(void)
{
	return device_fd;
}

static void fork_prepare(void)
{
	registry_lock_all();
}

static void fork_parent(void)
{
	registry_unlock_all();
}

/*
 * The parent's TIDs stay the parent's: their mappings did not come along, and
 * the inherited descriptor acts on the parent's record, so it is replaced.
 */
static void fork_child(void)
{
	registry_forget_all();
	if (device_fd >= 0)
		ummu_sys.close(device_fd);
	device_fd = ummu_sys.open();
}

__attribute__((constructor)) static void ummu_load(void)
{
	ummu_sys.init();
	ummu_log_load();
	device_fd = ummu_sys.open();
	if (device_fd < 0)
		log_warning("cannot open the device node: token ids are not available in this process");
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

__attribute__((destructor)) static void ummu_unload(void)
{
	/* No FREE here: closing the node gives back every TID that is left. */
	registry_end_all(tid_release_memory);
	if (device_fd >= 0)
		ummu_sys.close(device_fd);
	device_fd = -1;
	log_info("unloaded");
}
