/* SPDX-License-Identifier: MIT */
/*
 * libummuaccel: jobs for the ummulab accelerator.
 *
 * A queue belongs to one open of /dev/ummu_accel<N>.  Its rings are memory of
 * the process, granted to a TID of the queue's own.  Jobs name operands by
 * {virtual address, TID, token}; a TID must be bound to the queue first.
 *
 * All functions are thread-safe.  They return 0 or a positive count on success
 * and -errno on failure; none of them prints.
 */
#ifndef UMMU_ACCEL_LIB_H
#define UMMU_ACCEL_LIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct accel_queue;

enum accel_op {
	ACCEL_NOP = 0,
	ACCEL_COPY = 1,
	ACCEL_FILL = 2,
	ACCEL_COMPARE = 3,
	ACCEL_CRC32C = 4,
	ACCEL_ADD = 5,
	ACCEL_GEMM = 6,
	ACCEL_GATHER = 7,
	ACCEL_ATOMIC = 8,
	ACCEL_FENCE = 9,
};

enum accel_dtype {
	ACCEL_TYPE_NONE = 0,
	ACCEL_TYPE_I32 = 1,
	ACCEL_TYPE_F32 = 2,
	ACCEL_TYPE_BF16 = 3,
	ACCEL_TYPE_U32 = 4,
	ACCEL_TYPE_U64 = 5,
};

enum accel_atomic {
	ACCEL_FETCH_ADD = 0,
	ACCEL_CAS = 1,
	ACCEL_SWAP = 2,
	ACCEL_FETCH_AND = 3,
	ACCEL_FETCH_OR = 4,
	ACCEL_FETCH_XOR = 5,
};

enum accel_status {
	ACCEL_ST_NONE = 0,	/* not finished */
	ACCEL_ST_OK = 1,
	ACCEL_ST_FAULT = 2,	/* refused by the UMMU: event, fault_addr, operand */
	ACCEL_ST_BAD_OP = 3,
	ACCEL_ST_BAD_DESC = 4,
	ACCEL_ST_NOT_BOUND = 5,
	ACCEL_ST_BUS_ERROR = 6,
	ACCEL_ST_ABORTED = 7,
	ACCEL_ST_TIMEOUT = 8,
};

/* One operand of a job. */
struct accel_operand {
	const void *addr;
	uint32_t tid;
	bool has_token;
	uint32_t token;
	bool wire;		/* present E_bit = 0, as a request from the wire */
};

/* A job; fields that an operation does not use are ignored. */
struct accel_job {
	enum accel_op op;
	bool fence_before;	/* start only when all earlier jobs have ended */
	enum accel_dtype dtype;	/* ADD, GEMM (of A and B), GATHER, ATOMIC */
	enum accel_atomic atomic;
	uint64_t length;	/* bytes; GATHER: elements */
	uint32_t m, n, k;	/* GEMM: C[m][n] = A[m][k] * B[k][n] */
	uint64_t pattern;	/* FILL */
	uint64_t value;		/* ATOMIC */
	uint64_t compare;	/* ATOMIC cas */
	struct accel_operand src;	/* operand 0; ATOMIC: the target */
	struct accel_operand dst;	/* operand 1; GEMM: B; GATHER: index list */
	struct accel_operand out;	/* operand 2; GEMM, GATHER */
};

/* How a job ended. */
struct accel_result {
	enum accel_status status;
	uint8_t event;		/* UMMU event code of a refusal, 0: none was recorded */
	uint8_t operand;	/* number of the operand refused, 15: none */
	uint64_t fault_addr;	/* first address refused */
	uint64_t bytes_done;	/* finished before the end (GATHER: elements) */
	uint64_t result;	/* CRC32C, COMPARE: first difference, ATOMIC: old value */
};

struct accel_caps {
	uint32_t version, queues, max_log2size, max_tids, ops;
	uint64_t vram_size;
	uint64_t jobs_done, bytes_read, bytes_written;	/* of the device, all queues */
};

/* Names a job that was submitted; valid until accel_wait() returned its result. */
typedef uint32_t accel_handle_t;

/*
 * Open a queue of 2^log2size jobs (0: 64 jobs) on a device (NULL: the first).
 * -ENODEV: no device or driver; -EINVAL: size; -EBUSY: all queues in use.
 */
int accel_open(const char *device, unsigned int log2size, struct accel_queue **queue);

/* End the queue; running jobs are aborted, handles become invalid.  NULL is allowed. */
void accel_close(struct accel_queue *queue);

/* What the device is and how much it has done. */
int accel_query(struct accel_queue *queue, struct accel_caps *caps);

/* Allow (forbid) jobs of this queue to name a TID of this process. */
int accel_bind_tid(struct accel_queue *queue, uint32_t tid);
int accel_unbind_tid(struct accel_queue *queue, uint32_t tid);

/* Hand over a job.  -EAGAIN: the queue is full, wait for a job first; -EIO: queue in error. */
int accel_submit(struct accel_queue *queue, const struct accel_job *job, accel_handle_t *handle);

/*
 * Wait for one job, at most timeout_ms (-1: no limit).  -ETIMEDOUT: it still
 * runs, the handle stays valid; -EINVAL: no such handle; -EIO: queue in error.
 */
int accel_wait(struct accel_queue *queue, accel_handle_t handle, int timeout_ms,
	       struct accel_result *result);

/* 1: done (accel_wait will not block), 0: not yet, -EINVAL: no such handle. */
int accel_done(struct accel_queue *queue, accel_handle_t handle);

/* accel_submit() and accel_wait() in one. */
int accel_run(struct accel_queue *queue, const struct accel_job *job, int timeout_ms,
	      struct accel_result *result);

/* An eventfd that is signalled when jobs end; made at the first call, owned by the queue. */
int accel_eventfd(struct accel_queue *queue);

/* The descriptor to poll(): POLLIN while completions wait to be taken. */
int accel_fd(const struct accel_queue *queue);

/* Plain words. */
const char *accel_strstatus(enum accel_status status);
const char *accel_strevent(uint8_t event);
const char *accel_event_name(uint8_t event);
/* A sentence about a result; returns buf. */
char *accel_describe(const struct accel_result *result, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* UMMU_ACCEL_LIB_H */
