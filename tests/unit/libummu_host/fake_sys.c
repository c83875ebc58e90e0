// SPDX-License-Identifier: MIT
/*
 * A stand-in for /dev/ummu/tid: takes the place of libummu's sys.c, keeps blocks and queues in
 * memory of this process, records every call, and fails where it is told to.  Driven through ctypes
 * from tests/unit/libummu_host/host.py, which has the same structures.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ummu_api.h>

#include "sys.h"

#define TIDS	  64
#define BLOCKS	  512
#define CALLS_MAX 65536
#define PAGE	  4096u

enum call_kind { CALL_OPEN, CALL_CLOSE, CALL_IOCTL, CALL_MAP, CALL_UNMAP, CALL_ALLOC, CALL_RANDOM, CALL_QUEUE };

struct call {
	uint32_t kind, what;	/* ioctl number, or opcode of a queue command */
	uint32_t tid;
	int32_t result;
	uint64_t a, b;		/* va and size, or length and offset */
};

struct fake {
	/* set by the test */
	uint64_t hw_cap, block_bytes;
	uint32_t ummu_cnt, next_tid, same_tid, page_shift;
	uint8_t pcmdq_order, pcplq_order, node_missing, queues_dead, queues_fail;
	int32_t fail_kind, fail_after, fail_errno;	/* the fail_after-th call of this kind fails */
	/* read by the test */
	int64_t allocations;				/* alive */
	int32_t open_fds;
	uint32_t calls;
	struct call call[CALLS_MAX];
};

struct fake fake = {
	.hw_cap = HW_CAP_EXPAN | HW_CAP_KCMD_PLBI,
	.block_bytes = 0x10000,
	.ummu_cnt = 1,
	.next_tid = 0x100,
	.page_shift = 12,
	.fail_after = -1,
};

static struct {
	uint32_t tid;
	enum ummu_mapt_mode mode;
	void *block[BLOCKS];
	char *queues;
	size_t queue_bytes;
} tids[TIDS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int device_stop;

static struct call *record(uint32_t kind)
{
	struct call *c = &fake.call[fake.calls % CALLS_MAX];

	fake.calls++;
	memset(c, 0, sizeof(*c));
	c->kind = kind;
	return c;
}

static int fails(uint32_t kind)
{
	if (fake.fail_after < 0 || fake.fail_kind != (int32_t)kind || fake.fail_after-- != 0)
		return 0;
	errno = fake.fail_errno;
	return 1;
}

static int slot_of(uint32_t tid)
{
	for (int i = 0; i < TIDS; i++)
		if (tids[i].tid == tid && tid)
			return i;
	return -1;
}

/* ---- allocation, counted (the library is linked with --wrap=free) ---------------------- */

void __real_free(void *p);
void __wrap_free(void *p);

void __wrap_free(void *p)
{
	if (p)
		__atomic_sub_fetch(&fake.allocations, 1, __ATOMIC_SEQ_CST);
	__real_free(p);
}

static void *fake_alloc(size_t count, size_t size)
{
	void *p;

	pthread_mutex_lock(&lock);
	p = fails(CALL_ALLOC) ? NULL : calloc(count, size);
	pthread_mutex_unlock(&lock);
	if (p)
		__atomic_add_fetch(&fake.allocations, 1, __ATOMIC_SEQ_CST);
	return p;
}

/* ---- the node -------------------------------------------------------------------------- */

static int fake_open(void)
{
	record(CALL_OPEN);
	if (fake.node_missing || fails(CALL_OPEN))
		return -1;
	fake.open_fds++;
	return dup(0);
}

/* One line a call, for what happens after the last line of a program. */
static void write_trace(void)
{
	const char *name = getenv("FAKE_TRACE");
	FILE *file = name ? fopen(name, "w") : NULL;

	if (!file)
		return;
	for (uint32_t i = 0; i < fake.calls && i < CALLS_MAX; i++)
		fprintf(file, "%u %u %u\n", fake.call[i].kind, fake.call[i].what, fake.call[i].tid);
	fclose(file);
}

static void fake_close(int fd)
{
	record(CALL_CLOSE);
	fake.open_fds--;
	close(fd);
	write_trace();
}

static int alloc_tid(struct ummu_tid_info *info)
{
	int i;

	for (i = 0; i < TIDS && tids[i].tid; i++)
		;
	if (i == TIDS || info->mode >= MAPT_MODE_END || info->dev != ~0ul)
		return -1;
	memset(&tids[i], 0, sizeof(tids[i]));
	tids[i].tid = fake.same_tid ? fake.same_tid : fake.next_tid++;
	tids[i].mode = info->mode;
	info->tid = tids[i].tid;
	info->blk_exp_size = fake.block_bytes;
	info->hw_cap = fake.hw_cap;
	info->ummu_cnt = fake.ummu_cnt;
	info->pcmdq_order = fake.pcmdq_order;
	info->pcplq_order = fake.pcplq_order;
	return 0;
}

static int free_tid(uint32_t tid)
{
	int i = slot_of(tid);

	if (i < 0)
		return -1;
	for (int b = 0; b < BLOCKS; b++) {
		if (tids[i].block[b] || tids[i].queues) {
			errno = EBUSY;
			return -1;
		}
	}
	tids[i].tid = 0;
	return 0;
}

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	struct ummu_tid_info *info = arg;
	struct call *c;
	int ret = 0;

	(void)fd;
	pthread_mutex_lock(&lock);
	c = record(CALL_IOCTL);
	errno = EINVAL;
	if (fails(CALL_IOCTL))
		ret = -1;
	else if (request == UMMU_IOCALLOC_TID)
		ret = alloc_tid(info);
	else if (request == UMMU_IOCFREE_TID)
		ret = free_tid(info->tid);
	else if (slot_of(info->tid) < 0)
		ret = -1;
	c->what = (uint32_t)request;
	c->tid = info->tid;
	c->a = info->va;
	c->b = info->size;
	c->result = ret;
	pthread_mutex_unlock(&lock);
	return ret;
}

