// SPDX-License-Identifier: MIT
/*
 * Every rule of the /dev/ummu/tid interface that needs no device access: open,
 * ioctls, mappings, life of a TID.  TAP output.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "ksft.h"
#include "ummu_sys.h"

static int fd;
static struct tid_info caps;	/* of a first allocation */

/* ------------------------------------------------------------ section 2 */

static void test_node(void)
{
	struct stat st;
	int second;

	ksft_ret(stat(TID_NODE, &st), 0, "2: node exists");
	ksft_ok(S_ISCHR(st.st_mode) && (st.st_mode & 0777) == 0666, "2: mode is 0666 (%o)",
		st.st_mode);
	second = sys_open();
	ksft_ret(second, -EEXIST, "2: second open by the same address space");
	ksft_ret(read(fd, &st, 1), -EINVAL, "2: no read");
}

static void *open_in_thread(void *arg)
{
	*(int *)arg = sys_open() < 0 ? -errno : 0;
	return NULL;
}

static void test_open_thread(void)
{
	pthread_t t;
	int res = 1;

	pthread_create(&t, NULL, open_in_thread, &res);
	pthread_join(t, NULL);
	ksft_ok(res == -EEXIST, "2: a thread shares the address space: %d", res);
}

static int child_open(uint32_t parent_tid)
{
	struct tid_info info;
	int own = sys_open();

	if (own < 0)
		return 1;
	if (sys_tid_op(own, IOC_PLBI_ALL, parent_tid, 0, 0) != -1 || errno != EINVAL)
		return 2;
	if (sys_tid_op(own, IOC_FREE, parent_tid, 0, 0) != -1 || errno != EINVAL)
		return 3;
	if (sys_map(own, caps.blk_exp_size, block_off(parent_tid, 0)) != MAP_FAILED ||
	    errno != EINVAL)
		return 4;
	if (sys_alloc(own, MODE_TABLE, &info) || info.tid == parent_tid)
		return 5;
	/* the inherited descriptor acts on the parent's record */
	if (sys_tid_op(fd, IOC_PLBI_ALL, parent_tid, 0, 0))
		return 6;
	return 0;
}

static int in_child(int (*fn)(uint32_t), uint32_t arg)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(fn(arg));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int child_touch(uint32_t arg)
{
	extern volatile char *inherited;

	(void)arg;
	return inherited[0];
}

volatile char *inherited;

static void test_fork(void)
{
	struct tid_info info;
	void *map;

	sys_alloc(fd, MODE_TABLE, &info);
	ksft_ret(in_child(child_open, info.tid), 0, "2: child opens its own, parent's TID is foreign");
	map = sys_map(fd, info.blk_exp_size, block_off(info.tid, 0));
	inherited = map;
	ksft_ret(in_child(child_touch, 0), 1000 + SIGSEGV, "4: mapping is not inherited by fork");
	munmap(map, info.blk_exp_size);
	ksft_ret(sys_tid_op(fd, IOC_PLBI_ALL, info.tid, 0, 0), 0, "8: parent's TID outlives the child");
	ksft_ret(sys_tid_op(fd, IOC_FREE, info.tid, 0, 0), 0, "8: and is freed by the parent");
}

/* ------------------------------------------------------------ section 3 */

static void test_alloc(void)
{
	struct tid_info info;

	memset(&info, 0, sizeof(info));
	info.dev = UINT64_MAX;
	info.reserve[3] = 0x1122334455667788;
	ksft_ret(ioctl(fd, IOC_ALLOC, &info), 0, "3: ALLOC");
	caps = info;
	ksft_ok(info.tid >= 1 && info.tid < 0xfffff, "3: TID %#x in range", info.tid);
	ksft_ok(!(info.blk_exp_size & (info.blk_exp_size - 1)) && info.blk_exp_size >= 0x4000 &&
		info.blk_exp_size <= 0x200000, "3: block size %#llx",
		(unsigned long long)info.blk_exp_size);
	ksft_ok(info.ummu_cnt >= 1, "3: %u units", info.ummu_cnt);
	ksft_ok(!info.pcmdq_order && !info.pcplq_order, "3: ring orders are 0");
	ksft_ok(info.mode == MODE_TABLE && info.dev == UINT64_MAX, "3: mode and dev unchanged");
	ksft_ok(info.reserve[3] == 0x1122334455667788, "3: reserved words copied back");
	ksft_ok(!(info.hw_cap & ~0x3full), "3: capability word %#llx knows N2 bits only",
		(unsigned long long)info.hw_cap);
	ksft_ok(!((info.hw_cap & CAP_KCMD) && (info.hw_cap & CAP_FREE_BIT)),
		"3: free bit not together with ioctl invalidation");
	ksft_ret(sys_tid_op(fd, IOC_FREE, info.tid, 0, 0), 0, "3: FREE");
}

