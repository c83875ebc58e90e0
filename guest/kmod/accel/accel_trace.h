/* SPDX-License-Identifier: GPL-2.0-or-later */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ummu_accel

#if !defined(_ACCEL_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _ACCEL_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(accel_hmm_fault,
	TP_PROTO(u32 tid, u64 addr, bool write, u64 moved, u64 ns, int ret),
	TP_ARGS(tid, addr, write, moved, ns, ret),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u64, addr)
		__field(bool, write)
		__field(u64, moved)
		__field(u64, ns)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->addr = addr;
		__entry->write = write;
		__entry->moved = moved;
		__entry->ns = ns;
		__entry->ret = ret;
	),
	TP_printk("tid=%#x addr=%#llx write=%d moved=%llu ns=%llu ret=%d", __entry->tid,
		  __entry->addr, __entry->write, __entry->moved, __entry->ns, __entry->ret)
);

TRACE_EVENT(accel_hmm_cpu_fault,
	TP_PROTO(u32 tid, u64 addr, int moved),
	TP_ARGS(tid, addr, moved),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u64, addr)
		__field(int, moved)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->addr = addr;
		__entry->moved = moved;
	),
	TP_printk("tid=%#x addr=%#llx moved=%d", __entry->tid, __entry->addr, __entry->moved)
);

TRACE_EVENT(accel_hmm_migrate,
	TP_PROTO(u32 tid, u64 addr, u32 pages, u32 moved, bool to_device, int ret),
	TP_ARGS(tid, addr, pages, moved, to_device, ret),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u64, addr)
		__field(u32, pages)
		__field(u32, moved)
		__field(bool, to_device)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->addr = addr;
		__entry->pages = pages;
		__entry->moved = moved;
		__entry->to_device = to_device;
		__entry->ret = ret;
	),
	TP_printk("tid=%#x addr=%#llx pages=%u moved=%u to=%s ret=%d", __entry->tid, __entry->addr,
		  __entry->pages, __entry->moved, __entry->to_device ? "device" : "system",
		  __entry->ret)
);

TRACE_EVENT(accel_hmm_invalidate,
	TP_PROTO(u32 tid, u64 start, u64 end, u32 event),
	TP_ARGS(tid, start, end, event),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u64, start)
		__field(u64, end)
		__field(u32, event)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->start = start;
		__entry->end = end;
		__entry->event = event;
	),
	TP_printk("tid=%#x start=%#llx end=%#llx event=%u", __entry->tid, __entry->start,
		  __entry->end, __entry->event)
);

TRACE_EVENT(accel_hmm_copy,
	TP_PROTO(u32 copied, u32 zeroed, u64 ns, int ret),
	TP_ARGS(copied, zeroed, ns, ret),
	TP_STRUCT__entry(
		__field(u32, copied)
		__field(u32, zeroed)
		__field(u64, ns)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->copied = copied;
		__entry->zeroed = zeroed;
		__entry->ns = ns;
		__entry->ret = ret;
	),
	TP_printk("copied=%u zeroed=%u ns=%llu ret=%d", __entry->copied, __entry->zeroed,
		  __entry->ns, __entry->ret)
);

DECLARE_EVENT_CLASS(accel_hmm_block,
	TP_PROTO(u32 block, u32 moved),
	TP_ARGS(block, moved),
	TP_STRUCT__entry(
		__field(u32, block)
		__field(u32, moved)
	),
	TP_fast_assign(
		__entry->block = block;
		__entry->moved = moved;
	),
	TP_printk("block=%u moved=%u", __entry->block, __entry->moved)
);

DEFINE_EVENT(accel_hmm_block, accel_hmm_evict, TP_PROTO(u32 block, u32 moved),
	     TP_ARGS(block, moved));
DEFINE_EVENT(accel_hmm_block, accel_hmm_defrag, TP_PROTO(u32 block, u32 moved),
	     TP_ARGS(block, moved));

#endif /* _ACCEL_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE accel_trace
#include <trace/define_trace.h>
