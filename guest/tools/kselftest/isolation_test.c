// SPDX-License-Identifier: MIT
/*
 * A hostile process against a victim and against the kernel: other people's TIDs
 * and addresses, garbage in permission tables, user queues and doorbells.  Nothing
 * of the victim may be read or changed, nothing may hang or crash.  TAP output.
 *
 * Usage: isolation_test [SEED]
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>

#include <ummu_accel_lib.h>
#include <ummu_api.h>

#include "ksft.h"
#include "ummu_sys.h"

#define PAGE	   4096ul
#define SECRET	   0x5ec2e75ec2e75ec2ull
#define TIMEOUT_MS 20000
#define ROUNDS	   60

struct victim {
	pid_t pid;
	uint32_t tid;
	uint64_t *page;
	int ask, answer;	/* pipes: any byte in, the secret out */
};

static uint32_t seed;
static struct accel_queue *queue;
static uint32_t own_tid;
static uint64_t *own_page;

static uint32_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed;
}

/* ---- the victim ------------------------------------------------------------- */

static void be_victim(int in, int out)
{
	struct ummu_tid_attr attr = { .mode = MAPT_MODE_TABLE };
	struct ummu_seg_attr seg = { .e_bit = UMMU_EBIT_OFF };
	struct victim v = { .pid = getpid() };
	char byte;

	v.page = mmap((void *)0x770000000000, PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (v.page == MAP_FAILED || ummu_allocate_tid(&attr, &v.tid) ||
	    ummu_grant(v.tid, v.page, PAGE, MAPT_PERM_ATOMIC_RW, &seg))
		_exit(1);
	v.page[0] = SECRET;
	if (write(out, &v, sizeof(v)) != sizeof(v))
		_exit(1);
	while (read(in, &byte, 1) == 1)
		if (write(out, v.page, 8) != 8)
			_exit(1);
	_exit(0);
}

static struct victim start_victim(void)
{
	struct victim v = { 0 };
	int in[2], out[2];
	pid_t pid;

	if (pipe(in) || pipe(out))
		ksft_bail("pipe");
	pid = fork();
	if (!pid) {
		close(in[1]);
		close(out[0]);
		be_victim(in[0], out[1]);
	}
	close(in[0]);
	close(out[1]);
	if (read(out[0], &v, sizeof(v)) != sizeof(v))
		ksft_bail("victim");
	v.ask = in[1];
	v.answer = out[0];
	return v;
}

static bool victim_unharmed(const struct victim *v)
{
	uint64_t word = 0;

	return write(v->ask, "?", 1) == 1 && read(v->answer, &word, 8) == 8 && word == SECRET;
}

/* ---- jobs ------------------------------------------------------------------- */

static struct accel_result job(enum accel_op op, uint32_t tid, const void *addr, uint64_t length)
{
	struct accel_job j = { .op = op, .length = length, .dtype = ACCEL_TYPE_U64, .pattern = ~0ull, .value = 1 };
	struct accel_operand o = { .addr = addr, .tid = tid };
	struct accel_result r = { .status = ACCEL_ST_NONE };

	if (op == ACCEL_FILL)
		j.dst = o;
	else
		j.src = o;
	if (accel_run(queue, &j, TIMEOUT_MS, &r))
		r.status = ACCEL_ST_NONE;
	return r;
}

static const enum accel_op touching[] = { ACCEL_CRC32C, ACCEL_FILL, ACCEL_ATOMIC };

static void expect_all(uint32_t tid, const void *addr, enum accel_status want, const char *name)
{
	for (unsigned int i = 0; i < 3; i++) {
		struct accel_result r = job(touching[i], tid, addr, 8);

		ksft_ok(r.status == want, "%s: %s", name, accel_strstatus(r.status));
	}
}

static void test_foreign_tid(const struct victim *v)
{
	unsigned int bound = 0;

	ksft_ok(accel_bind_tid(queue, v->tid) < 0, "the victim's TID cannot be bound");
	expect_all(v->tid, v->page, ACCEL_ST_NOT_BOUND, "the victim's TID in a job");
	ksft_ok(ummu_free_tid(v->tid) == -EINVAL, "the victim's TID cannot be freed");
	for (uint32_t tid = 0; tid < 64; tid++)
		bound += tid != own_tid && !accel_bind_tid(queue, tid);
	ksft_ok(bound <= 1, "beside ours only the queue's own TID can be bound (%u)", bound);
	ksft_ok(accel_bind_tid(queue, 0xfffff) < 0 && accel_bind_tid(queue, ~0u) < 0, "nor any other");
}

static void test_foreign_address(const struct victim *v)
{
	struct ummu_seg_attr seg = { .e_bit = UMMU_EBIT_OFF };
	static const uint64_t wild[] = { 0, 0x1000, 0xffff800000000000ull, 0xffffffffffffff00ull, 1ull << 47 };

	expect_all(own_tid, v->page, ACCEL_ST_FAULT, "the victim's address, not granted");
	ksft_ret(ummu_grant(own_tid, v->page, PAGE, MAPT_PERM_ATOMIC_RW, &seg), 0, "granted by us, where we have nothing");
	expect_all(own_tid, v->page, ACCEL_ST_FAULT, "the victim's address through our page table");
	for (unsigned int i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
		expect_all(own_tid, (void *)(uintptr_t)wild[i], ACCEL_ST_FAULT, "a wild address");
	ksft_ok(job(ACCEL_CRC32C, own_tid, own_page, PAGE).status == ACCEL_ST_OK, "our own page works");
}

/* ---- garbage ---------------------------------------------------------------- */

/* The mapping of a device at a file offset; length 0: none. */
static char *find_mapping(const char *name, uint64_t offset, size_t *length)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");

	*length = 0;
	while (maps && fgets(line, sizeof(line), maps)) {
		uint64_t first, last, at;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &first, &last, &at) == 3 &&
		    strstr(line, name) && (at == offset || offset == UINT64_MAX)) {
			*length = last - first;
			fclose(maps);
			return (char *)(uintptr_t)first;
		}
	}
	if (maps)
		fclose(maps);
	return NULL;
}

