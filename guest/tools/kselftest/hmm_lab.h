/* SPDX-License-Identifier: MIT */
/*
 * What the tests of memory management share: a queue with a mirror, memory that
 * is granted, and the device's hands on it.
 */
#ifndef HMM_LAB_H
#define HMM_LAB_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ummu_accel_hmm.h>
#include <ummu_api.h>

#include "ksft.h"

#define PAGE	   4096ul
#define HUGE	   (2ul << 20)
#define TIMEOUT_MS 30000
#define PAGES	   64

/* One device: a queue, and the mirror that it owns */
struct lab {
	struct accel_queue *queue;
	uint32_t tid;
	uint32_t mode;		/* enum accel_hmm_mode */
	int fd;
};

static struct lab lab = { .fd = -1 };

static inline void lab_open(struct lab *l, const char *device, uint32_t flags)
{
	struct ummu_tid_attr attr = { .mode = MAPT_MODE_TABLE };

	if (ummu_allocate_tid(&attr, &l->tid) || accel_open(device, 0, &l->queue))
		ksft_bail("TID and queue");
	l->fd = accel_fd(l->queue);
	errno = -accel_hmm_enable(l->queue, l->tid, flags, &l->mode);
	if (errno)
		ksft_bail("mirror");
}

static inline void lab_close(struct lab *l)
{
	accel_close(l->queue);
	ummu_free_tid(l->tid);
	l->queue = NULL;
}

static inline struct accel_hmm_stats lab_stats(const struct lab *l)
{
	struct accel_hmm_stats s;

	errno = -accel_hmm_stats(l->queue, &s);
	if (errno)
		ksft_bail("statistics");
	return s;
}

static inline struct accel_hmm_stats stats(void)
{
	return lab_stats(&lab);
}

static inline uint8_t snap(const void *addr)
{
	uint8_t byte;

	return accel_snapshot(lab.queue, addr, PAGE, &byte) == 1 ? byte : 0xff;
}

/* How a job on one range ended; a job that was not even taken: ACCEL_ST_NONE */
static inline enum accel_status lab_run(const struct lab *l, enum accel_op op, const void *addr,
					uint64_t length, uint64_t value, uint64_t *result)
{
	struct accel_job j = { .op = op, .length = length, .dtype = ACCEL_TYPE_U64,
			       .pattern = value, .value = value };
	struct accel_operand o = { .addr = addr, .tid = l->tid };
	struct accel_result r = { .status = ACCEL_ST_NONE };

	if (op == ACCEL_FILL)
		j.dst = o;
	else
		j.src = o;
	accel_run(l->queue, &j, TIMEOUT_MS, &r);
	if (result)
		*result = r.result;
	return r.status;
}

static inline enum accel_status run(enum accel_op op, const void *addr, uint64_t length,
				    uint64_t value, uint64_t *result)
{
	return lab_run(&lab, op, addr, length, value, result);
}

static inline bool device_writes(void *at, size_t length, uint64_t value)
{
	return run(ACCEL_FILL, at, length, value, NULL) == ACCEL_ST_OK;
}

/* CRC of a range, which the device only reads */
static inline bool device_crc(const void *at, size_t length, uint64_t *crc)
{
	return run(ACCEL_CRC32C, at, length, 0, crc) == ACCEL_ST_OK;
}

static inline bool all(const uint64_t *p, size_t bytes, uint64_t value)
{
	for (size_t i = 0; i < bytes / 8; i++)
		if (p[i] != value)
			return false;
	return true;
}

static inline void numbers(uint64_t *p, size_t bytes)
{
	for (size_t i = 0; i < bytes / 8; i++)
		p[i] = i * 0x9e3779b97f4a7c15u;
}

static inline bool are_numbers(const uint64_t *p, size_t bytes)
{
	for (size_t i = 0; i < bytes / 8; i++)
		if (p[i] != i * 0x9e3779b97f4a7c15u)
			return false;
	return true;
}

/* An address that nobody else uses, a gigabyte long */
static inline void *place(void)
{
	static uintptr_t last = 0x500000000000;

	return (void *)__atomic_add_fetch(&last, 1ul << 30, __ATOMIC_RELAXED);
}

static inline void grant_to(const struct lab *l, void *p, size_t size)
{
	struct ummu_seg_attr seg = { .e_bit = UMMU_EBIT_OFF };

	errno = -ummu_grant(l->tid, p, size, MAPT_PERM_ATOMIC_RW, &seg);
	if (errno)
		ksft_bail("grant of %zu bytes at %p", size, p);
}

/* Memory at an address of its own, granted as a whole */
static inline void *granted_file(size_t size, int flags, int fd)
{
	void *p = mmap(place(), size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);

	if (p == MAP_FAILED)
		ksft_bail("memory for a test");
	grant_to(&lab, p, size);
	return p;
}

static inline void *granted(size_t size, int flags)
{
	return granted_file(size, flags | MAP_ANONYMOUS, -1);
}

static inline void *private(size_t size)
{
	return granted(size, MAP_PRIVATE);
}

#endif
