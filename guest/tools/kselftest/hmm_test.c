// SPDX-License-Identifier: MIT
/*
 * Memory management of the accelerator: mirror, faults, migration, exclusive
 * access.  The cases carry the names of the kernel's own hmm selftest where it
 * has them.  TAP output.
 */

#include "hmm_lab.h"

#include <pthread.h>
#include <sys/uio.h>

/* Raw calls, for what the library would not pass on */
static int enable(int fd, uint32_t which, uint32_t flags, uint32_t *got)
{
	struct accel_hmm_enable e = { .size = sizeof(e), .flags = flags, .tid = which };
	int ret = ioctl(fd, ACCEL_IOC_HMM_ENABLE, &e);

	if (got)
		*got = e.mode;
	return ret;
}

static int range(int fd, uint32_t op, void *addr, size_t length, uint32_t arg, uint64_t *pages)
{
	struct accel_hmm_range r = { .size = sizeof(r), .op = op, .addr = (uintptr_t)addr,
				     .length = length, .arg = arg };
	int ret = ioctl(fd, ACCEL_IOC_HMM_RANGE, &r);

	if (pages)
		*pages = r.pages;
	return ret;
}

/* ---------------------------------------------------------------- life and bad input */

static void test_open_close(uint32_t other_tid)
{
	struct accel_hmm_enable e = { .size = 4, .tid = lab.tid };
	int fd = open("/dev/ummu_accel0", O_RDWR);

	ksft_ret(range(fd, ACCEL_HMM_EVICT, (void *)PAGE, PAGE, 0, NULL), -ENOENT, "range without mirror");
	ksft_ret(ioctl(fd, ACCEL_IOC_HMM_DISABLE), -ENOENT, "disable without mirror");
	ksft_ret(ioctl(fd, ACCEL_IOC_HMM_ENABLE, &e), -EINVAL, "enable with a wrong size");
	ksft_ret(enable(fd, lab.tid, 1u << 7, NULL), -EINVAL, "enable with an unknown flag");
	ksft_ret(enable(fd, 0xfffff, 0, NULL), -EINVAL, "enable for a TID of nobody");
	ksft_ret(enable(fd, lab.tid, 0, NULL), -EBUSY, "enable for a TID that has a mirror");
	ksft_ret(enable(fd, other_tid, 0, NULL), 0, "open_close: enable");
	ksft_ret(enable(fd, other_tid, 0, NULL), -EBUSY, "a file owns one mirror");
	ksft_ret(ioctl(fd, ACCEL_IOC_HMM_DISABLE), 0, "open_close: disable");
	ksft_ret(enable(fd, other_tid, 0, NULL), 0, "open_close: enable again");
	ksft_ret(close(fd), 0, "open_close: close");
}

static void test_bad_ranges(void)
{
	char *p = private(2 * PAGE);

	ksft_ret(range(lab.fd, ACCEL_HMM_EVICT, p + 8, PAGE, 0, NULL), -EINVAL, "unaligned address");
	ksft_ret(range(lab.fd, ACCEL_HMM_EVICT, p, PAGE - 8, 0, NULL), -EINVAL, "unaligned length");
	ksft_ret(range(lab.fd, ACCEL_HMM_EVICT, p, 0, 0, NULL), -EINVAL, "no length");
	ksft_ret(range(lab.fd, 99, p, PAGE, 0, NULL), -EINVAL, "unknown operation");
	ksft_ret(range(lab.fd, ACCEL_HMM_ADVISE, p, PAGE, 99, NULL), -EINVAL, "unknown advice");
	ksft_ret(range(lab.fd, ACCEL_HMM_EVICT, p, PAGE, 1, NULL), -EINVAL, "argument where none belongs");
	ksft_ret(range(lab.fd, ACCEL_HMM_EVICT, (void *)-PAGE, PAGE, 0, NULL), -EINVAL, "kernel address");
	ksft_ret(range(lab.fd, ACCEL_HMM_EVICT, p, -PAGE, 0, NULL), -EINVAL, "overflow");
	ksft_ret(range(lab.fd, ACCEL_HMM_PREFETCH, (void *)0x10000, PAGE, 0, NULL), -EFAULT, "nothing mapped");
}

/* ---------------------------------------------------------------- mirror */