static void test_ioctl_errors(void)
{
	struct tid_info info;

	ksft_ret(ioctl(fd, IOC_ALLOC, (void *)8), -EFAULT, "3: bad pointer");
	ksft_ret(ioctl(fd, 0x1234, (void *)8), -EFAULT, "3: pointer is checked before the command");
	memset(&info, 0, sizeof(info));
	ksft_ret(ioctl(fd, 0x40806b08u, &info), -EINVAL, "3: unknown command");
	ksft_ret(ioctl(fd, 0x40806b03u, &info), -EINVAL, "3: unknown command 3");
	ksft_ret(sys_alloc(fd, 2, &info), -EINVAL, "3: mode 2");
	ksft_ret(sys_alloc(fd, UINT32_MAX, &info), -EINVAL, "3: mode ~0");
	ksft_ret(sys_tid_op(fd, IOC_FREE, 0, 0, 0), -EINVAL, "3: FREE of TID 0");
	ksft_ret(sys_tid_op(fd, IOC_FREE, 0xfffff, 0, 0), -EINVAL, "3: FREE of the invalid TID");
	ksft_ret(sys_tid_op(fd, IOC_FREE, UINT32_MAX, 0, 0), -EINVAL, "3: FREE beyond 20 bits");
	ksft_ret(sys_tid_op(fd, IOC_PLBI_VA, 0x777, 0, 4096), -EINVAL, "3: PLBI_VA, unknown TID");
	ksft_ret(sys_tid_op(fd, IOC_PLBI_ALL, 0x777, 0, 0), -EINVAL, "3: PLBI_ALL, unknown TID");
}

/* ALLOC whose answer cannot be delivered must not leave a TID behind */
static void test_alloc_efault(void)
{
	struct tid_info *ro = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct tid_info a, b;

	sys_alloc(fd, MODE_TABLE, &a);
	memset(ro, 0, sizeof(*ro));
	mprotect(ro, 4096, PROT_READ);
	ksft_ret(ioctl(fd, IOC_ALLOC, ro), -EFAULT, "3: ALLOC into read-only memory");
	sys_alloc(fd, MODE_TABLE, &b);
	ksft_ret(sys_tid_op(fd, IOC_FREE, a.tid + 1, 0, 0), b.tid == a.tid + 1 ? 0 : -EINVAL,
		 "3: and its TID is undone");
	if (b.tid != a.tid + 1)
		sys_tid_op(fd, IOC_FREE, b.tid, 0, 0);
	sys_tid_op(fd, IOC_FREE, a.tid, 0, 0);
	munmap(ro, 4096);
}

static void test_plbi(void)
{
	static const struct { uint64_t va, size; } cases[] = {
		{ 0, 0 }, { 0x1000, 1 }, { 0x7f0000001000, 0x3000 }, { 0, 0x8000000000 },
		{ 0x1234, 1ull << 48 }, { UINT64_MAX, UINT64_MAX }, { 0xffffffffffff, 2 },
		{ 1ull << 60, 0x1000 },
	};
	struct tid_info info;
	unsigned int i;
	void *map;

	sys_alloc(fd, MODE_TABLE, &info);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ksft_ret(sys_tid_op(fd, IOC_PLBI_VA, info.tid, cases[i].va, cases[i].size), 0,
			 "3: PLBI_VA accepts any range");
	map = sys_map(fd, info.blk_exp_size, block_off(info.tid, 0));
	munmap(map, info.blk_exp_size);
	ksft_ret(sys_tid_op(fd, IOC_PLBI_ALL, info.tid, 0, 0), 0, "5: PLBI_ALL after block 0 is gone");
	ksft_ret(sys_tid_op(fd, IOC_FREE, info.tid, 0, 0), 0, "5: then FREE");
	ksft_ret(sys_tid_op(fd, IOC_FREE, info.tid, 0, 0), -EINVAL, "3: FREE twice");
}

