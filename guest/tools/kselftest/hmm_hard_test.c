// SPDX-License-Identifier: MIT
/*
 * Memory management while something else happens: unmapping, revoking, killing,
 * two devices, too little device memory, many faults at once.  TAP output.
 *
 *   hmm_hard_test [SEED [NAME]]
 */
#include "hmm_lab.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#define CANARY	 0xcafecafecafecafeu
#define BIG	 (4 * HUGE)
#define POOL	 "/sys/kernel/debug/ummu_accel/ummu_accel0/hmm"
#define VICTIMS	 8

static uint64_t seed;

/* xorshift64*: the same numbers everywhere for a seed */
static uint32_t dice(uint32_t below)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (uint32_t)((seed * 0x2545f4914f6cdd1du) >> 32) % below;
}

/* A line of the driver's debugfs file */
static unsigned long pool(const char *name)
{
	unsigned long value = ~0ul;
	char word[64];
	FILE *f = fopen(POOL, "r");

	if (!f)
		ksft_bail("%s", POOL);
	while (value == ~0ul && fscanf(f, "%63s", word) == 1)
		if (!strcmp(word, name) && fscanf(f, "%lu", &value) != 1)
			break;
	fclose(f);
	return value;
}

/* Pages of processes that ended are freed by workers: at most 10 s */
static unsigned long pool_settled(unsigned long want)
{
	for (int i = 0; i < 1000 && pool("vram_free") != want; i++)
		usleep(10000);
	return pool("vram_free");
}

static void pause_a_little(void)
{
	uint32_t n = dice(4);

	if (n == 1)
		sched_yield();
	else if (n)
		usleep(dice(n == 2 ? 200 : 3000));
}

static accel_handle_t start(const struct lab *l, enum accel_op op, void *p, size_t length, uint64_t value)
{
	struct accel_job j = { .op = op, .length = length, .pattern = value, .value = value,
			       .dtype = ACCEL_TYPE_U64 };
	struct accel_operand o = { .addr = p, .tid = l->tid };
	accel_handle_t handle;

	if (op == ACCEL_FILL)
		j.dst = o;
	else
		j.src = o;
	errno = -accel_submit(l->queue, &j, &handle);
	if (errno)
		ksft_bail("submit");
	return handle;
}

static enum accel_status finish(const struct lab *l, accel_handle_t handle)
{
	struct accel_result r = { .status = ACCEL_ST_NONE };

	accel_wait(l->queue, handle, TIMEOUT_MS, &r);
	return r.status;
}

/* ---------------------------------------------------------------- what is taken away under the device */

/* Memory is unmapped while the device fills it; whoever gets the pages next keeps what he wrote */
static void test_unmap(bool on_device)
{
	unsigned int i, hurt = 0, cut = 0, rounds = 40;

	for (i = 0; i < rounds; i++) {
		uint64_t *p = private(HUGE), *next;
		accel_handle_t job;
		enum accel_status st;

		numbers(p, HUGE);
		if (on_device)
			accel_prefetch(lab.queue, p, HUGE);
		job = start(&lab, ACCEL_FILL, p, HUGE, i);
		pause_a_little();
		munmap(p, HUGE);
		next = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (size_t w = 0; w < HUGE / 8; w++)
			next[w] = CANARY;
		if (on_device)
			accel_prefetch(lab.queue, next, HUGE);
		st = finish(&lab, job);
		hurt += st == ACCEL_ST_NONE || !all(next, HUGE, CANARY);
		cut += st == ACCEL_ST_FAULT;
		munmap(next, HUGE);
	}
	ksft_ok(!hurt, "unmap_in_flight, pages %s: canary dead in %u of %u rounds, %u jobs refused",
		on_device ? "on the device" : "in system memory", hurt, rounds, cut);
}