static void scribble(volatile uint32_t *at, size_t words)
{
	for (unsigned int i = 0; i < 64; i++) {
		uint32_t value = rnd();

		/* Often something that looks valid, and points anywhere. */
		at[rnd() % words] = rnd() & 1 ? value : value | 1;
	}
}

static void test_garbage_in_the_table(const struct victim *v)
{
	size_t length;
	char *block = find_mapping(TID_NODE, block_off(own_tid, 0), &length);
	bool ended = true;

	if (!ksft_ok(block, "the permission table is mapped"))
		return;
	for (unsigned int i = 0; i < ROUNDS; i++) {
		uint64_t addr = rnd() & 1 ? (uintptr_t)own_page : ((uint64_t)rnd() << 16 | rnd()) & ((1ull << 48) - 1);

		scribble((uint32_t *)block, length / 4);
		ended &= job(touching[i % 3], own_tid, (void *)(uintptr_t)(addr & ~7ull), 8).status != ACCEL_ST_NONE;
		ummu_ungrant(own_tid, own_page, PAGE + 1);	/* nothing there: just makes the library look */
	}
	ksft_ok(ended, "every job over a random table ended");
	ksft_ok(victim_unharmed(v), "the victim is unharmed by random tables");
}

static void test_garbage_in_the_queue(const struct victim *v)
{
	size_t length;
	char *rings = find_mapping(TID_NODE, queue_off(own_tid), &length);

	if (!rings)	/* invalidations go by ioctl: there is no queue to write to */
		return;
	for (unsigned int i = 0; i < ROUNDS; i++) {
		volatile uint16_t *page = (volatile uint16_t *)(rings + length - PAGE);

		scribble((uint32_t *)rings, (length - PAGE) / 4);
		page[rnd() % 8] = (uint16_t)rnd();
		page[0] = (uint16_t)(rnd() & 0x1ff);
	}
	ksft_ok(victim_unharmed(v), "the victim is unharmed by random commands");
}

static void test_garbage_at_the_doorbell(const struct victim *v)
{
	size_t length;
	char *bell = find_mapping("/dev/ummu_accel0", UINT64_MAX, &length);

	if (!ksft_ok(bell, "the doorbell page is mapped"))
		return;
	for (unsigned int i = 0; i < ROUNDS; i++)
		*(volatile uint32_t *)(bell + (rnd() % (length / 4)) * 4) = rnd();
	ksft_ok(victim_unharmed(v), "the victim is unharmed by random doorbells");
}

/* ---- the whole -------------------------------------------------------------- */

static void set_up(void)
{
	struct ummu_tid_attr attr = { .mode = MAPT_MODE_TABLE };
	struct ummu_seg_attr seg = { .e_bit = UMMU_EBIT_OFF };

	own_page = aligned_alloc(PAGE, PAGE);
	if (!own_page || accel_open(NULL, 0, &queue) || ummu_allocate_tid(&attr, &own_tid) ||
	    accel_bind_tid(queue, own_tid) || ummu_grant(own_tid, own_page, PAGE, MAPT_PERM_ATOMIC_RW, &seg))
		ksft_bail("set-up");
	memset(own_page, 0x11, PAGE);
}

int main(int argc, char **argv)
{
	struct victim v = start_victim();

	seed = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) | 1 : 1;
	printf("# seed 0x%" PRIx32 "\n", seed);
	set_up();
	test_foreign_tid(&v);
	test_foreign_address(&v);
	test_garbage_in_the_table(&v);
	test_garbage_in_the_queue(&v);
	test_garbage_at_the_doorbell(&v);
	accel_close(queue);
	ksft_ret(ummu_free_tid(own_tid), 0, "our TID can be freed");
	ksft_ok(victim_unharmed(&v), "the victim is unharmed at the end");
	close(v.ask);
	waitpid(v.pid, NULL, 0);
	return ksft_exit();
}
