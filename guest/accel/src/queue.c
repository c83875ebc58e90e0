// SPDX-License-Identifier: MIT
/* Opening and closing a queue: rings, their TID, the doorbell page. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <uapi/ummu_accel.h>
#include <ummu_api.h>

#include "internal.h"

#define DEFAULT_DEVICE	 "/dev/ummu_accel0"
#define DEFAULT_LOG2SIZE 6

static int query(int fd, struct accel_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return ioctl(fd, ACCEL_IOC_INFO, info) ? -errno : 0;
}

/* One mapping: submission ring, then completion ring; never inherited by fork. */
static int map_rings(struct accel_queue *q)
{
	size_t entries = (size_t)1 << q->log2size;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = entries * (ACCEL_DESC_SIZE + ACCEL_CPL_SIZE);

	q->ring_bytes = (bytes + page - 1) & ~(page - 1);
	q->sq = mmap(NULL, q->ring_bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (q->sq == MAP_FAILED) {
		q->sq = NULL;
		return -errno;
	}
	madvise(q->sq, q->ring_bytes, MADV_DONTFORK);
	q->cq = q->sq + entries * ACCEL_DESC_WORDS;
	return 0;
}

/* The rings' TID is closed to the wire: only the device itself may use it. */
static int grant_rings(struct accel_queue *q)
{
	struct ummu_tid_attr tid_attr = { .mode = MAPT_MODE_TABLE };
	struct ummu_seg_attr seg_attr = { .token = NULL, .e_bit = UMMU_EBIT_ON };
	int ret = ummu_allocate_tid(&tid_attr, &q->tid);

	if (ret)
		return ret == -1 ? -EIO : ret;
	ret = ummu_grant(q->tid, q->sq, q->ring_bytes, MAPT_PERM_RW, &seg_attr);
	if (ret) {
		ummu_free_tid(q->tid);
		q->tid = 0;
	}
	return ret;
}

static int create(struct accel_queue *q)
{
	struct accel_queue_create c = {
		.size = sizeof(c),
		.sq_va = (uintptr_t)q->sq,
		.cq_va = (uintptr_t)q->cq,
		.sq_log2 = q->log2size,
		.cq_log2 = q->log2size,
		.tid = q->tid,
	};
	void *page;

	if (ioctl(q->fd, ACCEL_IOC_QUEUE_CREATE, &c))
		return -errno;
	page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, q->fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	q->doorbell = page;
	return 0;
}

/* Undo whatever of accel_open() was done; the device stops before its memory goes. */
static void destroy(struct accel_queue *q)
{
	if (q->doorbell)
		munmap((void *)q->doorbell, (size_t)sysconf(_SC_PAGESIZE));
	if (q->fd >= 0)
		close(q->fd);
	if (q->tid)
		ummu_free_tid(q->tid);
	if (q->sq)
		munmap(q->sq, q->ring_bytes);
	if (q->eventfd >= 0)
		close(q->eventfd);
	pthread_mutex_destroy(&q->lock);
	free(q->slots);
	free(q);
}

static int set_up(struct accel_queue *q, const char *device, unsigned int log2size)
{
	struct accel_info info;
	int ret;

	q->fd = open(device, O_RDWR | O_CLOEXEC);
	if (q->fd < 0)
		return errno == ENOENT || errno == ENXIO ? -ENODEV : -errno;
	ret = query(q->fd, &info);
	if (ret)
		return ret;
	/* A handle carries the slot number in 16 bits. */
	if (log2size > info.max_log2size || log2size > 15)
		return -EINVAL;
	q->log2size = log2size;
	q->slots = calloc((size_t)1 << log2size, sizeof(*q->slots));
	if (!q->slots)
		return -ENOMEM;
	ret = map_rings(q);
	if (!ret)
		ret = grant_rings(q);
	return ret ? ret : create(q);
}

int accel_open(const char *device, unsigned int log2size, struct accel_queue **queue)
{
	struct accel_queue *q;
	int ret;

	if (!queue)
		return -EINVAL;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->fd = -1;
	q->eventfd = -1;
	pthread_mutex_init(&q->lock, NULL);
	ret = set_up(q, device ? device : DEFAULT_DEVICE, log2size ? log2size : DEFAULT_LOG2SIZE);
	if (ret) {
		destroy(q);
		return ret;
	}
	*queue = q;
	return 0;
}

void accel_close(struct accel_queue *q)
{
	if (q)
		destroy(q);
}

int accel_query(struct accel_queue *q, struct accel_caps *caps)
{
	struct accel_info info;
	int ret = query(q->fd, &info);

	if (ret)
		return ret;
	*caps = (struct accel_caps){
		.version = info.version,
		.queues = info.queues,
		.max_log2size = info.max_log2size,
		.max_tids = info.max_tids,
		.ops = info.ops,
		.vram_size = info.vram_size,
		.jobs_done = info.jobs_done,
		.bytes_read = info.bytes_read,
		.bytes_written = info.bytes_written,
	};
	return 0;
}

static int bind_tid(struct accel_queue *q, uint32_t tid, uint32_t flags)
{
	struct accel_tid_bind b = { .size = sizeof(b), .tid = tid, .flags = flags };

	return ioctl(q->fd, ACCEL_IOC_TID_BIND, &b) ? -errno : 0;
}

int accel_bind_tid(struct accel_queue *q, uint32_t tid)
{
	return bind_tid(q, tid, 0);
}

int accel_unbind_tid(struct accel_queue *q, uint32_t tid)
{
	return bind_tid(q, tid, ACCEL_TID_UNBIND);
}

int accel_fd(const struct accel_queue *q)
{
	return q->fd;
}

int accel_eventfd(struct accel_queue *q)
{
	int ret;

	pthread_mutex_lock(&q->lock);
	ret = q->eventfd;
	if (ret < 0) {
		int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		struct accel_eventfd e = { .size = sizeof(e), .fd = fd };

		if (fd < 0) {
			ret = -errno;
		} else if (ioctl(q->fd, ACCEL_IOC_EVENTFD, &e)) {
			ret = -errno;
			close(fd);
		} else {
			q->eventfd = fd;
			ret = fd;
		}
	}
	pthread_mutex_unlock(&q->lock);
	return ret;
}