static void test_anon(void)
{
	uint64_t *p = private(PAGES * PAGE), crc;

	range(lab.fd, ACCEL_HMM_ADVISE, p, PAGES * PAGE, ACCEL_ADVICE_PREFER_SYSTEM, NULL);
	ksft_ok(device_crc(p, PAGES * PAGE, &crc), "anon_read: never written");
	ksft_ok(!(snap(p) & ACCEL_SNAP_WRITE), "anon_read: the device's read gave no page of its own");
	numbers(p, PAGES * PAGE);
	ksft_ok(device_crc(p, PAGES * PAGE, &crc), "anon_read");
	ksft_ok(device_writes(p, PAGES * PAGE, 7) && all(p, PAGES * PAGE, 7), "anon_write");
	mprotect(p, PAGES * PAGE, PROT_READ);
	ksft_ok(device_crc(p, PAGES * PAGE, &crc), "anon_read_prot: reads go on");
	ksft_ok(run(ACCEL_FILL, p, 8, 9, NULL) == ACCEL_ST_FAULT && p[0] == 7, "anon_write_prot: refused");
	mprotect(p, PAGES * PAGE, PROT_NONE);
	ksft_ok(run(ACCEL_CRC32C, p, 8, 0, NULL) == ACCEL_ST_FAULT, "anon_read_prot: PROT_NONE refused");
	mprotect(p, PAGES * PAGE, PROT_READ | PROT_WRITE);
	ksft_ok(device_writes(p, 8, 9) && p[0] == 9, "anon_write_prot: back again");
	madvise(p, PAGES * PAGE, MADV_DONTNEED);
	ksft_ok(device_crc(p, PAGE, &crc) && p[0] == 0, "MADV_DONTNEED under the device");
	munmap(p, PAGES * PAGE);
	ksft_ok(run(ACCEL_CRC32C, p, 8, 0, NULL) == ACCEL_ST_FAULT, "unmapped under the device");
}

static void test_anon_child(void)
{
	uint64_t *p = private(PAGES * PAGE);
	int status;
	pid_t pid;

	numbers(p, PAGES * PAGE);
	device_writes(p, 8, 0);		/* mapped for the device, writable */
	p[0] = 0;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		usleep(200000);
		_exit(are_numbers(p, PAGES * PAGE) ? 0 : 1);
	}
	ksft_ok(device_writes(p, PAGES * PAGE, 5) && all(p, PAGES * PAGE, 5), "anon_write_child: parent");
	waitpid(pid, &status, 0);
	ksft_ok(!status, "anon_write_child: the child keeps what was there at fork");
}

static void test_anon_huge(void)
{
	char *area = private(4 * HUGE);
	uint64_t *p = (uint64_t *)area, before = stats().blocks_mapped, crc;

	madvise(area, 4 * HUGE, MADV_HUGEPAGE);
	numbers(p, HUGE);
	ksft_ok(snap(p) & ACCEL_SNAP_HUGE, "anon_write_huge: the CPU maps 2 MiB");
	ksft_ok(device_crc(p, HUGE, &crc) && stats().blocks_mapped > before, "anon_read_huge: one entry");
	ksft_ok(device_writes(p, HUGE, 3) && all(p, HUGE, 3), "anon_write_huge");
}

/* ---------------------------------------------------------------- migration */

static void test_migrate(void)
{
	uint64_t *p = private(PAGES * PAGE), *never = private(PAGES * PAGE), moved, crc, again;

	range(lab.fd, ACCEL_HMM_ADVISE, p, PAGES * PAGE, ACCEL_ADVICE_PREFER_SYSTEM, NULL);
	numbers(p, PAGES * PAGE);
	device_crc(p, PAGES * PAGE, &crc);
	ksft_ret(range(lab.fd, ACCEL_HMM_PREFETCH, p, PAGES * PAGE, 0, &moved), 0, "migrate: prefetch");
	ksft_ok(moved == PAGES, "migrate: %llu of %d pages moved", (unsigned long long)moved, PAGES);
	ksft_ok(snap(p) & ACCEL_SNAP_LOCAL, "migrate: in device memory");
	ksft_ok(device_crc(p, PAGES * PAGE, &again) && again == crc, "migrate: the device reads the same");
	ksft_ok(are_numbers(p, PAGES * PAGE), "migrate_fault: the CPU reads the same");
	if (lab.mode == ACCEL_HMM_PRIVATE)
		ksft_ok(!(snap(p) & ACCEL_SNAP_LOCAL), "migrate_fault: back in system memory");
	range(lab.fd, ACCEL_HMM_PREFETCH, p, PAGES * PAGE, 0, NULL);
	ksft_ok(device_writes(p, PAGES * PAGE, 11) && all(p, PAGES * PAGE, 11), "migrate: written on the device");
	range(lab.fd, ACCEL_HMM_PREFETCH, p, PAGES * PAGE, 0, NULL);
	ksft_ret(range(lab.fd, ACCEL_HMM_EVICT, p, PAGES * PAGE, 0, &moved), 0, "migrate: evict");
	ksft_ok(moved == PAGES && all(p, PAGES * PAGE, 11), "migrate: all came back");
	range(lab.fd, ACCEL_HMM_PREFETCH, never, PAGES * PAGE, 0, &moved);
	ksft_ok(moved == PAGES && all(never, PAGES * PAGE, 0), "migrate: never written, zero on the device");
	range(lab.fd, ACCEL_HMM_PREFETCH, p, PAGES * PAGE, 0, NULL);
	ksft_ret(munmap(p, PAGES * PAGE), 0, "migrate_release: unmapped in device memory");
}

