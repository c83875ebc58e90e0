// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * grant_bench: what libummu's calls cost.  One JSON object a line; times in seconds.
 *
 *   grant_bench live N      grant + ungrant of one range beside N open ones
 *   grant_bench threads N   grant + ungrant by N threads, each with a TID of its own
 *   grant_bench batch N     N grants and ungrants one by one, and as two batches
 *   grant_bench nop         doorbell to completion of an empty job
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ummu_accel_lib.h>
#include <ummu_ext.h>

#define BASE	  0x100000000000ull	/* grants need no memory behind them */
#define STEP	  0x2000ull
#define SIZE	  0x1000u
#define ROUNDS	  300
#define THREADS	  64
#define BUSY_NS	  400000000ll

static struct ummu_seg_attr no_token = { .token = NULL, .e_bit = UMMU_EBIT_OFF };

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static void *place(unsigned long i)
{
	return (void *)(uintptr_t)(BASE + i * STEP);
}

static void need(int ret, const char *what)
{
	if (!ret)
		return;
	fprintf(stderr, "grant_bench: error: %s: %d\n", what, ret);
	exit(1);
}

static uint32_t new_tid(void)
{
	struct ummu_tid_attr attr = { .mode = MAPT_MODE_TABLE };
	uint32_t tid;

	need(ummu_allocate_tid(&attr, &tid), "cannot allocate a TID");
	return tid;
}

static void pair(uint32_t tid, void *at)
{
	need(ummu_grant(tid, at, SIZE, MAPT_PERM_RW, &no_token), "grant");
	need(ummu_ungrant(tid, at, SIZE), "ungrant");
}

static int bench_live(unsigned long live)
{
	uint32_t tid = new_tid();
	int64_t start;

	for (unsigned long i = 0; i < live; i++)
		need(ummu_grant(tid, place(2 * i), SIZE, MAPT_PERM_RW, &no_token), "grant");
	pair(tid, place(live | 1));
	start = now_ns();
	for (unsigned int i = 0; i < ROUNDS; i++)
		pair(tid, place((live + 2 * i) | 1));
	printf("{\"seconds\": %.9f}\n", (double)(now_ns() - start) / ROUNDS / 1e9);
	return 0;
}

struct worker {
	pthread_t thread;
	pthread_barrier_t *barrier;
	unsigned long done;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	uint32_t tid = new_tid();
	int64_t end;

	pthread_barrier_wait(w->barrier);
	for (end = now_ns() + BUSY_NS; now_ns() < end; w->done++)
		pair(tid, place(w->done & 255));
	pthread_barrier_wait(w->barrier);
	return NULL;
}

static int bench_threads(unsigned long count)
{
	static struct worker workers[THREADS];
	pthread_barrier_t barrier;
	unsigned long total = 0;
	int64_t start;

	if (!count || count > THREADS)
		need(-1, "number of threads");
	pthread_barrier_init(&barrier, NULL, (unsigned int)count + 1);
	for (unsigned long i = 0; i < count; i++) {
		workers[i].barrier = &barrier;
		need(pthread_create(&workers[i].thread, NULL, work, &workers[i]), "thread");
	}
	pthread_barrier_wait(&barrier);
	start = now_ns();
	pthread_barrier_wait(&barrier);
	start = now_ns() - start;
	for (unsigned long i = 0; i < count; i++) {
		pthread_join(workers[i].thread, NULL);
		total += workers[i].done;
	}
	printf("{\"per_second\": %.1f}\n", (double)total * 1e9 / (double)start);
	return 0;
}

static int bench_batch(unsigned long count)
{
	struct ummu_range *ranges = calloc(count, sizeof(*ranges));
	uint32_t tid = new_tid();
	int64_t start, single, batch;
	size_t failed;

	if (!ranges)
		need(-1, "memory");
	for (unsigned long i = 0; i < count; i++)
		ranges[i] = (struct ummu_range){ place(i), SIZE, MAPT_PERM_RW, &no_token };
	start = now_ns();
	for (unsigned long i = 0; i < count; i++)
		need(ummu_grant(tid, ranges[i].data, SIZE, MAPT_PERM_RW, &no_token), "grant");
	for (unsigned long i = 0; i < count; i++)
		need(ummu_ungrant(tid, ranges[i].data, SIZE), "ungrant");
	single = now_ns() - start;
	start = now_ns();
	need(ummu_grant_many(tid, ranges, count, &failed), "grant_many");
	need(ummu_ungrant_many(tid, ranges, count, &failed), "ungrant_many");
	batch = now_ns() - start;
	printf("{\"single\": %.9f, \"batch\": %.9f}\n", (double)single / 1e9, (double)batch / 1e9);
	free(ranges);
	return 0;
}

static int bench_nop(void)
{
	struct accel_job job = { .op = ACCEL_NOP };
	struct accel_result result;
	struct accel_queue *queue;
	int64_t start;

	need(accel_open(NULL, 0, &queue), "cannot open the accelerator");
	need(accel_run(queue, &job, 10000, &result), "job");
	start = now_ns();
	for (unsigned int i = 0; i < ROUNDS; i++)
		need(accel_run(queue, &job, 10000, &result), "job");
	printf("{\"seconds\": %.9f}\n", (double)(now_ns() - start) / ROUNDS / 1e9);
	accel_close(queue);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;

	if (argc > 1 && !strcmp(argv[1], "live"))
		return bench_live(n);
	if (argc > 1 && !strcmp(argv[1], "threads"))
		return bench_threads(n);
	if (argc > 1 && !strcmp(argv[1], "batch"))
		return bench_batch(n);
	if (argc > 1 && !strcmp(argv[1], "nop"))
		return bench_nop();
	fprintf(stderr, "usage: grant_bench live|threads|batch N, or grant_bench nop\n");
	return 2;
}
