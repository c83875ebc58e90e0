/*
 * UMMU: saved state.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Everything software can observe is saved, caches are not: they start empty,
 * which is always legal.  A stream is as untrusted as a register write: after
 * the load every index, count and reserved bit is checked or cut.
 */
#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "migration/vmstate.h"
#include "ummu-internal.h"

static const VMStateDescription vmstate_ummu_mcmdq = {
    .name = "ummu/mcmdq",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(base, UmmuMcmdq),
        VMSTATE_UINT32(pi, UmmuMcmdq),
        VMSTATE_UINT32(ci, UmmuMcmdq),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_ummu_uqueue = {
    .name = "ummu/user-queue",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT16(pi, UmmuUqueue),
        VMSTATE_UINT16(ci, UmmuUqueue),
        VMSTATE_UINT16(cpl_pi, UmmuUqueue),
        VMSTATE_UINT16(cpl_ci, UmmuUqueue),
        VMSTATE_UINT8(state, UmmuUqueue),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_ummu_kv_entry = {
    .name = "ummu/kv-entry",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(eid_lo, UmmuKvEntry),
        VMSTATE_UINT64(eid_hi, UmmuKvEntry),
        VMSTATE_UINT32(kv_index, UmmuKvEntry),
        VMSTATE_UINT16(tag, UmmuKvEntry),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_ummu_pmu_counter = {
    .name = "ummu/pmu-counter",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32(com_ctrl, UmmuPmuCounter),
        VMSTATE_UINT32(ovf_sts, UmmuPmuCounter),
        VMSTATE_UINT32(ovf_msk, UmmuPmuCounter),
        VMSTATE_UINT32_ARRAY(filt_cond, UmmuPmuCounter, 2),
        VMSTATE_UINT32_ARRAY(filt_msk, UmmuPmuCounter, 2),
        VMSTATE_UINT64_ARRAY(cnt, UmmuPmuCounter, 2),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_ummu_pmu = {
    .name = "ummu/pmu",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32(glb_ctrl, UmmuPmu),
        VMSTATE_UINT32(ovf_usi_data, UmmuPmu),
        VMSTATE_UINT32(ovf_usi_attr, UmmuPmu),
        VMSTATE_UINT32(int_en, UmmuPmu),
        VMSTATE_UINT32(usi_mpam, UmmuPmu),
        VMSTATE_UINT32(usi_idx, UmmuPmu),
        VMSTATE_UINT32(icg_en, UmmuPmu),
        VMSTATE_UINT64(ovf_usi_addr, UmmuPmu),
        VMSTATE_STRUCT_ARRAY(counter, UmmuPmu, UMMU_PMU_COUNTERS, 1,
                             vmstate_ummu_pmu_counter, UmmuPmuCounter),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_ummu_counters = {
    .name = "ummu/counters",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
#define COUNTER_FIELD(member, name) VMSTATE_UINT64(member, UmmuCounters),
        UMMU_COUNTER_LIST(COUNTER_FIELD)
#undef COUNTER_FIELD
        VMSTATE_UINT64_ARRAY(faults, UmmuCounters, 256),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_ummu_inject = {
    .name = "ummu/inject",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(table_error_nth, UmmuInject),
        VMSTATE_UINT32(table_error_kinds, UmmuInject),
        VMSTATE_BOOL(eventq_full, UmmuInject),
        VMSTATE_UINT32(drop_resumes, UmmuInject),
        VMSTATE_UINT64(resume_delay_ns, UmmuInject),
        VMSTATE_UINT64(sync_delay_ns, UmmuInject),
        VMSTATE_END_OF_LIST()
    },
};

static int ummu_pre_save(void *opaque)
{
    ummu_kv_save(opaque);
    return 0;
}

/* Checked before the array is read: its room is fixed. */
static bool ummu_kv_count_ok(void *opaque, int version_id)
{
    UmmuState *s = opaque;

    return s->kv_saved_num <= UMMU_KV_SLOTS_MAX;
}

static bool ummu_uqueues_ok(const UmmuState *s)
{
    uint32_t i;

    for (i = 0; i < s->cfg.user_queues; i++) {
        if (s->uq[i].state >= UMMU_UQ_STATES) {
            return false;
        }
    }
    return true;
}

/* A queue that waits for a delayed CMD_SYNC needs the timer that ends it. */
static void ummu_rearm_sync(UmmuState *s)
{
    unsigned i;

    for (i = 0; i < ARRAY_SIZE(s->mcmdq_pending); i++) {
        if (s->mcmdq_pending[i] && !timer_pending(s->sync_timer)) {
            timer_mod(s->sync_timer, qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL));
        }
    }
}

static int ummu_post_load(void *opaque, int version_id)
{
    UmmuState *s = opaque;

    if (ummu_regs_post_load(s) < 0) {
        return -EINVAL;
    }
    if (!ummu_uqueues_ok(s) || ummu_kv_load(s) < 0) {
        error_report("%s: the saved state is damaged", ummu_id(s));
        return -EINVAL;
    }
    ummu_mcmdq_post_load(s);
    ummu_rearm_sync(s);
    ummu_pmu_update_active(s);
    ummu_cache_reset(s);
    return ummu_stall_post_load(s);
}

const VMStateDescription vmstate_ummu = {
    .name = "ummu-core",
    .version_id = 1,
    .minimum_version_id = 1,
    .pre_save = ummu_pre_save,
    .post_load = ummu_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32_EQUAL(cfg.user_queues, UmmuState,
                             "ummu property user-queues differs"),
        VMSTATE_UINT32_ARRAY(regs, UmmuState, UMMU_CORE_REGS_SIZE / 4),
        VMSTATE_STRUCT_ARRAY(mcmdq, UmmuState, UMMU_MCMDQ_MAX, 1,
                             vmstate_ummu_mcmdq, UmmuMcmdq),
        VMSTATE_UINT64_ARRAY(mcmdq_pending, UmmuState, UMMU_MCMDQ_MAX / 64),
        VMSTATE_TIMER_PTR(sync_timer, UmmuState),
        VMSTATE_STRUCT_VARRAY_POINTER_UINT32(uq, UmmuState, cfg.user_queues,
                                             vmstate_ummu_uqueue, UmmuUqueue),
        VMSTATE_UINT32(kv_saved_num, UmmuState),
        VMSTATE_VALIDATE("number of KV entries", ummu_kv_count_ok),
        VMSTATE_STRUCT_VARRAY_POINTER_UINT32(kv_saved, UmmuState, kv_saved_num,
                                             vmstate_ummu_kv_entry,
                                             UmmuKvEntry),
        VMSTATE_STRUCT(pmu, UmmuState, 1, vmstate_ummu_pmu, UmmuPmu),
        VMSTATE_STRUCT(cnt, UmmuState, 1, vmstate_ummu_counters, UmmuCounters),
        VMSTATE_STRUCT(inject, UmmuState, 1, vmstate_ummu_inject, UmmuInject),
        VMSTATE_STRUCT_POINTER(stalls, UmmuState, vmstate_ummu_stalls,
                               UmmuStalls),
        VMSTATE_END_OF_LIST()
    },
};
