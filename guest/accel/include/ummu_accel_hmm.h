/* SPDX-License-Identifier: MIT */
/*
 * libummuaccel: heterogeneous memory management.
 *
 * A queue can own one mirror: a TID of the process behind which the device sees
 * the process's own pages, faults in what is missing and may have them moved to
 * its memory (VRAM).  Other queues of the process use the mirror by binding its
 * TID; what a job may touch is still what the TID's grants say.
 *
 * Addresses and lengths are multiples of the page size.  Every function returns
 * 0 or a positive count on success and -errno on failure:
 *
 *   -ENOENT      the queue owns no mirror (any more)
 *   -EINVAL      not page aligned, no length, beyond the address space, bad value
 *   -EFAULT      nothing is mapped at an address
 *   -EACCES      outside the registered ranges
 *   -EOPNOTSUPP  no device memory, or of a kind of memory that cannot do this
 *   -ENOSPC      device memory is full of pages that may not leave
 *   -EINTR       the process was killed meanwhile
 */
#ifndef UMMU_ACCEL_HMM_H
#define UMMU_ACCEL_HMM_H

#include <uapi/ummu_accel.h>

#include "ummu_accel_lib.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Make a TID of this process the queue's mirror and bind it to the queue.
 * flags: 0 or ACCEL_HMM_REGISTERED.  mode (may be NULL): enum accel_hmm_mode.
 * -EBUSY: the queue owns a mirror, or the TID has one; -EINVAL: not a TID of
 * this process; -EOPNOTSUPP: no stall, or pages are not 4 KiB.
 */
int accel_hmm_enable(struct accel_queue *queue, uint32_t tid, uint32_t flags, uint32_t *mode);

/* End it; the TID goes on with its ordinary translation, pages in VRAM stay until touched. */
int accel_hmm_disable(struct accel_queue *queue);

/* Move to device memory now.  Returns the pages that moved; shared and file pages stay. */
long accel_prefetch(struct accel_queue *queue, const void *addr, size_t length);

/* Move back to system memory.  Returns the pages that moved. */
long accel_evict(struct accel_queue *queue, const void *addr, size_t length);

/* Say how a range is used; holds until said otherwise, also for memory mapped there later. */
int accel_advise(struct accel_queue *queue, const void *addr, size_t length,
		 enum accel_hmm_advice advice);

/* With ACCEL_HMM_REGISTERED: what the device may reach. */
int accel_register(struct accel_queue *queue, const void *addr, size_t length);
int accel_unregister(struct accel_queue *queue, const void *addr, size_t length);

/* Map for the device now what it would fault in.  Returns the pages. */
long accel_mirror(struct accel_queue *queue, const void *addr, size_t length, bool write);

/* Take the pages for device atomics; the CPU's next touch ends that.  Returns the pages. */
long accel_exclusive(struct accel_queue *queue, const void *addr, size_t length);

/* One byte of ACCEL_SNAP_* per page.  Returns the pages. */
long accel_snapshot(struct accel_queue *queue, const void *addr, size_t length, uint8_t *bytes);

/* What happened since the mirror was made. */
int accel_hmm_stats(struct accel_queue *queue, struct accel_hmm_stats *stats);

#ifdef __cplusplus
}
#endif

#endif /* UMMU_ACCEL_HMM_H */
