// SPDX-License-Identifier: MIT
/*
 * Invalidation of what the device cached of a permission table.
 *
 * Two ways: an ioctl, or the process's own command queue at each UMMU.  When a
 * queue does not answer in time we do not go on as if it had: the ioctl is the
 * fall-back, so that a range is closed when ummu_ungrant() returns.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "arch.h"
#include "internal.h"
#include "log.h"
#include "sys.h"

#define UCMD_INVALIDATE_NODE 0x12
#define QUEUE_TRIES	     2000	/* of 0..100 us: at most about 0.2 s */
#define QUEUE_SLEEP_MAX_NS   100000

/* Offsets in the control page, in 16-bit units. */
enum { UCMDQ_PI = 0x0 / 2, UCMDQ_CI = 0x4 / 2, UCPLQ_PI = 0x8 / 2, UCPLQ_CI = 0xc / 2 };

static void plbi_ioctl(struct tid *t, unsigned long request, uint64_t va, uint64_t size)
{
	struct ummu_tid_info info;

	memset(&info, 0, sizeof(info));
	info.tid = t->tid;
	info.va = va;
	info.size = size;
	if (ummu_sys.ioctl(ummu_device_fd(), request, &info) < 0)
		log_error("tid 0x%x: invalidation by ioctl failed: %s", t->tid, strerror(errno));
}

static void pause_try(unsigned int attempt)
{
	long ns = attempt * 1000L;
	struct timespec ts = { .tv_nsec = ns < QUEUE_SLEEP_MAX_NS ? ns : QUEUE_SLEEP_MAX_NS };

	if (attempt)
		nanosleep(&ts, NULL);
}

static bool wait_for_room(const struct tid *t, const struct queue *q, uint16_t need)
{
	const uint16_t mask = (uint16_t)((2u << t->ucmd_log2) - 1);

	for (unsigned int i = 0; i < QUEUE_TRIES; i++) {
		uint16_t used = (uint16_t)(q->page[UCMDQ_PI] - q->page[UCMDQ_CI]) & mask;

		if (used <= (1u << t->ucmd_log2) - need)
			return true;
		pause_try(i);
	}
	return false;
}

static void post(const struct tid *t, const struct queue *q, uint16_t *pi, const uint32_t cmd[UCMD_WORDS])
{
	const uint16_t entries = (uint16_t)(1u << t->ucmd_log2);

	memcpy(q->ucmd[*pi & (entries - 1)], cmd, UCMD_SIZE);
	*pi = (uint16_t)(*pi + 1) & (uint16_t)(2 * entries - 1);
}

/* Consume completions until one names our PSYNC; 1 found, -1 with an error status, 0 not yet. */
static int take_completions(const struct tid *t, const struct queue *q, uint16_t psync)
{
	const uint16_t mask = (uint16_t)((2u << t->ucpl_log2) - 1);
	uint16_t pi = q->page[UCPLQ_PI] & mask, ci = q->page[UCPLQ_CI] & mask, start = ci;
	int found = 0;

	device_rmb();
	while (ci != pi && !found) {
		uint32_t cpl = ((volatile uint32_t *)q->ucpl)[ci & (mask >> 1)];

		ci = (ci + 1) & mask;
		if (GET(UCPL_W0_CMDQ_CI, cpl) == psync)
			found = GET(UCPL_W0_STATUS, cpl) == LAYOUT_UCPL_STATUS_SUCCESS ? 1 : -1;
	}
	if (ci != start)
		q->page[UCPLQ_CI] = ci;
	return found;
}

static bool queue_command(struct tid *t, const struct queue *q, const uint32_t cmd[UCMD_WORDS])
{
	const uint32_t psync[UCMD_WORDS] = { UCMD_PSYNC | UCMD_W0_CQE_EN_MASK };
	const unsigned int rounds = t->hw_cap & HW_CAP_DOUBLE_PLBI ? 2 : 1;
	uint16_t pi = q->page[UCMDQ_PI], last = 0;

	if (!wait_for_room(t, q, (uint16_t)(2 * rounds)))
		return false;
	for (unsigned int i = 0; i < rounds; i++) {
		post(t, q, &pi, cmd);
		last = pi;
		post(t, q, &pi, psync);
	}
	device_wmb();
	q->page[UCMDQ_PI] = pi;
	for (unsigned int i = 0; i < QUEUE_TRIES; i++) {
		int found = take_completions(t, q, last);

		if (found)
			return found > 0;
		pause_try(i);
	}
	return false;
}

