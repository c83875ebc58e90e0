// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ummu-demo zero-copy: one allowed copy in place by virtual address, then four
 * accesses that must be refused, each with the memory checked afterwards.
 *
 * The CPU never copies: it fills the source, and reads both sides to compare.
 * That the accelerator moved the bytes is shown by its own byte counters.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"

#define BUFFER	   ((size_t)1 << 20)
#define GUARD	   ((size_t)4096)
#define SRC_TOKEN  0x5eed0001u
#define DST_TOKEN  0x5eed0002u
#define BAD_TOKEN  0x0badc0deu
#define DST_BYTE   0x5a
#define DONE	   "done"
#define REFUSED	   "refused"
#define NOT_ENDED  "not ended"
#define MISMATCH   "done, but the data differs"

struct outcome {
	const char *name;
	const char *words;
	const char *expected;
	const char *got;
	char event[32];
	bool memory_unchanged;
	char text[256];
	char reason[96];
};

struct grant {
	const uint8_t *addr;
	uint32_t token;
	bool writable, live;
};

struct setting {
	struct demo d;
	uint8_t *src;		/* BUFFER bytes, then a guard page */
	uint8_t *dst;		/* the same */
	uint64_t bytes_read, bytes_written;
	bool json;
	struct grant grants[2];
	struct outcome outcomes[5];
	unsigned int count;
};

static struct accel_operand operand(const struct setting *s, const void *addr, uint32_t token)
{
	return (struct accel_operand){ .addr = addr, .tid = s->d.tid, .has_token = true, .token = token };
}

static struct accel_job copy_job(const struct setting *s, const void *from, uint32_t from_token, void *to,
				 uint32_t to_token, size_t size)
{
	return (struct accel_job){
		.op = ACCEL_COPY,
		.length = size,
		.src = operand(s, from, from_token),
		.dst = operand(s, to, to_token),
	};
}

static struct outcome *next(struct setting *s, const char *name, const char *words, const char *expected)
{
	struct outcome *o = &s->outcomes[s->count++];

	*o = (struct outcome){ .name = name, .words = words, .expected = expected, .got = NOT_ENDED };
	return o;
}

/*
 * The UMMU says only that there is no permission.  Why, this process can tell,
 * because it made the grants: look at them the way the UMMU looks at its table.
 */
static void explain(const struct setting *s, struct outcome *o, const struct accel_job *job,
		    const struct accel_result *r)
{
	bool dst = r->operand == 1;
	const struct accel_operand *op = dst ? &job->dst : &job->src;
	const char *why = "nothing is granted at this address";

	for (unsigned int i = 0; i < 2; i++) {
		const struct grant *g = &s->grants[i];
		uint64_t start = (uintptr_t)g->addr;

		if (!g->live || r->fault_addr < start || r->fault_addr >= start + BUFFER)
			continue;
		if (dst && !g->writable)
			why = "the grant there is for reading only";
		else if (op->token != g->token)
			why = "the grant there has another token";
		else
			why = "the grant there allows this: a fault of the UMMU";
	}
	snprintf(o->reason, sizeof(o->reason), "%s", why);
	snprintf(o->text, sizeof(o->text),
		 "refused: event %s, %s at 0x%" PRIx64 ": %s; %" PRIu64 " bytes were done",
		 o->event, dst ? "writing" : "reading", r->fault_addr, why, r->bytes_done);
}

/* Run one job and put down how it ended. */
static bool run(struct setting *s, struct outcome *o, const struct accel_job *job, struct accel_result *r)
{
	int ret = accel_run(s->d.queue, job, JOB_TIMEOUT_MS, r);

	if (ret) {
		snprintf(o->text, sizeof(o->text), "the job did not end: %s", strerror(-ret));
		return false;
	}
	accel_describe(r, o->text, sizeof(o->text));
	switch (r->status) {
	case ACCEL_ST_OK:
		o->got = DONE;
		break;
	case ACCEL_ST_FAULT:
		o->got = REFUSED;
		snprintf(o->event, sizeof(o->event), "EVT_%s", accel_event_name(r->event));
		explain(s, o, job, r);
		break;
	default:
		o->got = accel_strstatus(r->status);
	}
	return true;
}

static bool device_crc(struct setting *s, const void *addr, uint32_t token, uint32_t *crc)
{
	struct accel_job job = { .op = ACCEL_CRC32C, .length = BUFFER, .src = operand(s, addr, token) };
	struct accel_result r;

	if (accel_run(s->d.queue, &job, JOB_TIMEOUT_MS, &r) || r.status != ACCEL_ST_OK)
		return false;
	*crc = (uint32_t)r.result;
	return true;
}

/* The allowed copy.  The destination is granted for reading too, so that the accelerator can check its CRC. */
static void case_copy(struct setting *s)
{
	struct outcome *o = next(s, "copy", "copy between the two grants, in place", DONE);
	struct accel_job job = copy_job(s, s->src, SRC_TOKEN, s->dst, DST_TOKEN, BUFFER);
	uint32_t before = crc32c_cpu(s->src, BUFFER + GUARD), src_crc = 0, dst_crc = 1;
	struct accel_caps c0, c1;
	struct accel_result r;

	if (accel_query(s->d.queue, &c0) || !run(s, o, &job, &r) || accel_query(s->d.queue, &c1))
		return;
	s->bytes_read = c1.bytes_read - c0.bytes_read;
	s->bytes_written = c1.bytes_written - c0.bytes_written;
	if (r.status != ACCEL_ST_OK)
		return;
	if (!device_crc(s, s->src, SRC_TOKEN, &src_crc) || !device_crc(s, s->dst, DST_TOKEN, &dst_crc) ||
	    src_crc != dst_crc || dst_crc != crc32c_cpu(s->dst, BUFFER) || src_crc != crc32c_cpu(s->src, BUFFER))
		o->got = MISMATCH;
	else if (s->bytes_read < BUFFER || s->bytes_written < BUFFER)
		o->got = "done, but not by the accelerator";
	else
		snprintf(o->text, sizeof(o->text), "%zu bytes by the accelerator, 0 by the CPU; CRC32C %08" PRIx32
			 " on both sides", BUFFER, src_crc);
	/* What must not change here is the source, and what lies behind both ranges. */
	o->memory_unchanged = crc32c_cpu(s->src, BUFFER + GUARD) == before;
	for (size_t i = 0; i < GUARD; i++)
		o->memory_unchanged &= s->dst[BUFFER + i] == DST_BYTE;
}

