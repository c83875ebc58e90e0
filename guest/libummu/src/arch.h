/* SPDX-License-Identifier: MIT */
/* The only place that knows an architecture: layouts that differ, and barriers towards a device. */
#ifndef ARCH_H
#define ARCH_H

#ifdef __aarch64__
#define ARCH_TID_ATTR_SIZE	64
#define ARCH_TID_RESERVE_OFFSET 8
#define ARCH_SEG_RESERVE_OFFSET 16
/* Stores to tables and rings reach the device before the doorbell does, and the other way round. */
#define device_wmb()		__asm__ volatile("dmb oshst" ::: "memory")
#define device_rmb()		__asm__ volatile("dmb osh" ::: "memory")
#else
#define ARCH_TID_ATTR_SIZE	60
#define ARCH_TID_RESERVE_OFFSET 4
#define ARCH_SEG_RESERVE_OFFSET 12
#define device_wmb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define device_rmb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

#endif