/* ------------------------------------------------------------ section 4 */

static void map_refused(size_t len, off_t off, int err, const char *name)
{
	void *p = sys_map(fd, len, off);

	ksft_ret(p == MAP_FAILED ? -1 : 0, -err, name);
	if (p != MAP_FAILED)
		munmap(p, len);
}

static void test_map_arguments(void)
{
	struct tid_info t, e;
	size_t blk;

	sys_alloc(fd, MODE_TABLE, &t);
	sys_alloc(fd, MODE_ENTRY, &e);
	blk = t.blk_exp_size;
	ksft_ok(block_off(0x100, 0) == 0x100001000 && block_off(0x100, 1) == 0x100005000 &&
		queue_off(0x100) == 0x402000, "4: offsets as in the text");
	map_refused(blk - 4096, block_off(t.tid, 0), EINVAL, "4: one page less");
	map_refused(blk + 4096, block_off(t.tid, 0), EINVAL, "4: one page more");
	map_refused(4096, block_off(t.tid, 3), EINVAL, "4: one page for a block");
	map_refused(blk, block_off(t.tid, 0) - 4096, EINVAL, "4: type 0");
	map_refused(blk, block_off(t.tid, 0) + 2 * 4096, EINVAL, "4: type 3");
	map_refused(blk, block_off(t.tid, 512), EINVAL, "4: index 512");
	map_refused(blk, block_off(t.tid, 1023), EINVAL, "4: index 1023");
	map_refused(blk, block_off(t.tid + 0x1000, 0), EINVAL, "4: unknown TID");
	map_refused(blk, block_off(e.tid, 0), EINVAL, "4: block length in ENTRY mode");
	map_refused(8192, block_off(e.tid, 0), EINVAL, "4: two pages in ENTRY mode");
	map_refused(4096, queue_off(t.tid), EINVAL, "4: one page for queues");
	if (caps.hw_cap & CAP_KCMD)
		map_refused(3 * 4096 * t.ummu_cnt, queue_off(t.tid), EINVAL,
			    "4: no queues with ioctl invalidation");
	ksft_ok(mmap(NULL, blk, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, block_off(t.tid, 0)) ==
		MAP_FAILED && errno == EINVAL, "4: private mapping");
	sys_tid_op(fd, IOC_FREE, t.tid, 0, 0);
	sys_tid_op(fd, IOC_FREE, e.tid, 0, 0);
}

static bool zeroed(const void *p, size_t n)
{
	const char *c = p;

	while (n--)
		if (*c++)
			return false;
	return true;
}

static void test_block_memory(void)
{
	struct tid_info t;
	char *a, *b;
	size_t blk;

	sys_alloc(fd, MODE_TABLE, &t);
	blk = t.blk_exp_size;
	a = sys_map(fd, blk, block_off(t.tid, 0));
	b = sys_map(fd, blk, block_off(t.tid, 0));
	if (!ksft_ok(a != MAP_FAILED && b != MAP_FAILED, "4: block 0 maps twice"))
		return;
	ksft_ok(zeroed(a, blk), "4: block 0 is zeroed");
	a[blk - 1] = 7;
	ksft_ok(b[blk - 1] == 7, "4: both are the same memory");
	munmap(a, blk);
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), -EBUSY, "3: FREE while mapped");
	ksft_ok(b[blk - 1] == 7, "4: the second mapping still stands");
	munmap(b, blk);
	a = sys_map(fd, blk, block_off(t.tid, 511));
	if (ksft_ok(a != MAP_FAILED, "4: block 511")) {
		ksft_ok(zeroed(a, blk), "4: block 511 is zeroed");
		memset(a, 0xff, blk);
		munmap(a, blk);
	}
	a = sys_map(fd, blk, block_off(t.tid, 511));
	ksft_ok(a != MAP_FAILED && zeroed(a, blk), "4: block 511 comes back zeroed");
	munmap(a, blk);
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), 0, "3: FREE after the last unmap");
}

