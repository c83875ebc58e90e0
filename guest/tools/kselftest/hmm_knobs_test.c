// SPDX-License-Identifier: MIT
/*
 * Every knob of memory management does what it says, and every row of the
 * troubleshooting page shows what it says: docs/hmm.md.
 */
#include "hmm_lab.h"

#include <time.h>


#define CHUNK_PAGES	((int)(HUGE / PAGE))
#define LIMIT_MS	20000

/* Event codes of a refusal: spec section "events" */
#define A_TRANSLATION	"A_TRANSLATION"
#define A_PERMISSION	"A_PERMISSION"
#define P_PERMISSION	"P_PERMISSION"

static void knob(const char *name, long value)
{
	char path[96], text[24];
	int fd, n = snprintf(text, sizeof(text), "%ld", value);

	snprintf(path, sizeof(path), "/sys/module/ummu_accel/parameters/%s", name);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, text, n) != n)
		ksft_bail("%s=%ld", name, value);
	close(fd);
}

/* As after loading, but a page at a time and nothing by itself */
static void knobs_quiet(void)
{
	knob("fault_window", PAGE);
	knob("touch_threshold", 0);
	knob("pingpong_ms", 0);
	knob("migrate_chunk_size", HUGE);
	knob("cow_threshold", 512 << 10);
	knob("exclusive_hold_us", 1000);
}

/* A chunk of small pages that the CPU has written */
static uint64_t *chunk(void)
{
	uint64_t *p = private(HUGE);

	numbers(p, HUGE);
	return p;
}

static uint64_t *page(uint64_t *p, unsigned int i)
{
	return p + i * (PAGE / 8);
}

static bool touch(uint64_t *p, unsigned int i)
{
	return run(ACCEL_CRC32C, page(p, i), 8, 0, NULL) == ACCEL_ST_OK;
}

static struct accel_result result_of(enum accel_op op, void *addr, uint64_t length)
{
	struct accel_job j = { .op = op, .length = length };
	struct accel_operand o = { .addr = addr, .tid = lab.tid };
	struct accel_result r = { .status = ACCEL_ST_NONE };

	if (op == ACCEL_FILL)
		j.dst = o;
	else
		j.src = o;
	accel_run(lab.queue, &j, TIMEOUT_MS, &r);
	return r;
}

static bool refused(const struct accel_result *r, const char *event)
{
	return r->status == ACCEL_ST_FAULT && strstr(accel_event_name(r->event), event);
}

static int local_pages(const void *p)
{
	uint8_t bytes[CHUNK_PAGES];
	int n = 0;

	if (accel_snapshot(lab.queue, p, HUGE, bytes) != CHUNK_PAGES)
		return -1;
	for (int i = 0; i < CHUNK_PAGES; i++)
		n += !!(bytes[i] & ACCEL_SNAP_LOCAL);
	return n;
}

/* ---------------------------------------------------------------- knobs */

static void test_touch_threshold(void)
{
	static const int thresholds[] = { 1, 3, 9, 0 };

	for (unsigned int t = 0; t < 4; t++) {
		int threshold = thresholds[t], i = 0;
		uint64_t *p = chunk();

		knob("touch_threshold", threshold);
		while (i < 20 && touch(p, i++) && !local_pages(p))
			;
		ksft_ok(threshold ? i == threshold && local_pages(p) == CHUNK_PAGES :
			i == 20 && !local_pages(p),
			"touch_threshold=%d: %d pages on the device after %d touches", threshold,
			local_pages(p), i);
		munmap(p, HUGE);
	}
	knobs_quiet();
}

static void test_migrate_chunk_size(void)
{
	static const struct { long size; int pages; } sizes[] = {
		{ PAGE, 1 }, { 64 << 10, 16 }, { 12345, 2 }, { 0, 1 }, { HUGE, 512 }, { 1l << 40, 512 },
	};

	knob("touch_threshold", 1);
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint64_t *p = chunk();

		knob("migrate_chunk_size", sizes[i].size);
		ksft_ok(touch(p, 100) && local_pages(p) == sizes[i].pages,
			"migrate_chunk_size=%ld: %d pages moved, expected %d", sizes[i].size,
			local_pages(p), sizes[i].pages);
		munmap(p, HUGE);
	}
	knobs_quiet();
}

