/* SPDX-License-Identifier: MIT */
/*
 * Just enough TAP for the guest's kernel tests.
 *
 * A test that cannot run says so as a failure: nothing here skips.
 */
#ifndef KSFT_H
#define KSFT_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned int ksft_count, ksft_failed;

__attribute__((format(printf, 2, 3)))
static inline bool ksft_ok(bool good, const char *fmt, ...)
{
	va_list ap;

	printf("%s %u - ", good ? "ok" : "not ok", ++ksft_count);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	if (!good)
		ksft_failed++;
	return good;
}

/* A call must return @want, or fail with errno -@want if that is negative */
static inline bool ksft_ret(long got, long want, const char *name)
{
	int err = errno;

	if (want >= 0)
		return ksft_ok(got == want, "%s: %ld, expected %ld%s%s", name, got, want,
			       got < 0 ? ": " : "", got < 0 ? strerror(err) : "");
	return ksft_ok(got == -1 && err == -want, "%s: %ld (%s), expected %s", name, got,
		       got == -1 ? strerror(err) : "no error", strerror(-want));
}

static inline int ksft_exit(void)
{
	printf("1..%u\n# %u of %u failed\n", ksft_count, ksft_failed, ksft_count);
	return ksft_failed ? 1 : 0;
}

__attribute__((noreturn, format(printf, 1, 2)))
static inline void ksft_bail(const char *fmt, ...)
{
	va_list ap;

	printf("Bail out! ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(": %s\n", strerror(errno));
	exit(1);
}

#endif