/* The grant goes while the device fills: after ungrant returned it writes no more */
static void test_revoke(void)
{
	struct ummu_seg_attr seg = { .e_bit = UMMU_EBIT_OFF };
	unsigned int i, hurt = 0, cut = 0, rounds = 40;
	uint64_t *p = private(HUGE);

	for (i = 0; i < rounds; i++) {
		accel_handle_t job = start(&lab, ACCEL_FILL, p, HUGE, i);
		enum accel_status st;

		pause_a_little();
		if (ummu_ungrant(lab.tid, p, HUGE))
			ksft_bail("ungrant");
		for (size_t w = 0; w < HUGE / 8; w++)
			p[w] = CANARY;
		st = finish(&lab, job);
		hurt += st == ACCEL_ST_NONE || !all(p, HUGE, CANARY);
		cut += st == ACCEL_ST_FAULT;
		if (ummu_grant(lab.tid, p, HUGE, MAPT_PERM_ATOMIC_RW, &seg))
			ksft_bail("grant");
	}
	munmap(p, HUGE);
	ksft_ok(!hurt, "revoke_in_flight: written after ungrant in %u of %u rounds, %u jobs refused",
		hurt, rounds, cut);
}

/* ---------------------------------------------------------------- too much for the device */

/* Twice as much as the device has, touched at random by CPU, device and calls */
static void test_oversubscribed(void)
{
	size_t pages = 2 * pool("vram_pages"), i;
	uint64_t *p = private(pages * PAGE), *want = calloc(pages, 8);
	struct accel_hmm_stats before = stats(), after;
	unsigned int wrong = 0, lost = 0;

	for (i = 0; i < 3000; i++) {
		size_t n = dice(pages);
		uint64_t *at = p + n * (PAGE / 8);

		switch (dice(8)) {
		case 0:
			accel_prefetch(lab.queue, p + (n & ~511ul) * (PAGE / 8), HUGE);
			break;
		case 1:
		case 2:
		case 3:
			lost += !device_writes(at, 8, i);
			want[n] = i;
			break;
		case 4:
		case 5:
			*at = i;
			want[n] = i;
			break;
		default:
			wrong += *at != want[n];
		}
	}
	accel_prefetch(lab.queue, p, pages * PAGE);
	for (i = 0; i < pages; i++)
		wrong += p[i * (PAGE / 8)] != want[i];
	after = stats();
	ksft_ok(!wrong && !lost, "oversubscribed_random: %u of %zu pages wrong, %u jobs failed", wrong, pages, lost);
	ksft_ok(after.evictions > before.evictions, "oversubscribed_random: %llu pages of this process evicted",
		(unsigned long long)(after.evictions - before.evictions));
	munmap(p, pages * PAGE);
	free(want);
}

/* What is pinned is not evicted; there is an end to it */
static void test_pinned(void)
{
	size_t all_pages = pool("vram_pages");
	char *p = private(all_pages * PAGE), *q = private(BIG);
	uint8_t byte;

	accel_advise(lab.queue, p, all_pages * PAGE, ACCEL_ADVICE_PINNED);
	for (size_t i = 0; i < all_pages; i++)
		p[i * PAGE] = 1;
	ksft_ok(accel_prefetch(lab.queue, p, all_pages * PAGE) == (long)all_pages, "pinned: the whole device");
	memset(q, 1, BIG);
	ksft_ok(accel_prefetch(lab.queue, q, BIG) == -ENOSPC, "pinned: no room for others, and that is said");
	ksft_ok(accel_snapshot(lab.queue, p, PAGE, &byte) == 1 && byte & ACCEL_SNAP_LOCAL, "pinned: still there");
	ksft_ok(device_writes(q, BIG, 3) && all((uint64_t *)q, BIG, 3), "pinned: others are used where they are");
	munmap(p, all_pages * PAGE);
	ksft_ok(accel_prefetch(lab.queue, q, BIG) == BIG / PAGE, "pinned: room again");
	munmap(q, BIG);
}

/* ---------------------------------------------------------------- many at once */

struct stream {
	struct lab lab;
	char *p;
	unsigned int bad;
};

static void *stream_run(void *arg)
{
	struct stream *s = arg;
	accel_handle_t jobs[32];

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 32; i++)
			jobs[i] = start(&s->lab, ACCEL_FILL, s->p + i * 16 * PAGE, 8, i);
		for (int i = 0; i < 32; i++)
			s->bad += finish(&s->lab, jobs[i]) != ACCEL_ST_OK ||
				  *(uint64_t *)(s->p + i * 16 * PAGE) != (uint64_t)i;
		madvise(s->p, 512 * PAGE, MADV_DONTNEED);
	}
	return NULL;
}

