/* SPDX-License-Identifier: MIT */
/*
 * The system calls the library makes, in one table, so that the host tests can
 * put a stand-in for the device node in its place (they link their own sys.c).
 */
#ifndef SYS_H
#define SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ummu_sys_ops {
	int (*open)(void);			/* the node; -1 on failure */
	void (*close)(int fd);
	int (*ioctl)(int fd, unsigned long request, void *arg);
	void *(*map)(int fd, size_t size, uint64_t offset);	/* NULL on failure */
	void (*unmap)(void *addr, size_t size);
	bool (*random)(void *buf, size_t size);
	void *(*alloc)(size_t count, size_t size);	/* as calloc */
	unsigned int page_shift;		/* filled by init() */
	void (*init)(void);
};

extern struct ummu_sys_ops ummu_sys;

#endif
