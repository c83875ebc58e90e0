// SPDX-License-Identifier: MIT
/*
 * Every kind of memory in every way of use: the device reads it, something is
 * done to it, the device reads and writes it again, the CPU compares.
 *
 *   hmm_matrix_test [SEED]        TAP output, one line per pair
 */
#include "hmm_lab.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#define SIZE	   (16 * PAGE)
#define THREADS	   3
#define MANY	   6
#define MPOL_MF_MOVE 2

struct sample {
	struct lab lab;
	uint64_t seed;
	char *p;		/* what the device uses, size bytes of it */
	size_t size;
	char *base;		/* what is unmapped in the end */
	size_t length;
	char *granted;
	size_t granted_size;
	pid_t child;
};

/* Returns NULL or what went wrong; the contents stay */
typedef const char *change_fn(struct sample *s);
typedef void make_fn(struct sample *s);

static void grant(struct sample *s)
{
	s->granted = s->p;
	s->granted_size = s->size;
	grant_to(&s->lab, s->p, s->size);
}

static void ungrant(struct sample *s)
{
	if (ummu_ungrant(s->lab.tid, s->granted, s->granted_size))
		ksft_bail("ungrant");
}

static void *no_thp(void *p, size_t length)
{
	madvise(p, length, MADV_NOHUGEPAGE);
	return p;
}