/* A job that must be refused; both buffers and their guards are compared. */
static void refused(struct setting *s, const char *name, const char *words, const struct accel_job *job)
{
	struct outcome *o = next(s, name, words, REFUSED);
	uint32_t src_before, dst_before;
	struct accel_result r;

	memset(s->dst, DST_BYTE, BUFFER + GUARD);
	src_before = crc32c_cpu(s->src, BUFFER + GUARD);
	dst_before = crc32c_cpu(s->dst, BUFFER + GUARD);
	run(s, o, job, &r);
	o->memory_unchanged = crc32c_cpu(s->src, BUFFER + GUARD) == src_before &&
			      crc32c_cpu(s->dst, BUFFER + GUARD) == dst_before;
}

static bool run_cases(struct setting *s)
{
	struct accel_job job;
	int ret;

	case_copy(s);
	job = copy_job(s, s->src, BAD_TOKEN, s->dst, DST_TOKEN, BUFFER);
	refused(s, "wrong-token", "copy with a wrong token", &job);
	job = copy_job(s, s->src, SRC_TOKEN, s->dst + BUFFER, DST_TOKEN, 64);
	refused(s, "beyond-range", "write behind the end of the grant", &job);
	job = copy_job(s, s->dst, DST_TOKEN, s->src, SRC_TOKEN, BUFFER);
	refused(s, "write-to-read-only", "write to the read-only grant", &job);
	ret = ummu_ungrant(s->d.tid, s->dst, BUFFER);
	if (ret) {
		complain("cannot ungrant: %d", ret);
		return false;
	}
	s->grants[1].live = false;
	job = copy_job(s, s->src, SRC_TOKEN, s->dst, DST_TOKEN, BUFFER);
	refused(s, "after-ungrant", "copy after the grant was taken back", &job);
	return true;
}

static bool passed(const struct outcome *o)
{
	bool refusal = !strcmp(o->expected, REFUSED);

	return !strcmp(o->expected, o->got) && o->memory_unchanged &&
	       (!refusal || !strcmp(o->event, "EVT_P_PERMISSION"));
}

static bool report(const struct setting *s)
{
	bool ok = s->count == sizeof(s->outcomes) / sizeof(s->outcomes[0]);

	for (unsigned int i = 0; i < s->count; i++)
		ok &= passed(&s->outcomes[i]);
	if (s->json) {
		printf("{\"ok\": %s, \"bytes_read\": %" PRIu64 ", \"bytes_written\": %" PRIu64 ", \"cases\": [",
		       ok ? "true" : "false", s->bytes_read, s->bytes_written);
		for (unsigned int i = 0; i < s->count; i++) {
			const struct outcome *o = &s->outcomes[i];

			printf("%s{\"name\": \"%s\", \"expected\": \"%s\", \"got\": \"%s\", \"event\": \"%s\", "
			       "\"memory_unchanged\": %s, \"reason\": \"%s\"}",
			       i ? ", " : "", o->name, o->expected, o->got, o->event,
			       o->memory_unchanged ? "true" : "false", o->reason);
		}
		puts("]}");
		return ok;
	}
	for (unsigned int i = 0; i < s->count; i++) {
		const struct outcome *o = &s->outcomes[i];

		printf("%-4s  %-38s %s\n", passed(o) ? "ok" : "FAIL", o->words, o->text);
		if (!o->memory_unchanged)
			printf("      memory changed that must not change\n");
	}
	puts(ok ? "zero-copy: ok" : "zero-copy: FAILED");
	return ok;
}

int demo_zero_copy(bool json)
{
	struct ummu_token_info src_token = { .input = 0, .tokenVal = SRC_TOKEN };
	struct ummu_token_info dst_token = { .input = 0, .tokenVal = DST_TOKEN };
	struct setting s = { .json = json };
	uint32_t x = 1;
	bool ok = false;

	s.src = aligned_alloc(GUARD, BUFFER + GUARD);
	s.dst = aligned_alloc(GUARD, BUFFER + GUARD);
	if (!s.src || !s.dst) {
		complain("not enough memory");
		goto out;
	}
	for (size_t i = 0; i < BUFFER + GUARD; i++) {
		x = x * 1664525u + 1013904223u;
		s.src[i] = (uint8_t)(x >> 24);
	}
	memset(s.dst, DST_BYTE, BUFFER + GUARD);
	s.grants[0] = (struct grant){ s.src, SRC_TOKEN, false, true };
	s.grants[1] = (struct grant){ s.dst, DST_TOKEN, true, true };
	if (!demo_open(&s.d))
		goto out;
	if (demo_grant(&s.d, s.src, BUFFER, MAPT_PERM_R, &src_token) &&
	    demo_grant(&s.d, s.dst, BUFFER, MAPT_PERM_RW, &dst_token) && run_cases(&s))
		ok = report(&s);
	demo_close(&s.d);
out:
	free(s.src);
	free(s.dst);
	return ok ? 0 : 1;
}
