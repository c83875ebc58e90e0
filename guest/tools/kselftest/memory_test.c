// SPDX-License-Identifier: MIT
/*
 * The process's memory changes under the device: unmapped, replaced, dropped,
 * write-protected, copied by fork, moved, huge, shared with a file.  The device
 * must always see what the process sees, or be refused; never what was there
 * before.  TAP output.
 */
#define _GNU_SOURCE
#include <sys/wait.h>

#include <ummu_accel_lib.h>
#include <ummu_api.h>

#include "ksft.h"
#include "ummu_sys.h"

#define PAGE	   4096ul
#define HUGE	   (2ul << 20)
#define TIMEOUT_MS 20000

static struct accel_queue *queue;
static uint32_t tid;

static enum accel_status run(enum accel_op op, void *addr, uint64_t length, uint64_t pattern, uint64_t *result)
{
	struct accel_job j = { .op = op, .length = length, .dtype = ACCEL_TYPE_U64, .pattern = pattern };
	struct accel_operand o = { .addr = addr, .tid = tid };
	struct accel_result r = { .status = ACCEL_ST_NONE };

	if (op == ACCEL_FILL)
		j.dst = o;
	else
		j.src = o;
	if (accel_run(queue, &j, TIMEOUT_MS, &r))
		return ACCEL_ST_NONE;
	if (result)
		*result = r.result;
	return r.status;
}

/* The device's view of a word: an atomic that adds 0 returns it. */
static bool device_sees(uint64_t *at, uint64_t want)
{
	uint64_t got = ~want;

	return run(ACCEL_ATOMIC, at, 8, 0, &got) == ACCEL_ST_OK && got == want;
}

static bool device_writes(uint64_t *at, uint64_t value)
{
	return run(ACCEL_FILL, at, 8, value, NULL) == ACCEL_ST_OK;
}

static bool device_refused(uint64_t *at, enum accel_op op)
{
	return run(op, at, 8, 0, NULL) == ACCEL_ST_FAULT;
}

static uint64_t *map(void *at, size_t size, int flags, int fd)
{
	void *p = mmap(at, size, PROT_READ | PROT_WRITE, flags | (at ? MAP_FIXED : 0), fd, 0);

	if (p == MAP_FAILED)
		ksft_bail("mmap");
	return p;
}

