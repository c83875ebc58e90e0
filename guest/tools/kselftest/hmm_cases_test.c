// SPDX-License-Identifier: MIT
/*
 * Kinds of memory under the mirror: the rest of the case names of the kernel's
 * hmm selftest.  TAP output.
 */
#include "hmm_lab.h"

#define SIZE	   (PAGES * PAGE)
#define TRACE_RING "/sys/kernel/tracing/per_cpu/cpu0/trace_pipe_raw"

static int file_of(size_t size)
{
	char name[] = "/tmp/hmm_cases.XXXXXX";
	int fd = mkstemp(name);

	if (fd < 0 || ftruncate(fd, size))
		ksft_bail("file for a test");
	unlink(name);
	return fd;
}

static void test_multiple(void)
{
	char *at = place();
	bool right = true;

	for (int i = 0; i < 16 && right; i++) {
		uint64_t *p = mmap(at, SIZE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), crc;

		if (!i)
			grant_to(&lab, p, SIZE);
		right = device_crc(p, SIZE, &crc) && all(p, SIZE, 0) && device_writes(p, SIZE, i + 1) &&
			all(p, SIZE, i + 1);
		munmap(p, SIZE);
		right &= run(ACCEL_CRC32C, p, 8, 0, NULL) == ACCEL_ST_FAULT;
	}
	ksft_ok(right, "anon_read_multiple, anon_write_multiple: one address, 16 times mapped and unmapped");
}

static void test_child_shared(void)
{
	uint64_t *p = granted(SIZE, MAP_SHARED);
	int status, go[2];
	char byte;
	pid_t pid;

	numbers(p, SIZE);
	if (pipe(go))
		ksft_bail("pipe");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		close(go[1]);
		_exit(read(go[0], &byte, 1) == 1 && all(p, SIZE, 9) ? 0 : 1);
	}
	ksft_ok(device_writes(p, SIZE, 9), "anon_write_child_shared: the device writes");
	if (write(go[1], "x", 1) != 1)
		ksft_bail("pipe");
	waitpid(pid, &status, 0);
	ksft_ok(!status, "anon_write_child_shared: the child sees it");
	close(go[0]);
	close(go[1]);
}

/* Of four pages of hugetlb memory the device sees blocks */
static void test_hugetlb(void)
{
	uint64_t *p = granted(2 * HUGE, MAP_PRIVATE | MAP_HUGETLB), before, crc;
	long moved;

	numbers(p, 2 * HUGE);
	ksft_ok(snap(p) & ACCEL_SNAP_HUGE && snap((char *)p + 5 * PAGE) & ACCEL_SNAP_HUGE,
		"compound: every page of a large one says so");
	before = stats().blocks_mapped;
	ksft_ok(device_crc(p, 2 * HUGE, &crc) && stats().blocks_mapped == before + 2,
		"anon_write_hugetlbfs: two entries for two pages");
	ksft_ok(device_writes(p, 2 * HUGE, 4) && all(p, 2 * HUGE, 4), "anon_write_hugetlbfs");
	moved = accel_prefetch(lab.queue, p, 2 * HUGE);
	ksft_ok(moved <= 0 && !(snap(p) & ACCEL_SNAP_LOCAL) && all(p, 2 * HUGE, 4),
		"anon_write_hugetlbfs: does not migrate (%ld)", moved);
	ksft_ok(accel_exclusive(lab.queue, p, PAGE) == -EOPNOTSUPP, "anon_write_hugetlbfs: nor exclusive");
	munmap(p, 2 * HUGE);
	ksft_ok(run(ACCEL_CRC32C, p, 8, 0, NULL) == ACCEL_ST_FAULT, "anon_write_hugetlbfs: gone with its mapping");
}

static void test_files(void)
{
	int fd = file_of(SIZE);
	uint64_t *p = granted_file(SIZE, MAP_SHARED, fd), word, crc, again;

	numbers(p, SIZE);
	ksft_ok(device_crc(p, SIZE, &crc), "file_read");
	ksft_ok(device_writes(p, SIZE, 6) && pread(fd, &word, 8, 8 * PAGE) == 8 && word == 6,
		"file_write: the file holds it");
	ksft_ok(accel_prefetch(lab.queue, p, SIZE) == 0 && !(snap(p) & ACCEL_SNAP_LOCAL),
		"migrate_shared: pages of files stay");
	if (ftruncate(fd, PAGE))
		ksft_bail("truncate");
	ksft_ok(run(ACCEL_CRC32C, p + PAGE / 8, 8, 0, NULL) == ACCEL_ST_FAULT,
		"file_read: beyond the end of a file that was cut");
	ksft_ok(device_crc(p, PAGE, &again), "file_read: what is left of it");
	close(fd);
}

