// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "sys.h"

static int sys_open(void)
{
	return open("/dev/ummu/tid", O_RDWR | O_CLOEXEC);
}

static void sys_close(int fd)
{
	close(fd);
}

static int sys_ioctl(int fd, unsigned long request, void *arg)
{
	int ret;

	do
		ret = ioctl(fd, request, arg);
	while (ret < 0 && errno == EINTR);
	return ret;
}

static void *sys_map(int fd, size_t size, uint64_t offset)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	return p == MAP_FAILED ? NULL : p;
}

static void sys_unmap(void *addr, size_t size)
{
	munmap(addr, size);
}

static bool from_urandom(void *buf, size_t size)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	bool ok = fd >= 0 && read(fd, buf, size) == (ssize_t)size;

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool sys_random(void *buf, size_t size)
{
	return getrandom(buf, size, 0) == (ssize_t)size || from_urandom(buf, size);
}

static void sys_init(void)
{
	ummu_sys.page_shift = (unsigned int)__builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
}

struct ummu_sys_ops ummu_sys = {
	.open = sys_open,
	.close = sys_close,
	.ioctl = sys_ioctl,
	.map = sys_map,
	.unmap = sys_unmap,
	.random = sys_random,
	.alloc = calloc,
	.page_shift = 12,
	.init = sys_init,
};