static uint64_t *granted(size_t size)
{
	/* Each at an address of its own: a grant outlives what is mapped there. */
	static uintptr_t next = 0x600000000000;
	struct ummu_seg_attr seg = { .e_bit = UMMU_EBIT_OFF };
	uint64_t *p = map((void *)next, size, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	next += 8 * HUGE;
	if (ummu_grant(tid, p, size, MAPT_PERM_ATOMIC_RW, &seg))
		ksft_bail("grant");
	return p;
}

static void test_both_ways(void)
{
	uint64_t *p = granted(PAGE);

	ksft_ok(device_sees(p, 0), "a page never touched reads as zero");
	p[0] = 1;
	ksft_ok(device_sees(p, 1), "the device sees what the process wrote");
	ksft_ok(device_writes(p, 2) && p[0] == 2, "the process sees what the device wrote");
}

static void test_unmap(void)
{
	uint64_t *p = granted(PAGE);

	p[0] = 1;
	ksft_ok(device_sees(p, 1), "mapped");
	munmap(p, PAGE);
	ksft_ok(device_refused(p, ACCEL_CRC32C) && device_refused(p, ACCEL_FILL), "unmapped: refused");
	map(p, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	ksft_ok(device_sees(p, 0), "mapped anew: the new page");
	p[0] = 3;
	map(p, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	ksft_ok(device_sees(p, 0), "replaced in place: the new page");
	ksft_ok(device_writes(p, 4) && p[0] == 4, "and it is the process's");
}

static void test_dontneed(void)
{
	uint64_t *p = granted(4 * PAGE);

	for (int i = 0; i < 4; i++)
		p[i * 512] = 7;
	ksft_ok(device_sees(p + 512, 7), "before MADV_DONTNEED");
	madvise(p, 4 * PAGE, MADV_DONTNEED);
	ksft_ok(device_sees(p + 512, 0) && device_sees(p, 0), "after MADV_DONTNEED: zero");
}

static void test_protect(void)
{
	uint64_t *p = granted(PAGE);

	p[0] = 5;
	ksft_ok(device_writes(p, 6), "writable");
	mprotect(p, PAGE, PROT_READ);
	ksft_ok(device_refused(p, ACCEL_FILL), "write-protected: a write is refused");
	ksft_ok(run(ACCEL_CRC32C, p, 8, 0, NULL) == ACCEL_ST_OK && p[0] == 6, "a read is not");
	mprotect(p, PAGE, PROT_NONE);
	ksft_ok(device_refused(p, ACCEL_CRC32C), "no access: a read is refused");
	mprotect(p, PAGE, PROT_READ | PROT_WRITE);
	ksft_ok(device_writes(p, 8) && p[0] == 8, "writable again");
}

static void test_fork(void)
{
	uint64_t *p = granted(PAGE);
	int go[2], status;
	char byte;
	pid_t pid;

	p[0] = 10;
	ksft_ok(device_sees(p, 10), "before fork");
	if (pipe(go))
		ksft_bail("pipe");
	pid = fork();
	if (!pid) {
		close(go[1]);
		_exit(read(go[0], &byte, 1) == 0 && p[0] == 10 ? 0 : 1);
	}
	close(go[0]);
	ksft_ok(device_writes(p, 11) && p[0] == 11, "after fork a write of the device is the parent's");
	p[0] = 12;
	ksft_ok(device_sees(p, 12), "and it follows the parent's copy");
	close(go[1]);
	waitpid(pid, &status, 0);
	ksft_ok(WIFEXITED(status) && !WEXITSTATUS(status), "the child has the value of the fork");
	ksft_ok(device_sees(p, 12), "after the child's end");
}

static void test_move(void)
{
	uint64_t *p = granted(PAGE), *q;

	p[0] = 20;
	ksft_ok(device_sees(p, 20), "before mremap");
	q = mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map(NULL, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
	ksft_ok(q != MAP_FAILED && q[0] == 20, "moved");
	ksft_ok(device_refused(p, ACCEL_CRC32C), "the old place is refused");
	ksft_ok(device_refused(q, ACCEL_CRC32C), "the new one was never granted");
}

static void test_huge(void)
{
	uint64_t *p = granted(2 * HUGE), *at = (uint64_t *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));

	madvise(at, HUGE, MADV_HUGEPAGE);
	memset(at, 0x33, HUGE);
	ksft_ok(run(ACCEL_FILL, at, HUGE, 0x4444444444444444ull, NULL) == ACCEL_ST_OK, "a whole huge page is filled");
	ksft_ok(at[0] == 0x4444444444444444ull && at[HUGE / 8 - 1] == at[0], "and the process sees it");
	munmap((char *)at + PAGE, PAGE);
	ksft_ok(device_refused(at + 512, ACCEL_CRC32C) && device_writes(at, 1), "a hole in it is refused, the rest is not");
}

static void test_file(void)
{
	int fd = memfd_create("shared", 0);
	uint64_t *p = granted(PAGE), word = 0;

	if (fd < 0 || ftruncate(fd, PAGE))
		ksft_bail("memfd");
	map(p, PAGE, MAP_SHARED, fd);
	ksft_ok(pwrite(fd, "\1\0\0\0\0\0\0\0", 8, 0) == 8 && device_sees(p, 1), "a shared file: the device reads it");
	ksft_ok(device_writes(p, 77) && pread(fd, &word, 8, 0) == 8 && word == 77, "and writes it");
	ksft_ok(!ftruncate(fd, 0) && device_refused(p, ACCEL_CRC32C), "truncated: refused");
	close(fd);
}

int main(void)
{
	struct ummu_tid_attr attr = { .mode = MAPT_MODE_TABLE };

	if (accel_open(NULL, 0, &queue) || ummu_allocate_tid(&attr, &tid) || accel_bind_tid(queue, tid))
		ksft_bail("set-up");
	test_both_ways();
	test_unmap();
	test_dontneed();
	test_protect();
	test_fork();
	test_move();
	test_huge();
	test_file();
	accel_close(queue);
	ksft_ret(ummu_free_tid(tid), 0, "the TID is given back");
	return ksft_exit();
}
