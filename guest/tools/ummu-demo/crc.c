// SPDX-License-Identifier: GPL-2.0-or-later
/* ummu-demo crc and info. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "demo.h"

/* The file's bytes in malloc'ed, page-aligned memory; NULL after one line on stderr. */
static void *read_file(const char *file, size_t *size)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	size_t done = 0;
	struct stat st;
	char *data = NULL;

	if (fd < 0 || fstat(fd, &st)) {
		complain("%s: %s", file, strerror(errno));
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		complain("%s: not a regular file", file);
		goto out;
	}
	if (!st.st_size) {
		complain("%s: the file is empty", file);
		goto out;
	}
	*size = (size_t)st.st_size;
	data = aligned_alloc(4096, (*size + 4095) & ~(size_t)4095);
	if (!data) {
		complain("%s: not enough memory for %zu bytes", file, *size);
		goto out;
	}
	while (done < *size) {
		ssize_t n = read(fd, data + done, *size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			complain("%s: %s", file, n ? strerror(errno) : "the file became shorter");
			free(data);
			data = NULL;
			goto out;
		}
		done += (size_t)n;
	}
out:
	if (fd >= 0)
		close(fd);
	return data;
}

static void print_crc(const char *file, uint32_t crc, size_t size, bool json, bool verify)
{
	if (json) {
		printf("{\"crc32c\": \"%08" PRIx32 "\", \"bytes\": %zu, \"verified\": %s, \"file\": \"", crc, size,
		       verify ? "true" : "false");
		for (const char *c = file; *c; c++) {
			if (*c == '"' || *c == '\\')
				putchar('\\');
			if ((unsigned char)*c < 0x20)
				printf("\\u%04x", *c);
			else
				putchar(*c);
		}
		puts("\"}");
		return;
	}
	printf("crc32c  %08" PRIx32 "  %s\n", crc, file);
}

int demo_crc(const char *file, bool json, bool verify)
{
	struct accel_job job = { .op = ACCEL_CRC32C };
	struct accel_result r;
	struct demo d;
	char text[256];
	size_t size = 0;
	int status = 1, ret;
	void *data = read_file(file, &size);

	if (!data)
		return 1;
	if (!demo_open(&d)) {
		free(data);
		return 1;
	}
	if (!demo_grant(&d, data, size, MAPT_PERM_R, NULL))
		goto out;
	job.length = size;
	job.src = (struct accel_operand){ .addr = data, .tid = d.tid };
	ret = accel_run(d.queue, &job, JOB_TIMEOUT_MS, &r);
	if (ret) {
		complain("the CRC job did not end: %s", strerror(-ret));
	} else if (r.status != ACCEL_ST_OK) {
		complain("the CRC job failed: %s", accel_describe(&r, text, sizeof(text)));
	} else if (verify && crc32c_cpu(data, size) != (uint32_t)r.result) {
		complain("the accelerator says %08" PRIx32 ", the CPU %08" PRIx32, (uint32_t)r.result,
			 crc32c_cpu(data, size));
	} else {
		print_crc(file, (uint32_t)r.result, size, json, verify);
		status = 0;
	}
out:
	/* The queue goes first: a job that still runs must not outlive its data. */
	demo_close(&d);
	free(data);
	return status;
}

int demo_info(bool json)
{
	struct accel_caps c;
	struct demo d;
	int ret;

	if (!demo_open(&d))
		return 1;
	ret = accel_query(d.queue, &c);
	demo_close(&d);
	if (ret) {
		complain("cannot ask the accelerator: %s", strerror(-ret));
		return 1;
	}
	if (json)
		printf("{\"version\": \"%u.%u\", \"queues\": %u, \"max_ring\": %u, \"max_tids\": %u, \"ops\": %u, "
		       "\"vram\": %" PRIu64 ", \"jobs\": %" PRIu64 ", \"bytes_read\": %" PRIu64
		       ", \"bytes_written\": %" PRIu64 "}\n",
		       c.version >> 16, c.version & 0xffff, c.queues, 1u << c.max_log2size, c.max_tids, c.ops,
		       c.vram_size, c.jobs_done, c.bytes_read, c.bytes_written);
	else
		printf("accelerator %u.%u: %u queues of up to %u jobs, %u token ids each, %" PRIu64
		       " bytes of device memory\njobs done %" PRIu64 ", bytes read %" PRIu64 ", bytes written %" PRIu64
		       "\n",
		       c.version >> 16, c.version & 0xffff, c.queues, 1u << c.max_log2size, c.max_tids, c.vram_size,
		       c.jobs_done, c.bytes_read, c.bytes_written);
	return 0;
}
