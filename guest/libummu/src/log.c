// SPDX-License-Identifier: MIT
/*
 * Log lines: syslog, or a back end that the program registers.
 *
 * No library lock is ever held while a line is emitted to the program's back
 * end from the two functions here, and the sink is swapped atomically, so a
 * back end may be replaced while other threads log.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ummu_api.h>

#include "log.h"

#define LEVEL_FILE    "/usr/lib64/ummu_log_level"
#define TEXT_MAX      256
#define NAME_MAX_LEN  128

typedef void (*emit_fn)(int level, char *msg);

static void emit_syslog(int level, char *msg)
{
	syslog(level, "%s", msg);
}

static _Atomic(emit_fn) sink = emit_syslog;
static _Atomic int threshold = LOG_INFO;
static char sink_name[NAME_MAX_LEN] = "syslog";
static pthread_mutex_t name_lock = PTHREAD_MUTEX_INITIALIZER;

void ummu_log(int level, const char *function, int line, const char *format, ...)
{
	char text[TEXT_MAX];
	va_list args;
	int used;

	if (level > threshold)
		return;
	used = snprintf(text, sizeof(text), "[UMMU][%s:%d] ", function, line);
	if (used < 0)
		return;
	va_start(args, format);
	if ((size_t)used < sizeof(text))
		vsnprintf(text + used, sizeof(text) - (size_t)used, format, args);
	va_end(args);
	used = (int)strlen(text);
	if (used == TEXT_MAX - 1)
		used--;
	text[used] = '\n';
	text[used + 1] = '\0';
	sink(level, text);
}

void ummu_log_load(void)
{
	FILE *file = fopen(LEVEL_FILE, "re");
	char text[3] = "";
	size_t n;

	if (!file) {
		log_warning("no %s, level stays %d", LEVEL_FILE, threshold);
		return;
	}
	n = fread(text, 1, 2, file);
	fclose(file);
	text[n] = '\0';
	if (n && text[0] >= '0' && text[0] <= '7' && (n == 1 || text[1] == '\n'))
		threshold = text[0] - '0';
	log_info("log level %d", threshold);
}

static void set_sink(emit_fn emit, const char *name)
{
	pthread_mutex_lock(&name_lock);
	snprintf(sink_name, sizeof(sink_name), "%s", name);
	pthread_mutex_unlock(&name_lock);
	sink = emit;
}

int ummu_log_register_backend(ummu_log_backend_t *backend)
{
	const char *name;

	if (!backend || !backend->emit)
		return -EINVAL;
	name = backend->name ? backend->name : "unknown";
	log_info("log back end: %.*s", NAME_MAX_LEN - 1, name);
	set_sink(backend->emit, name);
	return 0;
}

void ummu_log_restore_default(void)
{
	log_info("log back end: syslog");
	set_sink(emit_syslog, "syslog");
}
