// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ummu-demo hold: grant two buffers, let the accelerator read them and keep them
 * until standard input ends, so that a person can look at the tables from outside
 * (ummulab decode, explain).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"

#define BUFFER	    ((size_t)1 << 16)
#define PAGE	    ((size_t)4096)
#define READ_TOKEN  0x5eed0001u
#define WRITE_TOKEN 0x5eed0002u

/*
 * One read of the whole buffer by the accelerator: where the UMMU has page tables
 * of its own, a page is in them once a device used it.
 */
static bool use(struct demo *d, void *addr, uint32_t token)
{
	struct accel_job job = {
		.op = ACCEL_CRC32C,
		.length = BUFFER,
		.src = { .addr = addr, .tid = d->tid, .has_token = true, .token = token },
	};
	struct accel_result r;
	char text[256];
	int ret = accel_run(d->queue, &job, JOB_TIMEOUT_MS, &r);

	if (ret)
		complain("the job did not end: %s", strerror(-ret));
	else if (r.status != ACCEL_ST_OK)
		complain("the job failed: %s", accel_describe(&r, text, sizeof(text)));
	return !ret && r.status == ACCEL_ST_OK;
}

static bool hold(struct demo *d, void *ro, void *rw)
{
	struct ummu_token_info ro_token = { .input = 0, .tokenVal = READ_TOKEN };
	struct ummu_token_info rw_token = { .input = 0, .tokenVal = WRITE_TOKEN };

	if (!demo_grant(d, ro, BUFFER, MAPT_PERM_R, &ro_token) ||
	    !demo_grant(d, rw, BUFFER, MAPT_PERM_RW, &rw_token) ||
	    !use(d, ro, READ_TOKEN) || !use(d, rw, WRITE_TOKEN))
		return false;
	printf("tid 0x%" PRIx32 "\n", d->tid);
	printf("read-only  %p, %zu bytes, token 0x%x\n", ro, BUFFER, READ_TOKEN);
	printf("read-write %p, %zu bytes, token 0x%x\n", rw, BUFFER, WRITE_TOKEN);
	puts("holding: press Enter to end");
	fflush(stdout);
	getchar();
	return true;
}

int demo_hold(void)
{
	void *ro = aligned_alloc(PAGE, BUFFER), *rw = aligned_alloc(PAGE, BUFFER);
	struct demo d = { 0 };
	bool ok = false;

	if (!ro || !rw) {
		complain("not enough memory");
	} else if (demo_open(&d)) {
		memset(ro, 0x11, BUFFER);
		memset(rw, 0x22, BUFFER);
		ok = hold(&d, ro, rw);
		demo_close(&d);
	}
	free(ro);
	free(rw);
	return ok ? 0 : 1;
}
