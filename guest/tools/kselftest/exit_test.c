// SPDX-License-Identifier: MIT
/*
 * A process ends while its other threads are inside libummu: from main(), by
 * exit() in a thread, by exit() in a signal handler that broke into a call.
 * TAP output.
 */
#define _GNU_SOURCE
#include "ksft.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ummu_api.h>

#define THREADS	 3
#define CHILDREN 15
#define SIZE	 65536

static uint32_t tid;

/* Grants and ungrants for ever; after the end of the library all of it fails */
static void *worker(void *at)
{
	struct ummu_seg_attr seg = { .e_bit = UMMU_EBIT_OFF };

	for (;;) {
		ummu_grant(tid, at, SIZE, MAPT_PERM_RW, &seg);
		ummu_ungrant(tid, at, SIZE);
	}
	return NULL;
}

static void end_from_signal(int sig)
{
	(void)sig;
	exit(0);
}

static int child(int kind, int delay_us)
{
	struct ummu_tid_attr attr = { .mode = MAPT_MODE_TABLE };
	pthread_t t;

	if (ummu_allocate_tid(&attr, &tid))
		return 1;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t, NULL, worker, (void *)(0x500000000000 + (i << 39)));
	if (kind == 2) {
		struct sigaction action = { .sa_handler = end_from_signal };

		sigaction(SIGALRM, &action, NULL);
		ualarm(delay_us + 1000, 0);
		worker((void *)0x700000000000);
	}
	usleep(delay_us);
	if (kind == 1)
		ummu_free_tid(tid);
	exit(0);
}

static void test_kind(int kind, const char *name)
{
	unsigned int odd = 0;

	for (int i = 0; i < CHILDREN; i++) {
		char number[12], delay[12];
		int status;
		pid_t pid;

		snprintf(number, sizeof(number), "%d", kind);
		snprintf(delay, sizeof(delay), "%d", i * 700);
		fflush(stdout);
		pid = fork();
		if (!pid) {
			execl("/proc/self/exe", "exit_test", number, delay, (char *)NULL);
			_exit(1);
		}
		waitpid(pid, &status, 0);
		odd += !WIFEXITED(status) || WEXITSTATUS(status);
	}
	ksft_ok(!odd, "%s: %u of %u ended in another way", name, odd, CHILDREN);
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return child(atoi(argv[1]), atoi(argv[2]));
	test_kind(0, "exit while threads grant");
	test_kind(1, "free, then exit, while threads grant");
	test_kind(2, "exit from a signal handler inside a call");
	return ksft_exit();
}
