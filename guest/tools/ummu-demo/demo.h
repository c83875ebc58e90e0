/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ummu-demo: what its files share. */
#ifndef DEMO_H
#define DEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ummu_accel_lib.h>
#include <ummu_api.h>

/* One line on stderr, then exit status 1. */
#define JOB_TIMEOUT_MS 60000

struct demo {
	struct accel_queue *queue;
	uint32_t tid;
};

/* Open the accelerator, get a TID and bind it; false after one line on stderr. */
bool demo_open(struct demo *d);
void demo_close(struct demo *d);
/* Grant [addr, addr + size) with a token (NULL: none); false after one line on stderr. */
bool demo_grant(struct demo *d, void *addr, size_t size, enum ummu_mapt_perm perm,
		struct ummu_token_info *token);

void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint32_t crc32c_cpu(const void *data, size_t size);

int demo_zero_copy(bool json);
int demo_crc(const char *file, bool json, bool verify);
int demo_info(bool json);
int demo_hold(void);

#endif
