/* SPDX-License-Identifier: MIT */
/*
 * /dev/ummu/tid as raw system calls, from the ABI text and independent of
 * libummu: a fault in the library must not hide one in the kernel.
 */
#ifndef UMMU_SYS_H
#define UMMU_SYS_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define TID_NODE	"/dev/ummu/tid"
#define IOC_ALLOC	0x40806b04u
#define IOC_FREE	0x40806b05u
#define IOC_PLBI_VA	0x40806b06u
#define IOC_PLBI_ALL	0x40806b07u

#define CAP_EXPAN	0x01
#define CAP_DOUBLE	0x02
#define CAP_KCMD	0x04
#define CAP_IOPF	0x08
#define CAP_FREE_BIT	0x10
#define CAP_PPLBI	0x20

enum { MODE_TABLE = 0, MODE_ENTRY = 1 };

struct tid_info {
	uint8_t pcmdq_order, pcplq_order, pad0[2];
	int32_t expan;
	uint64_t blk_exp_size, dev;
	uint32_t tid, ummu_cnt, mode, pad1;
	uint64_t hw_cap, va, size, reserve[8];
};

_Static_assert(sizeof(struct tid_info) == 128, "layout of the ABI");

static inline int sys_open(void)
{
	return open(TID_NODE, O_RDWR | O_CLOEXEC);
}

static inline int sys_alloc(int fd, uint32_t mode, struct tid_info *info)
{
	memset(info, 0, sizeof(*info));
	info->mode = mode;
	info->dev = UINT64_MAX;
	return ioctl(fd, IOC_ALLOC, info);
}

static inline int sys_tid_op(int fd, unsigned long op, uint32_t tid, uint64_t va, uint64_t size)
{
	struct tid_info info = { .tid = tid, .va = va, .size = size };

	return ioctl(fd, op, &info);
}

static inline off_t block_off(uint32_t tid, uint32_t index)
{
	return ((off_t)tid << 12 | index << 2 | 1) << 12;
}

static inline off_t queue_off(uint32_t tid)
{
	return ((off_t)tid << 2 | 2) << 12;
}

static inline void *sys_map(int fd, size_t len, off_t off)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off);
}

#endif