static void test_all_blocks(void)
{
	static void *map[512];
	struct tid_info t;
	unsigned int i, n = 0;

	sys_alloc(fd, MODE_TABLE, &t);
	for (i = 0; i < 512; i++) {
		map[i] = sys_map(fd, t.blk_exp_size, block_off(t.tid, i));
		n += map[i] != MAP_FAILED;
	}
	ksft_ok(n == 512, "4: %u of 512 blocks map", n);
	/* odd ones first, block 0 before most others */
	for (i = 1; i < 512; i += 2)
		munmap(map[i], t.blk_exp_size);
	for (i = 0; i < 512; i += 2)
		munmap(map[i], t.blk_exp_size);
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), 0, "4: any order of unmapping, then FREE");
}

static void test_partial(void)
{
	struct tid_info t;
	unsigned int i, pages;
	char *a;

	sys_alloc(fd, MODE_TABLE, &t);
	pages = t.blk_exp_size / 4096;
	a = sys_map(fd, t.blk_exp_size, block_off(t.tid, 0));
	munmap(a + (pages / 2) * 4096, 4096);
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), -EBUSY, "4: one page unmapped, still busy");
	mprotect(a, 4096, PROT_READ);
	mprotect(a, 4096, PROT_READ | PROT_WRITE);
	a[0] = 1;
	for (i = 1; i < pages; i++)
		if (i != pages / 2)
			munmap(a + i * 4096, 4096);
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), -EBUSY, "4: one page left, still busy");
	ksft_ok(a[0] == 1, "4: and usable");
	munmap(a, 4096);
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), 0, "4: last page gone");
}

static void test_mremap(void)
{
	struct tid_info t;
	void *a, *place;
	size_t blk;

	sys_alloc(fd, MODE_TABLE, &t);
	blk = t.blk_exp_size;
	a = sys_map(fd, blk, block_off(t.tid, 0));
	place = mmap(NULL, blk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ksft_ok(mremap(a, blk, blk, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED &&
		errno == EINVAL, "4: mremap to another place");
	ksft_ok(mremap(a, blk, 2 * blk, MREMAP_MAYMOVE) == MAP_FAILED, "4: mremap to grow");
	ksft_ok(mremap(a, 0, blk, MREMAP_MAYMOVE) == MAP_FAILED, "4: mremap to duplicate");
	*(volatile char *)a = 5;
	ksft_ok(*(volatile char *)a == 5, "4: the mapping still stands");
	munmap(a, blk);
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), 0, "4: nothing is left over");
}

static void test_entry(void)
{
	struct tid_info e;
	char *a, *b;

	ksft_ret(sys_alloc(fd, MODE_ENTRY, &e), 0, "3: ALLOC in ENTRY mode");
	a = sys_map(fd, 4096, block_off(e.tid, 0));
	b = sys_map(fd, 4096, block_off(e.tid, 7));
	ksft_ok(a != MAP_FAILED && zeroed(a, 4096), "4: one zeroed page");
	if (ksft_ok(b != MAP_FAILED, "4: the index is ignored")) {
		a[9] = 3;
		ksft_ok(b[9] == 3, "4: it is the same page");
		munmap(b, 4096);
	}
	munmap(a, 4096);
	ksft_ret(sys_tid_op(fd, IOC_FREE, e.tid, 0, 0), 0, "3: FREE in ENTRY mode");
}

