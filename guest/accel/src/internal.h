/* SPDX-License-Identifier: MIT */
/*
 * Inside libummuaccel.
 *
 * Locking: queue->lock protects everything below it in struct accel_queue.
 * It is never held while waiting; waiters poll the file descriptor outside it
 * and drain the completion ring for everybody when they come back.
 */
#ifndef ACCEL_INTERNAL_H
#define ACCEL_INTERNAL_H

#include <pthread.h>

#include "accel_layout.h"
#include "ummu_accel_lib.h"

#define FIELD(name, value) (((uint64_t)(value) << name##_SHIFT) & name##_MASK)
#define GET(name, word)    (((word) & name##_MASK) >> name##_SHIFT)

enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_DONE };

/* A job in flight or finished and not yet taken; its number is part of the handle. */
struct accel_slot {
	enum slot_state state;
	uint32_t handle;
	struct accel_result result;
};

struct accel_queue {
	int fd;
	int eventfd;
	uint32_t tid;			/* the rings' own TID */
	unsigned int log2size;
	size_t ring_bytes;		/* of the one mapping that holds both rings */
	uint64_t *sq;
	uint64_t *cq;
	volatile uint32_t *doorbell;

	pthread_mutex_t lock;
	uint32_t sq_pi, cq_ci;		/* with wrap bit */
	uint32_t in_flight;
	uint16_t generation;		/* makes handles of a reused slot differ */
	struct accel_slot *slots;	/* 2^log2size */
};

/* Fill a ring entry (job.c); returns -EINVAL for a value that has no place in it. */
int accel_encode(const struct accel_job *job, uint32_t cookie, uint64_t desc[ACCEL_DESC_WORDS]);

#endif