static void test_fault_window(void)
{
	static const struct { long size; unsigned int pages; } windows[] = {
		{ PAGE, 1 }, { 64 << 10, 16 }, { 100000, 16 }, { HUGE, 512 }, { 1l << 40, 512 },
	};

	for (unsigned int i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
		uint64_t *p = chunk(), before = stats().pages_mapped, mapped;
		int left = CHUNK_PAGES;

		knob("fault_window", windows[i].size);
		touch(p, 100);
		mapped = stats().pages_mapped - before;
		ksft_ok(mapped == windows[i].pages, "fault_window=%ld: %llu pages mapped, expected %u",
			windows[i].size, (unsigned long long)mapped, windows[i].pages);
		accel_prefetch(lab.queue, p, HUGE);
		if (lab.mode == ACCEL_HMM_PRIVATE)
			left -= windows[i].pages;
		ksft_ok(*page(p, 100) == 100 * (PAGE / 8) * 0x9e3779b97f4a7c15u && local_pages(p) == left,
			"fault_window=%ld: %d pages left after a CPU touch, expected %d",
			windows[i].size, local_pages(p), left);
		munmap(p, HUGE);
	}
	knobs_quiet();
}

/* 64 pages in device memory, shared with a child; what a device write to one of them does */
static void test_cow_threshold(void)
{
	static const struct { long threshold; unsigned int copied, migrated; } cases[] = {
		{ 512 << 10, 1, 0 }, { 64 * PAGE + 1, 1, 0 }, { 64 * PAGE, 0, 64 }, { 0, 0, 64 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint64_t *p = private(PAGES * PAGE);
		struct accel_hmm_stats a, b;
		int hold[2], status;
		bool wrote, right;
		char end;
		pid_t pid;

		numbers(p, PAGES * PAGE);
		accel_prefetch(lab.queue, p, PAGES * PAGE);
		if (pipe(hold))
			ksft_bail("pipe");
		fflush(stdout);
		pid = fork();
		if (!pid) {
			close(hold[1]);
			_exit(read(hold[0], &end, 1) || !are_numbers(p, PAGES * PAGE));
		}
		knob("cow_threshold", cases[i].threshold);
		a = stats();
		wrote = device_writes(page(p, 5), PAGE, 1);
		b = stats();
		right = all(page(p, 5), PAGE, 1) && are_numbers(p, 5 * PAGE);
		close(hold[1]);
		close(hold[0]);
		waitpid(pid, &status, 0);
		ksft_ok(b.cow_copied - a.cow_copied == cases[i].copied &&
			b.cow_migrated - a.cow_migrated == cases[i].migrated && !status &&
			wrote && right,
			"cow_threshold=%ld: %llu copied, %llu moved, expected %u and %u; child %#x",
			cases[i].threshold, (unsigned long long)(b.cow_copied - a.cow_copied),
			(unsigned long long)(b.cow_migrated - a.cow_migrated), cases[i].copied,
			cases[i].migrated, status);
		munmap(p, PAGES * PAGE);
	}
	knobs_quiet();
}

/* CPU and device by turns: with the guard the range stays home, without it wanders */
static void test_pingpong(void)
{
	bool comes_home = lab.mode == ACCEL_HMM_PRIVATE;

	knob("touch_threshold", 1);
	knob("fault_window", HUGE);
	for (int ms = 0; ms <= 60000; ms += 60000) {
		uint64_t *p = chunk(), held = stats().pingpong_held;
		volatile uint64_t *cpu = p;
		int first, second;

		knob("pingpong_ms", ms);
		touch(p, 0);
		first = local_pages(p);
		(void)cpu[0];
		touch(p, 0);
		second = local_pages(p);
		held = stats().pingpong_held - held;
		ksft_ok(first == CHUNK_PAGES && second == (ms && comes_home ? 0 : CHUNK_PAGES) &&
			held == (ms && comes_home), "pingpong_ms=%d: %d, then %d pages, %llu times held",
			ms, first, second, (unsigned long long)held);
		munmap(p, HUGE);
	}
	knobs_quiet();
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

/* "At least" is a promise that a busy machine cannot break; values beyond 10 ms count as 10 ms */
static void test_exclusive_hold(void)
{
	static const struct { long us; uint64_t least; } holds[] = { { 10000, 10000 }, { 1 << 20, 10000 } };

	for (unsigned int i = 0; i < sizeof(holds) / sizeof(*holds); i++) {
		uint64_t *p = private(PAGE), t;
		volatile uint64_t *cpu = p;

		*cpu = 1;
		knob("exclusive_hold_us", holds[i].us);
		t = now_us();
		accel_exclusive(lab.queue, p, PAGE);
		*cpu = 2;
		t = now_us() - t;
		ksft_ok(t >= holds[i].least, "exclusive_hold_us=%ld: the CPU waited %llu us", holds[i].us,
			(unsigned long long)t);
		munmap(p, PAGE);
	}
	knobs_quiet();
}

static uint64_t device_counter(const char *name)
{
	FILE *f = fopen("/sys/kernel/debug/ummu_accel/ummu_accel0/hmm", "r");
	unsigned long long value;
	char line[80], found[64];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %llu", found, &value) == 2 && !strcmp(found, name)) {
			fclose(f);
			return value;
		}
	}
	ksft_bail("counter %s", name);
}

