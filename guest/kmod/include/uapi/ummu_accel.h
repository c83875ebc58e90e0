/* SPDX-License-Identifier: MIT */
/*
 * User interface of the ummulab accelerator driver (/dev/ummu_accel<N>).
 *
 * One open file is one queue.  The life of a queue:
 *   open; ACCEL_IOC_INFO; ACCEL_IOC_QUEUE_CREATE (rings are the caller's own
 *   memory, reached by the device by virtual address through the UMMU under
 *   the given TID); mmap of one page at offset 0 = the doorbell page;
 *   ACCEL_IOC_TID_BIND for each TID that descriptors may name; submit by
 *   writing descriptors and the doorbell; wait with poll() or an eventfd.
 *
 * Every structure starts with its own size: the kernel refuses a size it does
 * not know with -EINVAL and a non-zero reserved field with -EINVAL.
 */
#ifndef _UAPI_UMMU_ACCEL_H
#define _UAPI_UMMU_ACCEL_H

#include <linux/const.h>
#include <linux/ioctl.h>
#include <linux/types.h>

struct accel_info {
	__u32 size;		/* in: sizeof(struct accel_info) */
	__u32 version;		/* out: device VERSION register */
	__u32 queues;		/* out: queues of the device */
	__u32 max_log2size;	/* out: log2 of the largest ring */
	__u32 max_tids;		/* out: TIDs that can be bound to a queue */
	__u32 ops;		/* out: bit n = opcode n implemented */
	__u64 vram_size;	/* out: bytes of device memory */
	__u64 jobs_done;	/* out: device counters since reset */
	__u64 bytes_read;
	__u64 bytes_written;
	__u64 reserved[2];	/* must be zero */
};

struct accel_queue_create {
	__u32 size;		/* in: sizeof(struct accel_queue_create) */
	__u32 flags;		/* in: ACCEL_QUEUE_* */
	__u64 sq_va;		/* in: submission ring, 64-byte aligned */
	__u64 cq_va;		/* in: completion ring, 32-byte aligned */
	__u32 sq_log2;		/* in: log2 of submission entries */
	__u32 cq_log2;		/* in: log2 of completion entries */
	__u32 tid;		/* in: TID of the caller's process, for the rings */
	__u32 token;		/* in: used with ACCEL_QUEUE_TOKEN */
	__u32 qid;		/* out */
	__u32 reserved[3];	/* must be zero */
};

#define ACCEL_QUEUE_TOKEN	_BITUL(0)

struct accel_tid_bind {
	__u32 size;		/* in: sizeof(struct accel_tid_bind) */
	__u32 tid;		/* in: must belong to the caller's process */
	__u32 flags;		/* in: ACCEL_TID_* */
	__u32 reserved;		/* must be zero */
};

#define ACCEL_TID_UNBIND	_BITUL(0)

struct accel_eventfd {
	__u32 size;		/* in: sizeof(struct accel_eventfd) */
	__s32 fd;		/* in: an eventfd, -1 removes it */
};

#define ACCEL_IOC_MAGIC		'A'
#define ACCEL_IOC_INFO		_IOWR(ACCEL_IOC_MAGIC, 0x00, struct accel_info)
#define ACCEL_IOC_QUEUE_CREATE	_IOWR(ACCEL_IOC_MAGIC, 0x01, struct accel_queue_create)
#define ACCEL_IOC_QUEUE_DESTROY	_IO(ACCEL_IOC_MAGIC, 0x02)
#define ACCEL_IOC_TID_BIND	_IOW(ACCEL_IOC_MAGIC, 0x03, struct accel_tid_bind)
#define ACCEL_IOC_EVENTFD	_IOW(ACCEL_IOC_MAGIC, 0x04, struct accel_eventfd)

#endif /* _UAPI_UMMU_ACCEL_H */
