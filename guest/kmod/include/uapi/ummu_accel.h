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

/*
 * Heterogeneous memory management.  ACCEL_IOC_HMM_ENABLE turns a TID of the
 * caller into one whose pages this device mirrors, faults in and migrates; the
 * open file owns it until ACCEL_IOC_HMM_DISABLE or close.  Other queues of the
 * same process and device may bind the TID, other devices may not (-EBUSY).
 */
struct accel_hmm_enable {
	__u32 size;		/* in: sizeof(struct accel_hmm_enable) */
	__u32 flags;		/* in: ACCEL_HMM_* */
	__u32 tid;		/* in: must belong to the caller's process */
	__u32 mode;		/* out: enum accel_hmm_mode */
	__u64 reserved[2];	/* must be zero */
};

/* The device reaches registered ranges only, everything else ends with -EACCES */
#define ACCEL_HMM_REGISTERED	_BITUL(0)

enum accel_hmm_mode {
	ACCEL_HMM_MIRROR,	/* no device memory: nothing migrates */
	ACCEL_HMM_PRIVATE,	/* the CPU cannot reach device memory */
	ACCEL_HMM_COHERENT,	/* the CPU can */
};

enum accel_hmm_op {
	ACCEL_HMM_PREFETCH,	/* to device memory */
	ACCEL_HMM_EVICT,	/* back to system memory */
	ACCEL_HMM_ADVISE,	/* arg: enum accel_hmm_advice */
	ACCEL_HMM_REGISTER,
	ACCEL_HMM_UNREGISTER,
	ACCEL_HMM_MIRROR_RANGE,	/* map for the device now; arg: 0 read, 1 write */
	ACCEL_HMM_EXCLUSIVE,	/* as by a device atomic on each page */
	ACCEL_HMM_SNAPSHOT,	/* one byte per page to user_ptr: ACCEL_SNAP_* */
};

enum accel_hmm_advice {
	ACCEL_ADVICE_NORMAL,
	ACCEL_ADVICE_PREFER_DEVICE,	/* migrate at the first touch of the device */
	ACCEL_ADVICE_PREFER_SYSTEM,	/* never migrate by itself */
	ACCEL_ADVICE_READ_MOSTLY,	/* reads never migrate */
	ACCEL_ADVICE_PINNED,		/* as PREFER_DEVICE, and never evicted for room */
	ACCEL_ADVICE_ATOMIC,		/* device writes are made under exclusive access */
};

struct accel_hmm_range {
	__u32 size;		/* in: sizeof(struct accel_hmm_range) */
	__u32 op;		/* in: enum accel_hmm_op */
	__u64 addr;		/* in: page aligned */
	__u64 length;		/* in: page aligned, not 0 */
	__u64 user_ptr;		/* in: SNAPSHOT only, else 0 */
	__u32 arg;		/* in */
	__u32 reserved;		/* must be zero */
	__u64 pages;		/* out: pages moved, mapped, made exclusive or looked at */
};

#define ACCEL_SNAP_NONE		0x00	/* nothing there */
#define ACCEL_SNAP_READ		0x01
#define ACCEL_SNAP_WRITE	0x02
#define ACCEL_SNAP_HUGE		0x04	/* a CPU mapping of 2 MiB or more */
#define ACCEL_SNAP_LOCAL	0x10	/* in memory of this device */
#define ACCEL_SNAP_REMOTE	0x20	/* in memory of another device, which the CPU can reach */
#define ACCEL_SNAP_ZERO		0x40	/* the zero page */
#define ACCEL_SNAP_ERROR	0x80	/* no mapping may exist here */

/* Since the TID was enabled; times in nanoseconds */
struct accel_hmm_stats {
	__u32 size;		/* in: sizeof(struct accel_hmm_stats) */
	__u32 reserved;		/* must be zero */
	__u64 faults_read;
	__u64 faults_write;
	__u64 faults_failed;
	__u64 faults_denied;	/* outside the registered ranges */
	__u64 cpu_faults;	/* the CPU touched a page in device memory */
	__u64 retries;		/* the process changed the range meanwhile */
	__u64 invalidations;	/* that took something from the device */
	__u64 pages_mapped;
	__u64 blocks_mapped;	/* of 2 MiB */
	__u64 pages_to_device;
	__u64 pages_to_system;
	__u64 pages_zeroed;	/* on the device, for memory never written */
	__u64 cow_copied;	/* shared pages copied for a device write ... */
	__u64 cow_migrated;	/* ... and copied, then migrated */
	__u64 exclusive;
	__u64 exclusive_revoked;
	__u64 pingpong_held;	/* migrations left out by the guard */
	__u64 evictions;	/* pages of this process that made room */
	__u64 ns_collect;	/* phases of migration and fault */
	__u64 ns_copy;
	__u64 ns_map;
	__u64 ns_invalidate;
};

#define ACCEL_IOC_MAGIC		'A'
#define ACCEL_IOC_INFO		_IOWR(ACCEL_IOC_MAGIC, 0x00, struct accel_info)
#define ACCEL_IOC_QUEUE_CREATE	_IOWR(ACCEL_IOC_MAGIC, 0x01, struct accel_queue_create)
#define ACCEL_IOC_QUEUE_DESTROY	_IO(ACCEL_IOC_MAGIC, 0x02)
#define ACCEL_IOC_TID_BIND	_IOW(ACCEL_IOC_MAGIC, 0x03, struct accel_tid_bind)
#define ACCEL_IOC_EVENTFD	_IOW(ACCEL_IOC_MAGIC, 0x04, struct accel_eventfd)
#define ACCEL_IOC_HMM_ENABLE	_IOWR(ACCEL_IOC_MAGIC, 0x10, struct accel_hmm_enable)
#define ACCEL_IOC_HMM_DISABLE	_IO(ACCEL_IOC_MAGIC, 0x11)
#define ACCEL_IOC_HMM_RANGE	_IOWR(ACCEL_IOC_MAGIC, 0x12, struct accel_hmm_range)
#define ACCEL_IOC_HMM_STATS	_IOWR(ACCEL_IOC_MAGIC, 0x13, struct accel_hmm_stats)

#endif /* _UAPI_UMMU_ACCEL_H */
