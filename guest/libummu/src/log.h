/* SPDX-License-Identifier: MIT */
#ifndef LOG_H
#define LOG_H

#include <syslog.h>

void ummu_log(int level, const char *function, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Read the level file; once, at load. */
void ummu_log_load(void);

#define log_error(...)	 ummu_log(LOG_ERR, __func__, __LINE__, __VA_ARGS__)
#define log_warning(...) ummu_log(LOG_WARNING, __func__, __LINE__, __VA_ARGS__)
#define log_info(...)	 ummu_log(LOG_INFO, __func__, __LINE__, __VA_ARGS__)
#define log_debug(...)	 ummu_log(LOG_DEBUG, __func__, __LINE__, __VA_ARGS__)

#endif