static void test_queues(void)
{
	struct tid_info t;
	volatile uint32_t *ctrl;
	size_t len;
	char *q;

	if (caps.hw_cap & CAP_KCMD)
		return;
	sys_alloc(fd, MODE_TABLE, &t);
	len = 3 * 4096 * t.ummu_cnt;
	map_refused(len - 4096, queue_off(t.tid), EINVAL, "4: queues, one page less");
	q = sys_map(fd, len, queue_off(t.tid));
	if (!ksft_ok(q != MAP_FAILED, "4: queues map"))
		return;
	ksft_ok(zeroed(q, 8192), "4: rings are zeroed");
	ctrl = (volatile uint32_t *)(q + 8192);
	ksft_ok(!ctrl[0] && !ctrl[1] && !ctrl[2] && !ctrl[3], "4: all indices are 0");
	/* PLBI all, then PSYNC with completion, one doorbell */
	((volatile uint32_t *)q)[0] = 0x10;
	((volatile uint32_t *)q)[4] = 0x101;
	__sync_synchronize();
	*(volatile uint16_t *)ctrl = 2;
	ksft_ok(*(volatile uint16_t *)&ctrl[1] == 2, "6: both commands consumed");
	ksft_ok(*(volatile uint16_t *)&ctrl[2] == 1, "6: one completion");
	ksft_ok(*(volatile uint32_t *)(q + 4096) == 0x10001, "6: of the PSYNC: %#x",
		*(volatile uint32_t *)(q + 4096));
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), -EBUSY, "3: FREE with mapped queues");
	munmap(q, 4096);
	munmap(q + 4096, len - 4096);
	q = sys_map(fd, len, queue_off(t.tid));
	ctrl = (volatile uint32_t *)(q + 8192);
	ksft_ok(q != MAP_FAILED && zeroed(q, 8192) && !ctrl[0] && !ctrl[1] && !ctrl[2],
		"4: queues come back empty");
	munmap(q, len);
	ksft_ret(sys_tid_op(fd, IOC_FREE, t.tid, 0, 0), 0, "3: FREE after the queues");
}

/* ------------------------------------------------------------ section 8 */

static void test_tids(void)
{
	struct tid_info a, b;
	char path[128];
	DIR *d;
	unsigned int n = 0;
	struct dirent *e;

	sys_alloc(fd, MODE_TABLE, &a);
	sys_tid_op(fd, IOC_FREE, a.tid, 0, 0);
	sys_alloc(fd, MODE_TABLE, &b);
	ksft_ok(a.tid != b.tid, "8: a TID is not used again at once");
	snprintf(path, sizeof(path), "/sys/devices/platform/ummu_tid_root");
	d = opendir(path);
	while (d && (e = readdir(d)))
		n += !strncmp(e->d_name, "ummu_vdev", 9);
	if (d)
		closedir(d);
	ksft_ok(n == 1, "8: one ummu_vdev per TID in sysfs (%u)", n);
	sys_tid_op(fd, IOC_FREE, b.tid, 0, 0);
}

static void test_close(void)
{
	struct tid_info info;
	volatile char *map;
	int i;

	for (i = 0; i < 20; i++)
		sys_alloc(fd, i & 1, &info);
	sys_alloc(fd, MODE_TABLE, &info);
	map = sys_map(fd, info.blk_exp_size, block_off(info.tid, 0));
	close(fd);
	map[0] = 1;
	ksft_ok(map[0] == 1, "8: a mapping outlives close");
	ksft_ret(sys_open(), -EEXIST, "8: and keeps the record");
	munmap((void *)map, info.blk_exp_size);
	/* the last reference may be dropped on return to user space */
	for (i = 0; i < 1000 && (fd = sys_open()) < 0; i++)
		sched_yield();
	ksft_ok(fd >= 0, "8: gone with the last mapping");
	ksft_ret(sys_tid_op(fd, IOC_FREE, info.tid, 0, 0), -EINVAL, "8: close freed the TIDs");
}

int main(void)
{
	fd = sys_open();
	if (fd < 0)
		ksft_bail("open %s", TID_NODE);
	test_node();
	test_open_thread();
	test_alloc();
	test_fork();
	test_ioctl_errors();
	test_alloc_efault();
	test_plbi();
	test_map_arguments();
	test_block_memory();
	test_all_blocks();
	test_partial();
	test_mremap();
	test_entry();
	test_queues();
	test_tids();
	test_close();
	return ksft_exit();
}
