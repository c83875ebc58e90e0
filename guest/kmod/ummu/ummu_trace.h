/* SPDX-License-Identifier: GPL-2.0-or-later */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ummu

#if !defined(_UMMU_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _UMMU_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(ummu_cmd,
	TP_PROTO(u32 unit, u32 queue, u8 opcode, u32 count, bool sync, int ret),
	TP_ARGS(unit, queue, opcode, count, sync, ret),
	TP_STRUCT__entry(
		__field(u32, unit)
		__field(u32, queue)
		__field(u8, opcode)
		__field(u32, count)
		__field(bool, sync)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->unit = unit;
		__entry->queue = queue;
		__entry->opcode = opcode;
		__entry->count = count;
		__entry->sync = sync;
		__entry->ret = ret;
	),
	TP_printk("unit=%u queue=%u opcode=%#x count=%u sync=%d ret=%d", __entry->unit,
		  __entry->queue, __entry->opcode, __entry->count, __entry->sync, __entry->ret)
);

DECLARE_EVENT_CLASS(ummu_tid_class,
	TP_PROTO(u32 tid, u32 mode, int pid),
	TP_ARGS(tid, mode, pid),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u32, mode)
		__field(int, pid)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->mode = mode;
		__entry->pid = pid;
	),
	TP_printk("tid=%#x mode=%s pid=%d", __entry->tid, __entry->mode ? "entry" : "table",
		  __entry->pid)
);

DEFINE_EVENT(ummu_tid_class, ummu_tid_alloc,
	TP_PROTO(u32 tid, u32 mode, int pid), TP_ARGS(tid, mode, pid));
DEFINE_EVENT(ummu_tid_class, ummu_tid_free,
	TP_PROTO(u32 tid, u32 mode, int pid), TP_ARGS(tid, mode, pid));

DECLARE_EVENT_CLASS(ummu_block_class,
	TP_PROTO(u32 tid, u32 index, u64 pa, u32 order),
	TP_ARGS(tid, index, pa, order),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u32, index)
		__field(u64, pa)
		__field(u32, order)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->index = index;
		__entry->pa = pa;
		__entry->order = order;
	),
	TP_printk("tid=%#x block=%u pa=%#llx order=%u", __entry->tid, __entry->index, __entry->pa,
		  __entry->order)
);

DEFINE_EVENT(ummu_block_class, ummu_block_add,
	TP_PROTO(u32 tid, u32 index, u64 pa, u32 order), TP_ARGS(tid, index, pa, order));
DEFINE_EVENT(ummu_block_class, ummu_block_del,
	TP_PROTO(u32 tid, u32 index, u64 pa, u32 order), TP_ARGS(tid, index, pa, order));

TRACE_EVENT(ummu_context,
	TP_PROTO(u32 tid, u32 state, u32 asid),
	TP_ARGS(tid, state, asid),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u32, state)
		__field(u32, asid)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->state = state;
		__entry->asid = asid;
	),
	TP_printk("tid=%#x state=%s asid=%u", __entry->tid,
		  __print_symbolic(__entry->state, { 0, "off" }, { 1, "live" }, { 2, "quiet" }),
		  __entry->asid)
);

TRACE_EVENT(ummu_plbi,
	TP_PROTO(u32 tid, u64 va, u64 size),
	TP_ARGS(tid, va, size),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u64, va)
		__field(u64, size)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->va = va;
		__entry->size = size;
	),
	TP_printk("tid=%#x va=%#llx size=%#llx", __entry->tid, __entry->va, __entry->size)
);

TRACE_EVENT(ummu_event,
	TP_PROTO(u32 unit, u8 code, u32 tid, u64 addr, bool write, bool stall, u32 stag),
	TP_ARGS(unit, code, tid, addr, write, stall, stag),
	TP_STRUCT__entry(
		__field(u32, unit)
		__field(u8, code)
		__field(u32, tid)
		__field(u64, addr)
		__field(bool, write)
		__field(bool, stall)
		__field(u32, stag)
	),
	TP_fast_assign(
		__entry->unit = unit;
		__entry->code = code;
		__entry->tid = tid;
		__entry->addr = addr;
		__entry->write = write;
		__entry->stall = stall;
		__entry->stag = stag;
	),
	TP_printk("unit=%u code=%#x tid=%#x addr=%#llx %s stall=%d stag=%u", __entry->unit,
		  __entry->code, __entry->tid, __entry->addr, __entry->write ? "write" : "read",
		  __entry->stall, __entry->stag)
);

TRACE_EVENT(ummu_resume,
	TP_PROTO(u32 tid, u32 stag, u64 addr, bool write, int ret),
	TP_ARGS(tid, stag, addr, write, ret),
	TP_STRUCT__entry(
		__field(u32, tid)
		__field(u32, stag)
		__field(u64, addr)
		__field(bool, write)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->tid = tid;
		__entry->stag = stag;
		__entry->addr = addr;
		__entry->write = write;
		__entry->ret = ret;
	),
	TP_printk("tid=%#x stag=%u addr=%#llx %s %s ret=%d", __entry->tid, __entry->stag,
		  __entry->addr, __entry->write ? "write" : "read",
		  __entry->ret ? "abort" : "retry", __entry->ret)
);

#endif /* _UMMU_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE ummu_trace
#include <trace/define_trace.h>
