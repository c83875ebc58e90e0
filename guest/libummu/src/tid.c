// SPDX-License-Identifier: MIT
/* ummu_allocate_tid() and ummu_free_tid(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "internal.h"
#include "log.h"
#include "sys.h"

static void kernel_free(uint32_t tid)
{
	struct ummu_tid_info info;

	memset(&info, 0, sizeof(info));
	info.tid = tid;
	if (ummu_sys.ioctl(ummu_device_fd(), UMMU_IOCFREE_TID, &info) < 0)
		log_error("tid 0x%x: the kernel did not take it back: %s", tid, strerror(errno));
}

/* Blocks go before the invalidation: afterwards nothing can be cached again. */
void tid_release_memory(struct tid *t)
{
	blocks_unmap_all(t);
	plbi_all(t);
	queues_unmap(t);
}

void tid_free_bookkeeping(struct tid *t)
{
	segs_free_all(&t->segs);
	free(t->blocks.used);
	free(t->blocks.valid_nodes);
	free(t->queues);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static struct tid *new_tid(const struct ummu_tid_info *info, enum ummu_mapt_mode mode)
{
	struct tid *t = ummu_sys.alloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->tid = info->tid;
	t->mode = mode;
	t->hw_cap = info->hw_cap;
	t->block_bytes = info->blk_exp_size;
	t->segs.seed = info->tid * 2654435761u + 1;
	pthread_mutex_init(&t->lock, NULL);
	return t;
}

static int set_up(struct tid *t, const struct ummu_tid_info *info)
{
	int ret = 0;

	if (!(t->hw_cap & HW_CAP_KCMD_PLBI))
		ret = queues_map(t, info);
	if (!ret)
		ret = blocks_init(t);
	if (!ret && t->mode == MAPT_MODE_ENTRY)
		entry_clear(t);
	return ret ? ret : registry_add(t);
}

int ummu_allocate_tid(struct ummu_tid_attr *attr, uint32_t *tid)
{
	struct ummu_tid_info info;
	struct tid *t;
	int ret;

	if (!attr || (unsigned int)attr->mode >= MAPT_MODE_END || !tid || ummu_device_fd() < 0)
		return -EINVAL;
	memset(&info, 0, sizeof(info));
	info.dev = ~0ul;
	info.mode = attr->mode;
	ret = ummu_sys.ioctl(ummu_device_fd(), UMMU_IOCALLOC_TID, &info);
	if (ret < 0) {
		/* -1 whatever the reason: part of the contract.  The log has the cause. */
		log_error("the kernel gave no token id: %s", strerror(errno));
		return ret;
	}
	t = new_tid(&info, attr->mode);
	if (!t) {
		kernel_free(info.tid);
		return -ENOMEM;
	}
	ret = set_up(t, &info);
	if (ret) {
		tid_release_memory(t);
		tid_free_bookkeeping(t);
		/* An ID that we hold already is not given back: it is in use. */
		if (ret != -1)
			kernel_free(info.tid);
		return ret;
	}
	log_info("allocated tid 0x%x, mode %d", info.tid, attr->mode);
	*tid = info.tid;
	return 0;
}

int ummu_free_tid(uint32_t tid)
{
	struct tid *t = ummu_device_fd() < 0 ? NULL : registry_take(tid);

	if (!t)
		return -EINVAL;
	tid_release_memory(t);
	kernel_free(tid);
	log_info("freed tid 0x%x", tid);
	tid_put(t);
	return 0;
}