/* A private mapping of a file: what was written is the process's own and moves, the rest stays */
static void test_file_private(void)
{
	int fd = file_of(SIZE);
	uint64_t *p = granted_file(SIZE, MAP_PRIVATE, fd), word = 77;
	long moved;

	if (pwrite(fd, &word, 8, PAGE) != 8)
		ksft_bail("write");
	for (int i = 0; i < PAGES; i += 2)
		p[i * PAGE / 8] = i + 1;
	moved = accel_prefetch(lab.queue, p, SIZE);
	ksft_ok(moved == PAGES / 2, "migrate_file_private: %ld pages of the process's own", moved);
	ksft_ok(snap(p) & ACCEL_SNAP_LOCAL && !(snap((char *)p + PAGE) & ACCEL_SNAP_LOCAL),
		"migrate_file_private: the file's stay");
	ksft_ok(device_writes(p + PAGE / 8, 8, 78) && p[PAGE / 8] == 78 &&
		pread(fd, &word, 8, PAGE) == 8 && word == 77, "migrate_file_private: a write leaves the file alone");
	ksft_ok(p[0] == 1 && p[2 * PAGE / 8] == 3, "migrate_file_private: data right");
	close(fd);
}

static void test_shared(void)
{
	uint64_t *p = granted(SIZE, MAP_SHARED);

	numbers(p, SIZE);
	ksft_ok(accel_prefetch(lab.queue, p, SIZE) == 0 && !(snap(p) & ACCEL_SNAP_LOCAL) &&
		are_numbers(p, SIZE), "migrate_shared: shared memory stays");
}

/* One range with a hole, no access, read only, untouched, written, and on the device already */
static void test_mixed(void)
{
	char *p = private(8 * PAGE);
	uint8_t s[8];
	long moved;

	for (int i = 2; i < 8; i++)
		if (i != 5)
			*(uint64_t *)(p + i * PAGE) = i;
	munmap(p + PAGE, PAGE);
	mprotect(p + 2 * PAGE, PAGE, PROT_NONE);
	mprotect(p + 3 * PAGE, PAGE, PROT_READ);
	accel_prefetch(lab.queue, p + 6 * PAGE, PAGE);
	ksft_ok(accel_prefetch(lab.queue, p, 8 * PAGE) == -EFAULT, "migrate_mixed: a hole says so");
	moved = accel_prefetch(lab.queue, p + 2 * PAGE, 6 * PAGE);
	ksft_ok(accel_snapshot(lab.queue, p, 8 * PAGE, s) == 8, "snapshot: 8 pages");
	ksft_ok(s[1] == ACCEL_SNAP_NONE || s[1] == ACCEL_SNAP_ERROR, "snapshot: a hole (%#x)", s[1]);
	ksft_ok(!(s[2] & ACCEL_SNAP_WRITE), "snapshot: no access (%#x)", s[2]);
	ksft_ok(s[3] == (ACCEL_SNAP_READ | ACCEL_SNAP_LOCAL), "snapshot: read only, moved (%#x)", s[3]);
	for (int i = 4; i < 8; i++)
		ksft_ok(s[i] == (ACCEL_SNAP_READ | ACCEL_SNAP_WRITE | ACCEL_SNAP_LOCAL),
			"snapshot: page %d moved (%#x, %ld in all)", i, s[i], moved);
	ksft_ok(run(ACCEL_FILL, p + 3 * PAGE, 8, 1, NULL) == ACCEL_ST_FAULT,
		"migrate_mixed: on the device and still read only");
	mprotect(p + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE);
	for (int i = 2; i < 8; i++)
		ksft_ok(*(uint64_t *)(p + i * PAGE) == (i == 5 ? 0u : (unsigned int)i), "migrate_mixed: page %d", i);
}