/* Half of each of six blocks goes home; compacting makes three empty ones of them */
static void test_defrag(void)
{
	uint64_t *p[6], before = device_counter("defrag_blocks"), moved = device_counter("defrag_moved");
	bool right = true;
	int waited = 0;

	for (int i = 0; i < 6; i++) {
		p[i] = chunk();
		accel_prefetch(lab.queue, p[i], HUGE);
		accel_evict(lab.queue, p[i], HUGE / 2);
	}
	/* the module came with 0; then it looks at the knob once a second */
	usleep(1500000);
	ksft_ok(device_counter("defrag_moved") == moved, "defrag_interval_ms=0: nothing moves");
	knob("defrag_interval_ms", 50);
	while (device_counter("defrag_blocks") < before + 3 && (waited += 20) < LIMIT_MS)
		usleep(20000);
	ksft_ok(device_counter("defrag_blocks") >= before + 3, "defrag_interval_ms=50: %llu blocks, %llu pages moved",
		(unsigned long long)(device_counter("defrag_blocks") - before),
		(unsigned long long)(device_counter("defrag_moved") - moved));
	for (int i = 0; i < 6; i++) {
		right &= local_pages(p[i]) == CHUNK_PAGES / 2 && are_numbers(p[i], HUGE);
		munmap(p[i], HUGE);
	}
	ksft_ok(right, "defrag_interval_ms=50: all there, and right");
	knob("defrag_interval_ms", 0);
}

/* ---------------------------------------------------------------- troubleshooting */

