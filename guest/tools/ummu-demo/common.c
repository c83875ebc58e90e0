// SPDX-License-Identifier: GPL-2.0-or-later
/* ummu-demo: opening the parts, errors, the CPU's own CRC. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "demo.h"

void complain(const char *format, ...)
{
	va_list args;

	fputs("ummu-demo: error: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static const char *open_hint(int error)
{
	switch (error) {
	case -ENODEV:
		return "no accelerator (is ummu_accel.ko loaded?)";
	case -EBUSY:
		return "all queues of the accelerator are in use";
	case -EINVAL:
	case -EIO:
		return "no token id from /dev/ummu/tid (is ummu.ko loaded?)";
	default:
		return strerror(-error);
	}
}

bool demo_open(struct demo *d)
{
	struct ummu_tid_attr attr = { .mode = MAPT_MODE_TABLE };
	int ret;

	memset(d, 0, sizeof(*d));
	ret = accel_open(NULL, 0, &d->queue);
	if (ret) {
		complain("cannot open the accelerator: %s", open_hint(ret));
		return false;
	}
	ret = ummu_allocate_tid(&attr, &d->tid);
	if (ret) {
		complain("cannot allocate a token id (%d)", ret);
		d->tid = 0;
		demo_close(d);
		return false;
	}
	ret = accel_bind_tid(d->queue, d->tid);
	if (ret) {
		complain("cannot bind token id 0x%x to the queue: %s", d->tid, strerror(-ret));
		demo_close(d);
		return false;
	}
	return true;
}

void demo_close(struct demo *d)
{
	accel_close(d->queue);
	if (d->tid)
		ummu_free_tid(d->tid);
	memset(d, 0, sizeof(*d));
}

bool demo_grant(struct demo *d, void *addr, size_t size, enum ummu_mapt_perm perm,
		struct ummu_token_info *token)
{
	struct ummu_seg_attr attr = { .token = token, .e_bit = UMMU_EBIT_OFF };
	int ret = ummu_grant(d->tid, addr, size, perm, &attr);

	if (ret)
		complain("cannot grant %zu bytes at %p: %d", size, addr, ret);
	return !ret;
}

/* CRC-32C (Castagnoli), reflected, eight tables: a second opinion, independent of the device. */
#define POLYNOMIAL 0x82f63b78u

uint32_t crc32c_cpu(const void *data, size_t size)
{
	static uint32_t table[8][256];
	const uint8_t *p = data;
	uint32_t crc = ~0u;

	if (!table[0][1]) {
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = i;

			for (int bit = 0; bit < 8; bit++)
				c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
			table[0][i] = c;
		}
		for (uint32_t i = 0; i < 256; i++)
			for (int t = 1; t < 8; t++)
				table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xff];
	}
	for (; size >= 8; size -= 8, p += 8) {
		uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
				      (uint32_t)p[3] << 24);

		crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
		      table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
	}
	while (size--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xff];
	return ~crc;
}
