/* SPDX-License-Identifier: MIT */
/*
 * ummu-core: what libummu, its clients and the kernel share.
 *
 * Written from the published facts of the interface; names and layouts are the
 * interface's own.  The ioctl macros need <sys/ioctl.h>, the offset macros a
 * PAGE_SHIFT: the includer provides both, as with the original header.
 */
#ifndef UMMU_CORE_H
#define UMMU_CORE_H

#include <stdint.h>

enum ummu_mapt_perm {
	MAPT_PERM_W = 1,
	MAPT_PERM_R = 2,
	MAPT_PERM_RW = 3,
	MAPT_PERM_ATOMIC_W = 5,
	MAPT_PERM_ATOMIC_R = 6,
	MAPT_PERM_ATOMIC_RW = 7,
};

enum ummu_mapt_mode {
	MAPT_MODE_TABLE = 0,
	MAPT_MODE_ENTRY = 1,
	MAPT_MODE_END = 2,
};

enum ummu_ebit_state {
	UMMU_EBIT_OFF = 0,
	UMMU_EBIT_ON = 1,
	UMMU_EBIT_END = 2,
};

/*
 * Reserve areas: unnamed bit-fields of 64 bits.  They align their structure on
 * AArch64 and do not on x86-64, so the layouts differ there; that is part of
 * the interface.  The library neither reads nor writes them.
 */
struct ummu_token_info {
	unsigned int input;	/* 0: tokenVal is given, 1: the library chooses one */
	unsigned int tokenVal;
	struct {
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
	} kabi_reserve;
};

struct ummu_tid_attr {
	enum ummu_mapt_mode mode;
	struct {
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
	} kabi_reserve;
};

struct ummu_seg_attr {
	struct ummu_token_info *token;	/* NULL: no token check */
	enum ummu_ebit_state e_bit;
	struct {
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
	} kabi_reserve;
};

/* The argument of all four ioctls; 128 bytes on every 64-bit machine. */
struct ummu_tid_info {
	uint8_t pcmdq_order;		/* out: log2 of the pages of a command ring */
	uint8_t pcplq_order;		/* out: log2 of the pages of a completion ring */
	int expan;			/* unused */
	unsigned long blk_exp_size;	/* out: bytes of a MAPT block */
	unsigned long dev;		/* in: all ones */
	uint32_t tid;
	uint32_t ummu_cnt;		/* out: UMMUs, i.e. queue pairs */
	enum ummu_mapt_mode mode;
	uint64_t hw_cap;		/* out: HW_CAP_* */
	uint64_t va;			/* in: PLBI_VA */
	uint64_t size;			/* in: PLBI_VA */
	struct {
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
		uint64_t : 64;
	} kabi_reserve;
};

#define UMMU_IOC_MAGIC		'k'
#define UMMU_IOCALLOC_TID	_IOW(UMMU_IOC_MAGIC, 4, struct ummu_tid_info)
#define UMMU_IOCFREE_TID	_IOW(UMMU_IOC_MAGIC, 5, struct ummu_tid_info)
#define UMMU_IOCPLBI_VA		_IOW(UMMU_IOC_MAGIC, 6, struct ummu_tid_info)
#define UMMU_IOCPLBI_ALL	_IOW(UMMU_IOC_MAGIC, 7, struct ummu_tid_info)

#define HW_CAP_EXPAN		(1u << 0)
#define HW_CAP_DOUBLE_PLBI	(1u << 1)
#define HW_CAP_KCMD_PLBI	(1u << 2)
#define HW_CAP_IOPF		(1u << 3)
#define HW_CAP_FREE_BIT		(1u << 4)
#define HW_CAP_PPLBI		(1u << 5)

#define MMAP_TYPE_BLOCK		1
#define MMAP_TYPE_MUTIQ		2
#define MMAP_BLOCK_OFFSET(tid, index) \
	((((uint64_t)(tid) << 12) | ((uint64_t)(index) << 2) | MMAP_TYPE_BLOCK) << PAGE_SHIFT)
#define MMAP_MUTIQ_OFFSET(tid) \
	((((uint64_t)(tid) << 2) | MMAP_TYPE_MUTIQ) << PAGE_SHIFT)

#endif /* UMMU_CORE_H */