static void *map_block(int i, uint32_t index, size_t size)
{
	size_t want = tids[i].mode == MAPT_MODE_TABLE ? fake.block_bytes : PAGE;

	if (size != want || (index && (tids[i].mode != MAPT_MODE_TABLE || !(fake.hw_cap & HW_CAP_EXPAN))))
		return NULL;
	if (tids[i].block[index])	/* the same ID twice: memory that nobody looks at */
		return fake.same_tid ? mmap(NULL, size, PROT_READ | PROT_WRITE,
					    MAP_SHARED | MAP_ANONYMOUS, -1, 0) : NULL;
	tids[i].block[index] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return tids[i].block[index];
}

static void *map_queues(int i, size_t size)
{
	size_t one = ((size_t)PAGE << fake.pcmdq_order) + ((size_t)PAGE << fake.pcplq_order) + PAGE;

	if (size != one * fake.ummu_cnt || tids[i].queues)
		return NULL;
	tids[i].queue_bytes = size;
	tids[i].queues = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return tids[i].queues;
}

static void *fake_map(int fd, size_t size, uint64_t offset)
{
	uint64_t page = offset >> fake.page_shift;
	struct call *c;
	void *p = NULL;
	int i;

	(void)fd;
	pthread_mutex_lock(&lock);
	c = record(CALL_MAP);
	c->a = size;
	c->b = offset;
	c->tid = (uint32_t)((page & 3) == MMAP_TYPE_BLOCK ? page >> 12 : page >> 2);
	i = slot_of(c->tid);
	errno = ENOMEM;
	if (i >= 0 && !fails(CALL_MAP)) {
		if ((page & 3) == MMAP_TYPE_BLOCK)
			p = map_block(i, page >> 2 & 1023, size);
		else if ((page & 3) == MMAP_TYPE_MUTIQ)
			p = map_queues(i, size);
	}
	c->result = p ? 0 : -1;
	pthread_mutex_unlock(&lock);
	return p;
}

static void fake_unmap(void *addr, size_t size)
{
	struct call *c;

	pthread_mutex_lock(&lock);
	c = record(CALL_UNMAP);
	c->a = size;
	c->result = -1;
	for (int i = 0; i < TIDS; i++) {
		if (tids[i].queues == addr && size == tids[i].queue_bytes) {
			tids[i].queues = NULL;
			c->result = 0;
		}
		for (int b = 0; b < BLOCKS; b++) {
			if (tids[i].block[b] == addr) {
				tids[i].block[b] = NULL;
				c->b = (uint64_t)b;
				c->tid = tids[i].tid;
				c->result = 0;
			}
		}
	}
	munmap(addr, size);
	pthread_mutex_unlock(&lock);
}

