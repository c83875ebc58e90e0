// SPDX-License-Identifier: MIT
/*
 * Submitting jobs and taking their completions.
 *
 * A handle is the job's slot number with a generation above it.  The slot stays
 * taken until its result was fetched, so there are never more jobs in flight
 * than completion entries: the completion ring cannot overflow.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "internal.h"

/* poll() again this often even without an interrupt: a lost one costs time, not the job. */
#define POLL_SLICE_MS 100

static uint32_t doorbell_read(const struct accel_queue *q, unsigned int reg)
{
	uint32_t value = q->doorbell[reg / 4];

	/* The device wrote the ring before it moved the index. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return value;
}

static void doorbell_write(struct accel_queue *q, unsigned int reg, uint32_t value)
{
	/* Ring memory must be visible before the index that announces it. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	q->doorbell[reg / 4] = value;
}

static struct accel_slot *slot_of(struct accel_queue *q, accel_handle_t handle)
{
	struct accel_slot *slot = &q->slots[handle & ((1u << q->log2size) - 1)];

	return slot->state != SLOT_FREE && slot->handle == handle ? slot : NULL;
}

static void take_completion(struct accel_queue *q, const uint64_t *cpl)
{
	struct accel_slot *slot = slot_of(q, (uint32_t)GET(ACCEL_CPL_W0_COOKIE, cpl[0]));

	/* Whoever can write our ring can only hurt us, but must not make us go astray. */
	if (!slot || slot->state != SLOT_BUSY)
		return;
	slot->result = (struct accel_result){
		.status = (enum accel_status)GET(ACCEL_CPL_W0_STATUS, cpl[0]),
		.event = (uint8_t)GET(ACCEL_CPL_W0_EVENT, cpl[0]),
		.operand = (uint8_t)GET(ACCEL_CPL_W0_OPERAND, cpl[0]),
		.fault_addr = cpl[1],
		.bytes_done = cpl[2],
		.result = cpl[3],
	};
	slot->state = SLOT_DONE;
	q->in_flight--;
}

/* Take all completions that are there; called with the lock held. */
static void drain(struct accel_queue *q)
{
	const uint32_t mask = (2u << q->log2size) - 1;
	uint32_t pi = doorbell_read(q, ACCEL_DB_CQ_PI) & mask;
	uint32_t start = q->cq_ci;

	if (((pi - q->cq_ci) & mask) > (1u << q->log2size))
		return;		/* more than a full ring: not a device we can trust */
	while (q->cq_ci != pi) {
		uint32_t index = q->cq_ci & (mask >> 1);

		take_completion(q, q->cq + (size_t)index * ACCEL_CPL_WORDS);
		q->cq_ci = (q->cq_ci + 1) & mask;
	}
	if (q->cq_ci != start)
		doorbell_write(q, ACCEL_DB_CQ_CI, q->cq_ci);
}

static struct accel_slot *free_slot(struct accel_queue *q)
{
	const uint32_t entries = 1u << q->log2size;

	/* Usually the slot after the last one used is free. */
	for (uint32_t i = 0; i < entries; i++) {
		struct accel_slot *slot = &q->slots[(q->sq_pi + i) & (entries - 1)];

		if (slot->state == SLOT_FREE)
			return slot;
	}
	return NULL;
}

static int submit_locked(struct accel_queue *q, const struct accel_job *job, accel_handle_t *handle)
{
	const uint32_t mask = (2u << q->log2size) - 1;
	struct accel_slot *slot = free_slot(q);
	uint64_t desc[ACCEL_DESC_WORDS];
	uint32_t number;
	int ret;

	if (!slot) {
		drain(q);
		return -EAGAIN;
	}
	number = (uint32_t)(slot - q->slots) | (uint32_t)++q->generation << 16;
	ret = accel_encode(job, number, desc);
	if (ret)
		return ret;
	memcpy(q->sq + (size_t)(q->sq_pi & (mask >> 1)) * ACCEL_DESC_WORDS, desc, sizeof(desc));
	slot->state = SLOT_BUSY;
	slot->handle = number;
	q->in_flight++;
	q->sq_pi = (q->sq_pi + 1) & mask;
	doorbell_write(q, ACCEL_DB_SQ_PI, q->sq_pi);
	*handle = number;
	return 0;
}

int accel_submit(struct accel_queue *q, const struct accel_job *job, accel_handle_t *handle)
{
	int ret;

	if (!job || !handle)
		return -EINVAL;
	pthread_mutex_lock(&q->lock);
	ret = submit_locked(q, job, handle);
	pthread_mutex_unlock(&q->lock);
	return ret;
}

/* 1: *result filled and the slot free again, 0: still running, -EINVAL: unknown handle. */
static int fetch(struct accel_queue *q, accel_handle_t handle, struct accel_result *result)
{
	struct accel_slot *slot;
	int ret = 0;

	pthread_mutex_lock(&q->lock);
	slot = slot_of(q, handle);
	if (slot && slot->state == SLOT_BUSY)
		drain(q);
	if (!slot) {
		ret = -EINVAL;
	} else if (slot->state == SLOT_DONE) {
		ret = 1;
		if (result) {
			*result = slot->result;
			slot->state = SLOT_FREE;
		}
	}
	pthread_mutex_unlock(&q->lock);
	return ret;
}

int accel_done(struct accel_queue *q, accel_handle_t handle)
{
	return fetch(q, handle, NULL);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int accel_wait(struct accel_queue *q, accel_handle_t handle, int timeout_ms, struct accel_result *result)
{
	int64_t end = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
	struct accel_result ignored;
	bool error = false;

	for (;;) {
		struct pollfd pfd = { .fd = q->fd, .events = POLLIN };
		int ret = fetch(q, handle, result ? result : &ignored);
		int64_t left;

		if (ret)
			return ret < 0 ? ret : 0;
		/* POLLERR: the queue stopped.  What it had finished before was fetched above. */
		if (error)
			return -EIO;
		left = end - now_ms();
		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&pfd, 1, left < POLL_SLICE_MS ? (int)left : POLL_SLICE_MS) < 0 && errno != EINTR)
			return -errno;
		error = pfd.revents & (POLLERR | POLLHUP | POLLNVAL);
	}
}

int accel_run(struct accel_queue *q, const struct accel_job *job, int timeout_ms, struct accel_result *result)
{
	accel_handle_t handle;
	int ret = accel_submit(q, job, &handle);

	return ret ? ret : accel_wait(q, handle, timeout_ms, result);
}