static void trouble_refusals(void)
{
	uint64_t *p = private(4 * PAGE), failed = stats().faults_failed;
	uint64_t *bare = mmap(place(), PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	struct accel_result r = result_of(ACCEL_CRC32C, bare, 8);

	ksft_ok(refused(&r, P_PERMISSION) && stats().faults_failed == failed,
		"no grant: %s, no fault", accel_event_name(r.event));
	p[0] = 1;
	*page(p, 1) = 1;
	munmap(p, PAGE);
	r = result_of(ACCEL_CRC32C, p, 8);
	ksft_ok(refused(&r, A_TRANSLATION) && stats().faults_failed == failed + 1, "unmapped: %s",
		accel_event_name(r.event));
	touch(p, 1);
	mprotect(page(p, 1), PAGE, PROT_READ);
	r = result_of(ACCEL_FILL, page(p, 1), 8);
	ksft_ok((refused(&r, A_TRANSLATION) || refused(&r, A_PERMISSION)) &&
		stats().faults_failed == failed + 2 && *page(p, 1) == 1, "read only: %s",
		accel_event_name(r.event));
}

static void trouble_unregistered(void)
{
	struct lab all_of_it = lab;
	uint64_t *p, denied;
	struct accel_result r;

	lab_open(&lab, NULL, ACCEL_HMM_REGISTERED);
	p = private(PAGE);
	p[0] = 1;
	denied = stats().faults_denied;
	r = result_of(ACCEL_CRC32C, p, 8);
	ksft_ok(refused(&r, A_TRANSLATION) && stats().faults_denied == denied + 1,
		"never registered: %s", accel_event_name(r.event));
	lab_close(&lab);
	lab = all_of_it;
}

static void trouble_dontneed(void)
{
	uint64_t *p = private(PAGE), *zero = private(PAGE), data, nothing, after;
	struct accel_hmm_stats a, b;

	numbers(p, PAGE);
	device_crc(p, PAGE, &data);
	a = stats();
	madvise(p, PAGE, MADV_DONTNEED);
	ksft_ok(device_crc(p, PAGE, &after) && device_crc(zero, PAGE, &nothing) && after == nothing &&
		after != data, "MADV_DONTNEED: the device reads zeros");
	b = stats();
	ksft_ok(b.invalidations > a.invalidations && b.faults_failed == a.faults_failed,
		"MADV_DONTNEED: an invalidation, no fault that failed");
}

/* Needs a swap device */
static void trouble_swap(void)
{
	uint64_t *p = private(PAGES * PAGE), before, after, faults;
	unsigned char in[PAGES];
	int there = 0;

	numbers(p, PAGES * PAGE);
	device_crc(p, PAGES * PAGE, &before);
	madvise(p, PAGES * PAGE, MADV_PAGEOUT);
	mincore(p, PAGES * PAGE, in);
	for (int i = 0; i < PAGES; i++)
		there += in[i] & 1;
	faults = stats().faults_read;
	ksft_ok(there < PAGES && device_crc(p, PAGES * PAGE, &after) && after == before,
		"swapped out: %d of %d pages were there, the device reads the same", there, PAGES);
	ksft_ok(stats().faults_read > faults, "swapped out: the device faulted them in");
}

static void trouble_stays(void)
{
	uint64_t *p = granted(HUGE, MAP_SHARED), moved = stats().pages_to_device;
	uint64_t faults = stats().faults_read;

	numbers(p, HUGE);
	knob("touch_threshold", 1);
	for (int i = 0; i < 10; i++)
		touch(p, i);
	ksft_ok(stats().pages_to_device == moved && stats().faults_read > faults && !local_pages(p),
		"shared memory never moves: %llu faults",
		(unsigned long long)(stats().faults_read - faults));
	munmap(p, HUGE);
	knobs_quiet();
}

static void trouble_room(size_t vram)
{
	uint64_t *p = private(2 * vram), evictions = stats().evictions;

	for (size_t i = 0; i < 2 * vram / PAGE; i++)
		*page(p, i) = i;
	accel_prefetch(lab.queue, p, 2 * vram);
	ksft_ok(stats().evictions >= evictions + vram / PAGE && device_counter("vram_free") < (uint64_t)CHUNK_PAGES,
		"more than fits: %llu evictions, %llu pages free",
		(unsigned long long)(stats().evictions - evictions),
		(unsigned long long)device_counter("vram_free"));
	munmap(p, 2 * vram);
}

static void trouble_slow_cpu(void)
{
	uint64_t *p = chunk(), faults = stats().cpu_faults;
	unsigned int want = lab.mode == ACCEL_HMM_PRIVATE ? CHUNK_PAGES : 0;
	bool right;

	accel_prefetch(lab.queue, p, HUGE);
	right = are_numbers(p, HUGE);
	ksft_ok(right && stats().cpu_faults == faults + want, "slow CPU: %llu faults of the CPU, expected %u",
		(unsigned long long)(stats().cpu_faults - faults), want);
	accel_prefetch(lab.queue, p, HUGE);
	accel_evict(lab.queue, p, HUGE);
	faults = stats().cpu_faults;
	right = are_numbers(p, HUGE);
	ksft_ok(right && stats().cpu_faults == faults, "slow CPU: none after accel_evict()");
	munmap(p, HUGE);
}

static void trouble_atomics(void)
{
	uint64_t *p = private(PAGE), revoked = stats().exclusive_revoked;
	volatile uint64_t *cpu = p;

	*cpu = 0;
	for (int i = 0; i < 5; i++) {
		accel_exclusive(lab.queue, p, PAGE);
		*cpu += 1;
	}
	ksft_ok(stats().exclusive_revoked >= revoked + 5 && *cpu == 5, "slow atomics: %llu revoked",
		(unsigned long long)(stats().exclusive_revoked - revoked));
}

/* What used the mirror meets the end of it */
static void trouble_stale_mirror(void)
{
	uint64_t *p = private(PAGE);
	struct accel_hmm_stats s;

	ksft_ok(!accel_hmm_disable(lab.queue) && accel_prefetch(lab.queue, p, PAGE) == -ENOENT &&
		accel_hmm_stats(lab.queue, &s) == -ENOENT, "stale mirror: -ENOENT");
}

int main(void)
{
	struct accel_caps caps;

	lab_open(&lab, NULL, 0);
	if (accel_query(lab.queue, &caps))
		ksft_bail("device");
	knobs_quiet();
	test_touch_threshold();
	test_migrate_chunk_size();
	test_fault_window();
	test_cow_threshold();
	test_pingpong();
	test_exclusive_hold();
	test_defrag();
	trouble_refusals();
	trouble_unregistered();
	trouble_dontneed();
	trouble_swap();
	trouble_stays();
	trouble_room(caps.vram_size);
	trouble_slow_cpu();
	trouble_atomics();
	trouble_stale_mirror();
	return ksft_exit();
}