/* More queues fault at once than the event queue holds (the VM's is small) */
static void test_streams(void)
{
	enum { N = 8 };
	struct stream s[N];
	pthread_t threads[N];
	unsigned int bad = 0;

	for (int i = 0; i < N; i++) {
		s[i] = (struct stream){ .lab = lab, .p = private(512 * PAGE) };
		if (accel_open(NULL, 0, &s[i].lab.queue) || accel_bind_tid(s[i].lab.queue, lab.tid))
			ksft_bail("queue %d", i);
		accel_advise(lab.queue, s[i].p, 512 * PAGE, ACCEL_ADVICE_PREFER_SYSTEM);
	}
	for (int i = 0; i < N; i++)
		pthread_create(&threads[i], NULL, stream_run, &s[i]);
	for (int i = 0; i < N; i++) {
		pthread_join(threads[i], NULL);
		bad += s[i].bad;
		accel_close(s[i].lab.queue);
		munmap(s[i].p, 512 * PAGE);
	}
	ksft_ok(!bad, "streams: %u of %u jobs of %u queues went wrong", bad, N * 4 * 32, N);
}

static uint64_t *shared_word;
static struct lab second = { .fd = -1 };

static void *cpu_adds(void *n)
{
	for (long i = 0; i < (long)n; i++)
		__atomic_fetch_add(shared_word, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *device_adds(void *arg)
{
	unsigned int good = 0;

	for (int i = 0; i < 100; i++)
		good += lab_run(arg, ACCEL_ATOMIC, shared_word, 8, 1, NULL) == ACCEL_ST_OK;
	return (void *)(uintptr_t)good;
}

/* Two CPU threads, two queues of one device and one of another add to one word */
static void test_two_devices(void)
{
	struct lab other_queue = lab;
	struct lab *devices[] = { &lab, &other_queue, &second };
	pthread_t cpus[2], queues[3];
	uintptr_t good = 0;
	void *ret;

	shared_word = private(PAGE);
	grant_to(&second, shared_word, PAGE);
	*shared_word = 0;
	if (accel_open(NULL, 0, &other_queue.queue) || accel_bind_tid(other_queue.queue, lab.tid))
		ksft_bail("another queue");
	accel_advise(lab.queue, shared_word, PAGE, ACCEL_ADVICE_ATOMIC);
	accel_advise(second.queue, shared_word, PAGE, ACCEL_ADVICE_ATOMIC);
	for (int i = 0; i < 2; i++)
		pthread_create(&cpus[i], NULL, cpu_adds, (void *)1000);
	for (int i = 0; i < 3; i++)
		pthread_create(&queues[i], NULL, device_adds, devices[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(cpus[i], NULL);
	for (int i = 0; i < 3; i++) {
		pthread_join(queues[i], &ret);
		good += (uintptr_t)ret;
	}
	ksft_ok(good == 300 && *shared_word == 2300, "two_devices_one_word: %llu after 2000 and %lu additions",
		(unsigned long long)*shared_word, (unsigned long)good);
	accel_close(other_queue.queue);
	munmap(shared_word, PAGE);
}

/* Pages of a huge one that lie in the memory of @queue's device after it was asked to take them all */
static int taken_by(struct accel_queue *queue, const void *p)
{
	uint8_t bytes[HUGE / PAGE];
	int n = 0;

	if (accel_prefetch(queue, p, HUGE) < 0 ||
	    accel_snapshot(queue, p, HUGE, bytes) != HUGE / PAGE)
		return -1;
	for (unsigned int i = 0; i < HUGE / PAGE; i++)
		n += !!(bytes[i] & ACCEL_SNAP_LOCAL);
	return n;
}

/* Two devices and the CPU write to one range by turns; pages wander between both memories */
static void test_two_devices_data(void)
{
	uint64_t *p = private(HUGE), crc, again;
	uint8_t byte;
	bool right = true;

	grant_to(&second, p, HUGE);
	for (uint64_t i = 0; i < 6 && right; i++) {
		int there = taken_by(lab.queue, p), here;
		enum accel_status st[4];

		st[0] = run(ACCEL_FILL, p, HUGE, i, NULL);
		st[1] = lab_run(&second, ACCEL_CRC32C, p, HUGE, 0, &crc);
		st[2] = run(ACCEL_CRC32C, p, HUGE, 0, &again);
		right = there == HUGE / PAGE && st[0] == ACCEL_ST_OK && st[1] == ACCEL_ST_OK &&
			st[2] == ACCEL_ST_OK && crc == again && all(p, HUGE, i);
		here = taken_by(second.queue, p);
		st[3] = lab_run(&second, ACCEL_FILL, p, HUGE, i + 100, NULL);
		right &= here == HUGE / PAGE && st[3] == ACCEL_ST_OK && device_crc(p, HUGE, &crc) &&
			 all(p, HUGE, i + 100);
		if (!right)
			printf("# round %llu: %d there, %d here, %d %d %d %d\n", (unsigned long long)i,
			       there, here, st[0], st[1], st[2], st[3]);
	}
	ksft_ok(right, "double_map: two devices and the CPU on one range");
	accel_prefetch(second.queue, p, PAGE);
	ksft_ok(accel_snapshot(second.queue, p, PAGE, &byte) == 1 && byte & ACCEL_SNAP_LOCAL &&
		!(snap(p) & ACCEL_SNAP_LOCAL), "double_map: each sees whose memory it is");
	munmap(p, HUGE);
}

/* ---------------------------------------------------------------- death */

/* Runs until it is killed; each kind is mostly in one place of the driver */
static int victim(const char *kind)
{
	accel_handle_t first;
	uint64_t *p, crc;

	lab_open(&lab, NULL, 0);
	p = private(HUGE);
	for (uint64_t i = 0;; i++) {
		switch (*kind) {
		case 'f':	/* fault */
			device_crc(p, HUGE, &crc);
			madvise(p, HUGE, MADV_DONTNEED);
			break;
		case 'c':	/* copy */
			numbers(p, HUGE);
			accel_prefetch(lab.queue, p, HUGE);
			break;
		case 'e':	/* exclusive */
			accel_exclusive(lab.queue, p, 16 * PAGE);
			run(ACCEL_ATOMIC, p, 8, 1, NULL);
			p[0]++;
			break;
		default:	/* doorbell */
			first = start(&lab, ACCEL_FILL, p, PAGE, i);
			finish(&lab, start(&lab, ACCEL_FILL, p + PAGE / 8, PAGE, i));
			finish(&lab, first);
		}
	}
	return 0;
}

static void test_killed(const char *kind)
{
	unsigned long before = pool_settled(pool("vram_pages")), after;
	unsigned int i, odd = 0;

	for (i = 0; i < VICTIMS; i++) {
		int status = 0;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (!pid) {
			execl("/proc/self/exe", "hmm_hard_test", "victim", kind, (char *)NULL);
			_exit(1);
		}
		usleep(20000 + dice(40000));
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		odd += !WIFSIGNALED(status);
	}
	after = pool_settled(before);
	ksft_ok(!odd && after == before, "killed in %s: %u of %u ended otherwise, %lu of %lu pages of VRAM free",
		kind, odd, VICTIMS, after, before);
}

static void test_deaths(void)
{
	static const char * const kinds[] = { "fault", "copy", "exclusive", "doorbell" };

	for (unsigned int i = 0; i < 4; i++)
		test_killed(kinds[i]);
}

static void test_unmaps(void)
{
	test_unmap(false);
	test_unmap(true);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "unmap", test_unmaps },
	{ "revoke", test_revoke },
	{ "oversubscribed", test_oversubscribed },
	{ "pinned", test_pinned },
	{ "streams", test_streams },
	{ "two_devices", test_two_devices },
	{ "two_devices_data", test_two_devices_data },
	{ "killed", test_deaths },
};

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "victim"))
		return victim(argv[2]);
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	printf("# seed %llu\n", (unsigned long long)seed);
	if (!seed)
		seed = 1;
	lab_open(&lab, NULL, 0);
	lab_open(&second, "/dev/ummu_accel1", 0);
	for (unsigned int i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (argc < 3 || !strcmp(argv[2], tests[i].name))
			tests[i].run();
	lab_close(&second);
	lab_close(&lab);
	return ksft_exit();
}