static void test_migrate_multiple(void)
{
	uint64_t *p = private(2 * HUGE), moved, before = stats().blocks_mapped, crc, again;

	for (int i = 0; i < 8; i++) {
		numbers(p, 2 * HUGE);
		device_crc(p, 2 * HUGE, &crc);
		range(lab.fd, ACCEL_HMM_PREFETCH, p, 2 * HUGE, 0, &moved);
		if (moved < 1000 || !device_crc(p, 2 * HUGE, &again) || again != crc ||
		    !are_numbers(p, 2 * HUGE))
			break;
		if (i == 7)
			ksft_ok(true, "migrate_multiple");
	}
	ksft_ok(stats().blocks_mapped >= before, "migrate_multiple: %llu block entries",
		(unsigned long long)(stats().blocks_mapped - before));
}

/* Twice what the device has: everything stays right, the rest is evicted */
static void test_oversubscribe(size_t vram)
{
	size_t size = 2 * vram, i;
	uint64_t *p = private(size);
	bool right = true;

	for (i = 0; i < size / 8; i += PAGE / 8)
		p[i] = i;
	ksft_ret(range(lab.fd, ACCEL_HMM_PREFETCH, p, size, 0, NULL), 0, "oversubscribed: prefetch of twice the memory");
	for (i = 0; i < size / 8; i += PAGE / 8)
		right &= p[i] == i;
	ksft_ok(right, "oversubscribed: data right");
	munmap(p, size);
}

static void test_cow_in_device(void)
{
	uint64_t *p = private(PAGES * PAGE);
	int status;
	pid_t pid;

	numbers(p, PAGES * PAGE);
	p[0] = 0;
	range(lab.fd, ACCEL_HMM_PREFETCH, p, PAGES * PAGE, 0, NULL);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		usleep(300000);
		_exit(are_numbers(p, PAGES * PAGE) ? 0 : 1);
	}
	ksft_ok(device_writes(p, PAGES * PAGE, 21), "hmm_cow_in_device: the device writes");
	ksft_ok(all(p, PAGES * PAGE, 21), "hmm_cow_in_device: the parent sees it");
	waitpid(pid, &status, 0);
	ksft_ok(!status, "hmm_cow_in_device: the child does not");
}

static void test_automatic(void)
{
	uint64_t *p = private(HUGE), crc, before = stats().pages_to_device;

	numbers(p, HUGE);
	range(lab.fd, ACCEL_HMM_ADVISE, p, HUGE, ACCEL_ADVICE_PREFER_SYSTEM, NULL);
	device_crc(p, HUGE, &crc);
	ksft_ok(stats().pages_to_device == before, "advice: prefer system, nothing moves");
	range(lab.fd, ACCEL_HMM_ADVISE, p, HUGE, ACCEL_ADVICE_PREFER_DEVICE, NULL);
	device_crc(p, HUGE, &crc);
	ksft_ok(stats().pages_to_device >= before + 512, "advice: prefer device, moves at the first touch");
	ksft_ok(are_numbers(p, HUGE), "advice: data right");
	range(lab.fd, ACCEL_HMM_ADVISE, p, HUGE, ACCEL_ADVICE_NORMAL, NULL);
}

static void test_gup(void)
{
	uint64_t *p = private(PAGE), word = 0;
	struct iovec here = { &word, 8 }, there = { p, 8 };

	p[0] = 77;
	range(lab.fd, ACCEL_HMM_PREFETCH, p, PAGE, 0, NULL);
	ksft_ok(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 8 && word == 77,
		"hmm_gup_test: another's look at a page in device memory");
}

/* ---------------------------------------------------------------- exclusive */

static void test_exclusive(void)
{
	uint64_t *p = private(2 * PAGE), old, before = stats().exclusive_revoked;

	p[0] = 1;
	ksft_ret(range(lab.fd, ACCEL_HMM_EXCLUSIVE, p, PAGE, 0, NULL), 0, "exclusive");
	ksft_ok(run(ACCEL_ATOMIC, p, 8, 4, &old) == ACCEL_ST_OK && old == 1, "exclusive: the device adds");
	ksft_ok(p[0] == 5 && stats().exclusive_revoked > before, "exclusive: the CPU's touch revokes");
	range(lab.fd, ACCEL_HMM_EXCLUSIVE, p, PAGE, 0, NULL);
	mprotect(p, PAGE, PROT_READ);
	ksft_ok(run(ACCEL_FILL, p, 8, 9, NULL) == ACCEL_ST_FAULT && p[0] == 5, "exclusive_mprotect");
	mprotect(p, PAGE, PROT_READ | PROT_WRITE);
}

