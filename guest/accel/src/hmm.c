// SPDX-License-Identifier: MIT
/* Heterogeneous memory management: the mirror that a queue owns. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "internal.h"
#include "ummu_accel_hmm.h"

int accel_hmm_enable(struct accel_queue *q, uint32_t tid, uint32_t flags, uint32_t *mode)
{
	struct accel_hmm_enable e = { .size = sizeof(e), .flags = flags, .tid = tid };
	int ret;

	if (ioctl(q->fd, ACCEL_IOC_HMM_ENABLE, &e))
		return -errno;
	ret = accel_bind_tid(q, tid);
	if (ret && ret != -EEXIST) {
		ioctl(q->fd, ACCEL_IOC_HMM_DISABLE);
		return ret;
	}
	if (mode)
		*mode = e.mode;
	return 0;
}

int accel_hmm_disable(struct accel_queue *q)
{
	return ioctl(q->fd, ACCEL_IOC_HMM_DISABLE) ? -errno : 0;
}

/* The pages that the operation reached, or -errno */
static long range(struct accel_queue *q, enum accel_hmm_op op, const void *addr, size_t length,
		  uint32_t arg, uint8_t *bytes)
{
	struct accel_hmm_range r = {
		.size = sizeof(r),
		.op = op,
		.addr = (uintptr_t)addr,
		.length = length,
		.user_ptr = (uintptr_t)bytes,
		.arg = arg,
	};

	return ioctl(q->fd, ACCEL_IOC_HMM_RANGE, &r) ? -errno : (long)r.pages;
}

long accel_prefetch(struct accel_queue *q, const void *addr, size_t length)
{
	return range(q, ACCEL_HMM_PREFETCH, addr, length, 0, NULL);
}

long accel_evict(struct accel_queue *q, const void *addr, size_t length)
{
	return range(q, ACCEL_HMM_EVICT, addr, length, 0, NULL);
}

int accel_advise(struct accel_queue *q, const void *addr, size_t length, enum accel_hmm_advice advice)
{
	return (int)range(q, ACCEL_HMM_ADVISE, addr, length, advice, NULL);
}

int accel_register(struct accel_queue *q, const void *addr, size_t length)
{
	return (int)range(q, ACCEL_HMM_REGISTER, addr, length, 0, NULL);
}

int accel_unregister(struct accel_queue *q, const void *addr, size_t length)
{
	return (int)range(q, ACCEL_HMM_UNREGISTER, addr, length, 0, NULL);
}

long accel_mirror(struct accel_queue *q, const void *addr, size_t length, bool write)
{
	return range(q, ACCEL_HMM_MIRROR_RANGE, addr, length, write, NULL);
}

long accel_exclusive(struct accel_queue *q, const void *addr, size_t length)
{
	return range(q, ACCEL_HMM_EXCLUSIVE, addr, length, 0, NULL);
}

long accel_snapshot(struct accel_queue *q, const void *addr, size_t length, uint8_t *bytes)
{
	if (!bytes)
		return -EFAULT;
	return range(q, ACCEL_HMM_SNAPSHOT, addr, length, 0, bytes);
}

int accel_hmm_stats(struct accel_queue *q, struct accel_hmm_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	return ioctl(q->fd, ACCEL_IOC_HMM_STATS, stats) ? -errno : 0;
}