/* At a place of its own: what is unmapped and still granted must not be mapped by another thread */
static void map_flags(struct sample *s, size_t size, int flags, int fd)
{
	s->size = size;
	s->length = size;
	s->base = mmap(place(), size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
	if (s->base == MAP_FAILED)
		ksft_bail("memory for a test");
	s->p = s->base;
}

static void make_mmap(struct sample *s)
{
	map_flags(s, SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	no_thp(s->base, s->length);
}

/* On the heap; a grant begins with a page and may end anywhere */
static void make_malloc(struct sample *s)
{
	s->size = SIZE - 64;
	s->base = malloc(SIZE + PAGE);
	s->length = 0;
	s->p = (char *)(((uintptr_t)s->base + PAGE - 1) & ~(PAGE - 1));
}

static void make_file(struct sample *s)
{
	char name[] = "/tmp/hmm_matrix.XXXXXX";
	int fd = mkstemp(name);

	if (fd < 0 || ftruncate(fd, SIZE))
		ksft_bail("file for a test");
	unlink(name);
	map_flags(s, SIZE, MAP_SHARED, fd);
	close(fd);
}

static void make_shared(struct sample *s)
{
	map_flags(s, SIZE, MAP_SHARED | MAP_ANONYMOUS, -1);
}

/* 2 MiB aligned, advised */
static void make_huge(struct sample *s)
{
	map_flags(s, 2 * HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	s->p = (char *)(((uintptr_t)s->base + HUGE - 1) & ~(HUGE - 1));
	s->size = 16 * SIZE;
	madvise(s->p, HUGE, MADV_HUGEPAGE);
}

static void make_hugetlb(struct sample *s)
{
	map_flags(s, HUGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	s->size = SIZE;
}

/* ---------------------------------------------------------------- changes */

static const char *nothing(struct sample *s)
{
	(void)s;
	return NULL;
}

static const char *do_mlock(struct sample *s)
{
	return mlock(s->p, s->size) ? "mlock" : NULL;
}

static const char *do_fork(struct sample *s)
{
	fflush(stdout);
	s->child = fork();
	if (!s->child) {
		pause();
		_exit(0);
	}
	return s->child < 0 ? "fork" : NULL;
}

/* The old address is dead for the device, the new one needs a grant */
static const char *do_mremap(struct sample *s)
{
	char *to = mremap(s->base, s->length, s->length, MREMAP_MAYMOVE | MREMAP_FIXED, place());
	char *old = s->p;

	if (to == MAP_FAILED)
		return "mremap";
	s->p = s->base = to;
	if (lab_run(&s->lab, ACCEL_CRC32C, old, 8, 0, NULL) != ACCEL_ST_FAULT)
		return "the old address lives";
	ungrant(s);
	grant(s);
	return NULL;
}

static const char *do_partial_unmap(struct sample *s)
{
	char *tail = s->base + s->length / 2;

	munmap(tail, s->length / 2);
	if (lab_run(&s->lab, ACCEL_CRC32C, tail, 8, 0, NULL) != ACCEL_ST_FAULT)
		return "the unmapped half lives";
	s->size /= 2;
	s->length /= 2;
	return NULL;
}

static const char *do_mprotect(struct sample *s)
{
	uint64_t first = *(uint64_t *)s->p;

	mprotect(s->p, s->size, PROT_READ);
	if (lab_run(&s->lab, ACCEL_FILL, s->p, 8, ~first, NULL) != ACCEL_ST_FAULT)
		return "written though read only";
	mprotect(s->p, s->size, PROT_NONE);
	if (lab_run(&s->lab, ACCEL_CRC32C, s->p, 8, 0, NULL) != ACCEL_ST_FAULT)
		return "read though out of reach";
	mprotect(s->p, s->size, PROT_READ | PROT_WRITE);
	return NULL;
}

/* Contents are gone, and the device must not see the old ones */
static const char *do_dontneed(struct sample *s)
{
	uint64_t crc, zeros;

	madvise(s->p, s->size, MADV_DONTNEED);
	if (lab_run(&s->lab, ACCEL_CRC32C, s->p, s->size, 0, &crc) != ACCEL_ST_OK)
		return "not readable";
	for (size_t i = 0; i < s->size / 8; i++)
		if (((uint64_t *)s->p)[i])
			return "not zero for the CPU";
	if (lab_run(&s->lab, ACCEL_CRC32C, s->p, s->size, 0, &zeros) != ACCEL_ST_OK || crc != zeros)
		return "not zero for the device";
	numbers((uint64_t *)s->p, s->size);
	return NULL;
}

static const char *advised(struct sample *s, int advice, const char *name)
{
	return madvise(s->p, s->size, advice) ? name : NULL;
}

static const char *do_cold(struct sample *s)
{
	return advised(s, MADV_COLD, "MADV_COLD");
}

/* Out to zram: the device's fault brings it back */
static const char *do_pageout(struct sample *s)
{
	return advised(s, MADV_PAGEOUT, "MADV_PAGEOUT");
}

static const char *do_willneed(struct sample *s)
{
	return advised(s, MADV_WILLNEED, "MADV_WILLNEED");
}

static const char *do_mergeable(struct sample *s)
{
	return advised(s, MADV_MERGEABLE, "MADV_MERGEABLE");
}

static const char *do_unmergeable(struct sample *s)
{
	const char *wrong = do_mergeable(s);

	return wrong ? wrong : advised(s, MADV_UNMERGEABLE, "MADV_UNMERGEABLE");
}

static const char *do_prefetch(struct sample *s)
{
	/* the queue that owns the mirror, not the thread's */
	return accel_prefetch(lab.queue, s->base, s->length) < 0 ? "prefetch" : NULL;
}

/* To the other node, wherever it was */
static const char *do_numa(struct sample *s)
{
	void *pages[SIZE / PAGE];
	int nodes[SIZE / PAGE], status[SIZE / PAGE], n = s->size / PAGE;

	/* what lies in device memory does not move between nodes, and the device moves chunks */
	accel_advise(lab.queue, s->base, s->length, ACCEL_ADVICE_PREFER_SYSTEM);
	accel_evict(lab.queue, s->base, s->length);
	for (int i = 0; i < n; i++)
		pages[i] = s->p + i * PAGE;
	if (syscall(__NR_move_pages, 0, n, pages, NULL, status, 0))
		return "move_pages: where";
	for (int i = 0; i < n; i++)
		nodes[i] = status[i] == 0;
	if (syscall(__NR_move_pages, 0, n, pages, nodes, status, MPOL_MF_MOVE) < 0)
		return "move_pages";
	for (int i = 0; i < n; i++)
		if (status[i] != nodes[i])
			return "a page that did not move";
	return NULL;
}

static const struct kind {
	const char *name;
	make_fn *make;
	change_fn *before, *change;	/* before and after the device's first look */
} kinds[] = {
	{ "malloc", make_malloc, nothing, nothing },
	{ "mmap", make_mmap, nothing, nothing },
	{ "file", make_file, nothing, nothing },
	{ "shared", make_shared, nothing, nothing },
	{ "huge", make_huge, nothing, nothing },
	{ "hugetlb", make_hugetlb, nothing, nothing },
	{ "mlock", make_mmap, nothing, do_mlock },
	{ "fork before", make_mmap, do_fork, nothing },
	{ "fork after", make_mmap, nothing, do_fork },
	{ "mremap", make_mmap, nothing, do_mremap },
	{ "partial unmap", make_mmap, nothing, do_partial_unmap },
	{ "partial unmap of a file", make_file, nothing, do_partial_unmap },
	{ "mprotect", make_mmap, nothing, do_mprotect },
	{ "mprotect of huge", make_huge, nothing, do_mprotect },
	{ "MADV_DONTNEED", make_mmap, nothing, do_dontneed },
	{ "MADV_DONTNEED of huge", make_huge, nothing, do_dontneed },
	{ "MADV_COLD", make_mmap, nothing, do_cold },
	{ "MADV_WILLNEED", make_mmap, nothing, do_willneed },
	{ "swapped out", make_mmap, nothing, do_pageout },
	{ "swapped out before", make_mmap, do_pageout, nothing },
	{ "KSM", make_mmap, nothing, do_mergeable },
	{ "KSM undone", make_mmap, nothing, do_unmergeable },
	{ "prefetched before", make_mmap, do_prefetch, nothing },
	{ "prefetched", make_mmap, nothing, do_prefetch },
	{ "prefetched, then swapped out", make_mmap, do_prefetch, do_pageout },
	{ "prefetched, then forked", make_mmap, do_prefetch, do_fork },
	{ "prefetched, then moved", make_mmap, do_prefetch, do_mremap },
	{ "prefetched, then half unmapped", make_mmap, do_prefetch, do_partial_unmap },
	{ "prefetched, then mprotect", make_mmap, do_prefetch, do_mprotect },
	{ "prefetched, then MADV_DONTNEED", make_mmap, do_prefetch, do_dontneed },
	{ "NUMA move", make_mmap, nothing, do_numa },
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---------------------------------------------------------------- one pair */

static const char *look_and_write(struct sample *s, uint64_t before)
{
	uint64_t *p = (uint64_t *)s->p, crc, value = s->seed * 0x9e3779b97f4a7c15u;

	if (!are_numbers(p, s->size))
		return "the CPU sees other contents";
	if (lab_run(&s->lab, ACCEL_CRC32C, p, s->size, 0, &crc) != ACCEL_ST_OK)
		return "the device cannot read";
	if (before && crc != before)
		return "the device sees other contents";
	if (lab_run(&s->lab, ACCEL_FILL, p, s->size, value, NULL) != ACCEL_ST_OK)
		return "the device cannot write";
	return all(p, s->size, value) ? NULL : "the device's writes are not there";
}

static const char *once(const struct kind *k, const struct lab *l, uint64_t seed)
{
	struct sample s = { .lab = *l, .seed = seed };
	const char *wrong;
	uint64_t crc = 0;
	size_t size;

	k->make(&s);
	numbers((uint64_t *)s.p, s.size);
	size = s.size;
	grant(&s);
	wrong = k->before(&s);
	if (!wrong && lab_run(l, ACCEL_CRC32C, s.p, s.size, 0, &crc) != ACCEL_ST_OK)
		wrong = "the device cannot read at first";
	if (!wrong)
		wrong = k->change(&s);
	if (!wrong)
		wrong = look_and_write(&s, s.size == size ? crc : 0);
	ungrant(&s);
	if (s.child) {
		kill(s.child, SIGKILL);
		waitpid(s.child, NULL, 0);
	}
	if (s.length)
		munmap(s.base, s.length);
	else
		free(s.base);
	return wrong;
}

/* ---------------------------------------------------------------- ways of use */

struct worker {
	const struct kind *kind;
	struct lab lab;
	uint64_t seed;
	const char *wrong;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (uint64_t i = 0; i < MANY / 2 && !w->wrong; i++)
		w->wrong = once(w->kind, &w->lab, w->seed + i);
	return NULL;
}

static const char *use_once(const struct kind *k, uint64_t seed)
{
	return once(k, &lab, seed);
}

static const char *use_many(const struct kind *k, uint64_t seed)
{
	const char *wrong = NULL;

	for (uint64_t i = 0; i < MANY && !wrong; i++)
		wrong = once(k, &lab, seed + i);
	return wrong;
}

static const char *threads(const struct kind *k, uint64_t seed, bool own_queue)
{
	struct worker w[THREADS];
	pthread_t t[THREADS];
	const char *wrong = NULL;

	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .kind = k, .lab = lab, .seed = seed + 100 * i };
		if (own_queue && (accel_open(NULL, 0, &w[i].lab.queue) ||
				  accel_bind_tid(w[i].lab.queue, lab.tid)))
			ksft_bail("a queue for a thread");
		pthread_create(&t[i], NULL, work, &w[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		if (own_queue)
			accel_close(w[i].lab.queue);
		if (w[i].wrong)
			wrong = w[i].wrong;
	}
	return wrong;
}

static const char *use_threads(const struct kind *k, uint64_t seed)
{
	return threads(k, seed, true);
}

static const char *use_shared_queue(const struct kind *k, uint64_t seed)
{
	return threads(k, seed, false);
}

/* A process of its own for each: started anew, since a fork has no TIDs */
static const char *use_processes(const struct kind *k, uint64_t seed)
{
	char kind[16], number[32];
	pid_t pids[THREADS];
	int status, bad = 0;

	snprintf(kind, sizeof(kind), "%zu", (size_t)(k - kinds));
	fflush(stdout);
	for (int i = 0; i < THREADS; i++) {
		snprintf(number, sizeof(number), "%llu", (unsigned long long)seed + 100 * i);
		pids[i] = fork();
		if (!pids[i]) {
			execl("/proc/self/exe", "hmm_matrix_test", number, kind, (char *)NULL);
			_exit(1);
		}
	}
	for (int i = 0; i < THREADS; i++) {
		waitpid(pids[i], &status, 0);
		bad |= status;
	}
	return bad ? "a process failed, see above" : NULL;
}

static const struct {
	const char *name;
	const char *(*run)(const struct kind *k, uint64_t seed);
} ways[] = {
	{ "once", use_once },
	{ "many", use_many },
	{ "threads", use_threads },
	{ "shared queue", use_shared_queue },
	{ "processes", use_processes },
};

static int one_process(size_t kind, uint64_t seed)
{
	const char *wrong;

	if (kind >= KINDS)
		return 2;
	wrong = use_once(&kinds[kind], seed);
	if (wrong)
		printf("# %s in a process: %s\n", kinds[kind].name, wrong);
	return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

	lab_open(&lab, NULL, 0);
	if (argc > 2)
		return one_process(strtoul(argv[2], NULL, 0), seed);
	printf("# seed %llu\n", (unsigned long long)seed);
	for (unsigned int w = 0; w < sizeof(ways) / sizeof(ways[0]); w++)
		for (unsigned int k = 0; k < KINDS; k++) {
			const char *wrong = ways[w].run(&kinds[k], seed + 1000 * k);

			ksft_ok(!wrong, "%s, %s%s%s", kinds[k].name, ways[w].name, wrong ? ": " : "",
				wrong ? wrong : "");
		}
	lab_close(&lab);
	return ksft_exit();
}