static bool fake_random(void *buf, size_t size)
{
	static uint32_t state = 1;

	record(CALL_RANDOM);
	if (fails(CALL_RANDOM))
		return false;
	for (size_t i = 0; i < size; i++) {
		state = state * 1664525u + 1013904223u;
		((uint8_t *)buf)[i] = (uint8_t)(state >> 24);
	}
	return true;
}

/* ---- the device's side of the user queues ---------------------------------------------- */

static void serve(int i, char *at)
{
	uint32_t (*ring)[4] = (void *)at;
	uint32_t *cpl = (void *)(at + (PAGE << fake.pcmdq_order));
	volatile uint16_t *page = (void *)(at + (PAGE << fake.pcmdq_order) + (PAGE << fake.pcplq_order));
	uint16_t sq = (uint16_t)((PAGE << fake.pcmdq_order) / 16), cq = (uint16_t)((PAGE << fake.pcplq_order) / 4);
	uint16_t pi = page[0] & (2 * sq - 1), ci = page[2] & (2 * sq - 1), cpi = page[4];

	__sync_synchronize();
	while (ci != pi) {
		const uint32_t *cmd = ring[ci & (sq - 1)];
		struct call *c = record(CALL_QUEUE);

		c->what = cmd[0] & 0xff;
		c->tid = tids[i].tid;
		c->a = cmd[2] | (uint64_t)cmd[3] << 32;
		c->b = cmd[1];
		if (cmd[0] & 0x100) {
			uint32_t status = fake.queues_fail ? 3 : 1;

			/* A completion names the index of its command, with the wrap bit. */
			cpl[cpi & (cq - 1)] = status | (uint32_t)ci << 16;
			cpi = (cpi + 1) & (uint16_t)(2 * cq - 1);
			__sync_synchronize();
			page[4] = cpi;
		}
		ci = (ci + 1) & (uint16_t)(2 * sq - 1);
		page[2] = ci;
	}
}

static void *device(void *arg)
{
	(void)arg;
	while (!device_stop) {
		pthread_mutex_lock(&lock);
		for (int i = 0; i < TIDS && !fake.queues_dead; i++)
			for (uint32_t u = 0; tids[i].queues && u < fake.ummu_cnt; u++)
				serve(i, tids[i].queues + u * (tids[i].queue_bytes / fake.ummu_cnt));
		pthread_mutex_unlock(&lock);
		usleep(20);
	}
	return NULL;
}

static pthread_t device_thread;

void fake_device_start(void);
void fake_device_stop(void);
void *fake_block(uint32_t tid, uint32_t index);
void *fake_queue(uint32_t tid);
uint32_t fake_tids_alive(void);

void fake_device_start(void)
{
	device_stop = 0;
	pthread_create(&device_thread, NULL, device, NULL);
}

void fake_device_stop(void)
{
	device_stop = 1;
	pthread_join(device_thread, NULL);
}

void *fake_block(uint32_t tid, uint32_t index)
{
	int i = slot_of(tid);

	return i < 0 || index >= BLOCKS ? NULL : tids[i].block[index];
}

void *fake_queue(uint32_t tid)
{
	int i = slot_of(tid);

	return i < 0 ? NULL : tids[i].queues;
}

uint32_t fake_tids_alive(void)
{
	uint32_t n = 0;

	for (int i = 0; i < TIDS; i++)
		n += tids[i].tid != 0;
	return n;
}

static void fake_init(void)
{
	if (getenv("FAKE_NODE_MISSING"))
		fake.node_missing = 1;
	ummu_sys.page_shift = fake.page_shift;
}

struct ummu_sys_ops ummu_sys = {
	.open = fake_open,
	.close = fake_close,
	.ioctl = fake_ioctl,
	.map = fake_map,
	.unmap = fake_unmap,
	.random = fake_random,
	.alloc = fake_alloc,
	.page_shift = 12,
	.init = fake_init,
};