static uint64_t *counter;

static void *adder(void *rounds)
{
	for (long i = 0; i < (long)rounds; i++)
		__atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void test_sums(void)
{
	pthread_t thread;
	int done = 0, last = 0;

	counter = private(PAGE);
	*counter = 0;
	range(lab.fd, ACCEL_HMM_ADVISE, counter, PAGE, ACCEL_ADVICE_ATOMIC, NULL);
	pthread_create(&thread, NULL, adder, (void *)2000);
	for (int i = 0; i < 200; i++) {
		last = run(ACCEL_ATOMIC, counter, 8, 1, NULL);
		done += last == ACCEL_ST_OK;
	}
	pthread_join(thread, NULL);
	ksft_ok(done == 200 && *counter == 2200,
		"exclusive: sum %llu after 2000 and %d additions, last status %d",
		(unsigned long long)*counter, done, last);
}

/* ---------------------------------------------------------------- registered ranges */

static void test_registered(uint32_t other_tid)
{
	struct ummu_seg_attr seg = { .e_bit = UMMU_EBIT_OFF };
	uint64_t *p = private(2 * PAGE);
	uint32_t kept = lab.tid;
	int fd = open("/dev/ummu_accel0", O_RDWR);

	p[0] = p[PAGE / 8] = 1;
	if (enable(fd, other_tid, ACCEL_HMM_REGISTERED, NULL) || accel_bind_tid(lab.queue, other_tid) ||
	    ummu_grant(other_tid, p, 2 * PAGE, MAPT_PERM_RW, &seg))
		ksft_bail("a mirror of registered ranges");
	lab.tid = other_tid;
	ksft_ok(run(ACCEL_CRC32C, p, 8, 0, NULL) == ACCEL_ST_FAULT, "registered: nothing is, refused");
	ksft_ret(range(fd, ACCEL_HMM_MIRROR_RANGE, p, PAGE, 0, NULL), -EACCES, "registered: -EACCES");
	ksft_ret(range(fd, ACCEL_HMM_REGISTER, p, PAGE, 0, NULL), 0, "registered: one page");
	ksft_ok(run(ACCEL_CRC32C, p, 8, 0, NULL) == ACCEL_ST_OK, "registered: allowed");
	ksft_ok(run(ACCEL_CRC32C, p + PAGE / 8, 8, 0, NULL) == ACCEL_ST_FAULT, "registered: the next page is not");
	ksft_ret(range(fd, ACCEL_HMM_UNREGISTER, p, PAGE, 0, NULL), 0, "registered: no more");
	ksft_ok(run(ACCEL_CRC32C, p, 8, 0, NULL) == ACCEL_ST_FAULT, "registered: refused again");
	lab.tid = kept;
	accel_unbind_tid(lab.queue, other_tid);
	close(fd);
}

/* A child that ends with everything in use: the parent's test goes on, nothing hangs */
static void test_teardown(void)
{
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		execl("/proc/self/exe", "hmm_test", "victim", (char *)NULL);
		_exit(1);
	}
	waitpid(pid, &status, 0);
	ksft_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "anon_teardown: killed with pages on the device");
}

static int victim(void)
{
	uint64_t *p;

	lab_open(&lab, NULL, 0);
	p = private(HUGE);
	numbers(p, HUGE);
	range(lab.fd, ACCEL_HMM_PREFETCH, p, HUGE, 0, NULL);
	device_writes(p, HUGE, 1);
	raise(SIGKILL);
	return 1;
}

int main(int argc, char **argv)
{
	struct ummu_tid_attr attr = { .mode = MAPT_MODE_TABLE };
	struct accel_caps caps;
	uint32_t other;

	if (argc > 1 && !strcmp(argv[1], "victim"))
		return victim();
	lab_open(&lab, NULL, 0);
	if (ummu_allocate_tid(&attr, &other) || accel_query(lab.queue, &caps))
		ksft_bail("second TID");
	test_open_close(other);
	test_bad_ranges();
	test_anon();
	test_anon_child();
	test_anon_huge();
	if (!ksft_ok(lab.mode != ACCEL_HMM_MIRROR && caps.vram_size, "device memory"))
		return ksft_exit();
	test_migrate();
	test_migrate_multiple();
	test_oversubscribe(caps.vram_size);
	test_cow_in_device();
	test_automatic();
	test_gup();
	test_exclusive();
	test_sums();
	test_registered(other);
	test_teardown();
	return ksft_exit();
}