/* The same command at every UMMU; false: at least one did not confirm it. */
static bool queue_all(struct tid *t, const uint32_t cmd[UCMD_WORDS])
{
	bool ok = true;

	for (uint32_t i = 0; i < t->ummu_cnt; i++)
		ok &= queue_command(t, &t->queues[i], cmd);
	if (!ok)
		log_warning("tid 0x%x: a user queue did not confirm an invalidation, using the ioctl", t->tid);
	return ok;
}

/* Smallest n with 2^n >= size. */
static uint32_t log2_up(uint64_t size)
{
	return size <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(size - 1);
}

void plbi_defer(struct tid *t)
{
	t->plbi_deferred = true;
}

void plbi_flush(struct tid *t)
{
	if (t->plbi_pending)
		plbi_all(t);
	t->plbi_pending = false;
	t->plbi_deferred = false;
}

void plbi_range(struct tid *t, uint64_t first, uint64_t size)
{
	if (t->plbi_deferred) {
		t->plbi_pending = true;
		return;
	}
	if (t->queue_map) {
		uint32_t cmd[UCMD_WORDS] = {
			UCMD_PLBI_USR_VA,
			FIELD(UCMD_W1_RANGE, log2_up(size)),
			(uint32_t)first,
			(uint32_t)(first >> 32),
		};

		if (queue_all(t, cmd))
			return;
	}
	plbi_ioctl(t, UMMU_IOCPLBI_VA, first, size);
}

void plbi_node(struct tid *t, uint64_t span_start, uint32_t table)
{
	if (!t->plbi_deferred && t->queue_map && t->hw_cap & HW_CAP_FREE_BIT) {
		const uint32_t per_block = t->blocks.per_block;
		uint32_t cmd[UCMD_WORDS] = {
			UCMD_INVALIDATE_NODE, 0, table / per_block, table % per_block * NODES_PER_TABLE,
		};

		if (queue_all(t, cmd))
			return;
	}
	plbi_range(t, span_start, GRANT_ALIGN);
}

void plbi_all(struct tid *t)
{
	uint32_t cmd[UCMD_WORDS] = { UCMD_PLBI_USR_ALL };

	if (!t->queue_map || !queue_all(t, cmd))
		plbi_ioctl(t, UMMU_IOCPLBI_ALL, 0, 0);
}

/* ---- the queues themselves ------------------------------------------------------- */

int queues_map(struct tid *t, const struct ummu_tid_info *info)
{
	const unsigned int shift = ummu_sys.page_shift;
	const size_t page = (size_t)1 << shift;
	const size_t ucmd = page << info->pcmdq_order, ucpl = page << info->pcplq_order;
	const size_t one = ucmd + ucpl + page;
	char *at;

	/* Indices are 16 bits with the wrap bit: exponents up to 15. */
	if (!info->ummu_cnt || info->ummu_cnt > 64 || info->pcmdq_order + shift - 4 > 15 ||
	    info->pcplq_order + shift - 2 > 15)
		return -ENOMEM;
	t->queues = ummu_sys.alloc(info->ummu_cnt, sizeof(*t->queues));
	if (!t->queues)
		return -ENOMEM;
	t->ucmd_log2 = (uint8_t)(info->pcmdq_order + shift - 4);
	t->ucpl_log2 = (uint8_t)(info->pcplq_order + shift - 2);
	t->queue_bytes = one * info->ummu_cnt;
	t->queue_map = ummu_sys.map(ummu_device_fd(), t->queue_bytes,
				    (((uint64_t)t->tid << 2) | MMAP_TYPE_MUTIQ) << shift);
	if (!t->queue_map)
		return -ENOMEM;
	t->ummu_cnt = info->ummu_cnt;
	at = t->queue_map;
	for (uint32_t i = 0; i < t->ummu_cnt; i++, at += one)
		t->queues[i] = (struct queue){
			.ucmd = (uint32_t (*)[UCMD_WORDS])(void *)at,
			.ucpl = (uint32_t *)(void *)(at + ucmd),
			.page = (volatile uint16_t *)(void *)(at + ucmd + ucpl),
		};
	return 0;
}

void queues_unmap(struct tid *t)
{
	if (t->queue_map)
		ummu_sys.unmap(t->queue_map, t->queue_bytes);
	t->queue_map = NULL;
}