/* Pages that a driver put there one by one, and addresses that are no memory */
static void test_mixedmap(void)
{
	int ring = open(TRACE_RING, O_RDONLY | O_NONBLOCK);
	char *p = mmap(place(), PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, ring, 0);
	void *bell = mmap(place(), PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, lab.fd, 0);
	uint64_t crc;

	if (ring < 0 || p == MAP_FAILED || bell == MAP_FAILED)
		ksft_bail("mappings of drivers");
	grant_to(&lab, p, PAGE);
	grant_to(&lab, bell, PAGE);
	ksft_ok(snap(p) == ACCEL_SNAP_READ, "mixedmap: snapshot (%#x)", snap(p));
	ksft_ok(device_crc(p, PAGE, &crc), "mixedmap: the device reads");
	ksft_ok(run(ACCEL_FILL, p, 8, 0, NULL) == ACCEL_ST_FAULT, "mixedmap: read only for the device as well");
	ksft_ok(accel_prefetch(lab.queue, p, PAGE) <= 0 && !(snap(p) & ACCEL_SNAP_LOCAL), "mixedmap: stays");
	ksft_ok(snap(bell) == ACCEL_SNAP_ERROR, "snapshot: registers are no memory (%#x)", snap(bell));
	ksft_ok(run(ACCEL_CRC32C, bell, 8, 0, NULL) == ACCEL_ST_FAULT, "registers: not for the device");
	close(ring);
	munmap(p, PAGE);
	munmap(bell, PAGE);
}

static void test_snapshot(void)
{
	char *p = private(2 * PAGE);
	uint8_t before = snap(p), after;
	uint64_t crc;

	ksft_ok(before == ACCEL_SNAP_NONE, "snapshot: never touched (%#x)", before);
	accel_advise(lab.queue, p, 2 * PAGE, ACCEL_ADVICE_PREFER_SYSTEM);
	device_crc(p, 8, &crc);
	after = snap(p);
	ksft_ok(after == (ACCEL_SNAP_READ | ACCEL_SNAP_ZERO), "snapshot: the zero page (%#x)", after);
	ksft_ok(accel_snapshot(lab.queue, p + 1, PAGE, &after) == -EINVAL, "snapshot: unaligned");
	ksft_ok(accel_snapshot(lab.queue, p, PAGE, NULL) == -EFAULT, "snapshot: nowhere to write");
	ksft_ok(accel_snapshot(lab.queue, p, PAGE, (uint8_t *)8) == -EFAULT, "snapshot: a bad place to write");
}

static void test_exclusive_cow(void)
{
	uint64_t *p = private(2 * PAGE);
	int status;
	pid_t pid;

	p[0] = p[PAGE / 8] = 1;
	ksft_ok(accel_exclusive(lab.queue, p, 2 * PAGE) == 2, "exclusive_cow: two pages");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		p[0]++;
		_exit(p[0] == 2 && p[PAGE / 8] == 1 ? 0 : 1);
	}
	ksft_ok(run(ACCEL_ATOMIC, p, 8, 10, NULL) == ACCEL_ST_OK && p[0] == 11, "exclusive_cow: parent's device");
	waitpid(pid, &status, 0);
	ksft_ok(!status && p[0] == 11, "exclusive_cow: the child has its own");
}

/* Reads of the device leave pages shared with a child shared: counted by what they cost */
static void test_read_keeps_shared(void)
{
	uint64_t *p = private(SIZE), crc, before;
	int status, go[2];
	bool wrote;
	char byte;
	pid_t pid;

	numbers(p, SIZE);
	if (pipe(go))
		ksft_bail("pipe");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		close(go[1]);
		_exit(read(go[0], &byte, 1) < 0);
	}
	accel_advise(lab.queue, p, SIZE, ACCEL_ADVICE_PREFER_SYSTEM);
	before = stats().cow_copied + stats().cow_migrated;
	ksft_ok(device_crc(p, SIZE, &crc) && snap(p) == ACCEL_SNAP_READ, "shared after fork: a read keeps it so");
	ksft_ok(stats().cow_copied + stats().cow_migrated == before, "shared after fork: nothing was copied");
	wrote = device_writes(p, PAGE, 1);
	ksft_ok(wrote && snap(p) == (ACCEL_SNAP_READ | ACCEL_SNAP_WRITE) &&
		snap((char *)p + PAGE) == ACCEL_SNAP_READ, "shared after fork: a write copies one page (%d, %#x, %#x)",
		wrote, snap(p), snap((char *)p + PAGE));
	close(go[0]);
	close(go[1]);
	waitpid(pid, &status, 0);
}

int main(void)
{
	struct accel_caps caps;

	lab_open(&lab, NULL, 0);
	if (accel_query(lab.queue, &caps))
		ksft_bail("query");
	if (!ksft_ok(lab.mode != ACCEL_HMM_MIRROR && caps.vram_size, "device memory"))
		return ksft_exit();
	test_multiple();
	test_child_shared();
	test_hugetlb();
	test_files();
	test_file_private();
	test_shared();
	test_mixed();
	test_mixedmap();
	test_snapshot();
	test_exclusive_cow();
	test_read_keeps_shared();
	lab_close(&lab);
	return ksft_exit();
}
