/*
 * UMMU device model: the state of the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef HW_UMMU_STATE_H
#define HW_UMMU_STATE_H


#include "qemu/queue.h"
#include "qemu/timer.h"
#include "hw/qdev-core.h"
#include "exec/memory.h"
#include "migration/vmstate.h"
#include "qobject/qdict.h"
#include "ummu.h"
#include "ummu-layout.h"

#define TYPE_UMMU_CORE "ummu-core"
OBJECT_DECLARE_SIMPLE_TYPE(UmmuState, UMMU_CORE)

#define UMMU_CORE_REGS_SIZE    0x5000u   /* architected and vendor registers */
#define UMMU_PMU_BASE          0x10000u
#define UMMU_PMU_SIZE          0x1000u
#define UMMU_CTRL_PAGE_BASE    0x20000u
#define UMMU_MCMDQ_MAX         256
#define UMMU_UQUEUE_MAX        65536
#define UMMU_RING_LOG2_MAX     19   /* largest exponent of MCMDQ and EVENTQ */
#define UMMU_KV_SLOTS_MAX      (8 * 256 + 256)
#define UMMU_TID_BITS          20
#define UMMU_MAPT_ADDR_BITS    48

/* ---- counters ----------------------------------------------------------- */

/*
 * X(member, "QOM name"): running totals since the last reset, readable as QOM
 * properties.  Faults by event code are the array below.
 */
#define UMMU_COUNTER_LIST(X)                        \
    X(requests, "requests")                         \
    X(responses_ok, "responses-ok")                 \
    X(responses_fault, "responses-fault")           \
    X(responses_razwi, "responses-razwi")           \
    X(responses_retry, "responses-retry")           \
    X(silent_faults, "silent-faults")               \
    X(bytes_read, "bytes-read")                     \
    X(bytes_written, "bytes-written")               \
    X(cfg_hit, "cfg-hits")                          \
    X(cfg_miss, "cfg-misses")                       \
    X(cfg_insert, "cfg-inserts")                    \
    X(cfg_evict, "cfg-evictions")                   \
    X(cfg_drop, "cfg-dropped")                      \
    X(tlb_hit, "tlb-hits")                          \
    X(tlb_miss, "tlb-misses")                       \
    X(tlb_insert, "tlb-inserts")                    \
    X(tlb_evict, "tlb-evictions")                   \
    X(tlb_drop, "tlb-dropped")                      \
    X(plb_hit, "plb-hits")                          \
    X(plb_miss, "plb-misses")                       \
    X(plb_insert, "plb-inserts")                    \
    X(plb_evict, "plb-evictions")                   \
    X(plb_drop, "plb-dropped")                      \
    X(plb_rewalk, "plb-positive-rewalks")           \
    X(kv_hit, "kv-hits")                            \
    X(kv_miss, "kv-misses")                         \
    X(s1_steps, "walk-steps-s1")                    \
    X(s2_steps, "walk-steps-s2")                    \
    X(mapt_steps, "walk-steps-mapt")                \
    X(af_updates, "access-flag-updates")            \
    X(dirty_updates, "dirty-updates")               \
    X(table_reads, "table-reads")                   \
    X(table_read_errors, "table-read-errors")       \
    X(stalls, "stalls")                             \
    X(stall_retries, "stall-retries")               \
    X(stall_aborts, "stall-aborts")                 \
    X(stall_timeouts, "stall-timeouts")             \
    X(commands, "commands")                         \
    X(command_errors, "command-errors")             \
    X(syncs, "syncs")                               \
    X(cfgi, "config-invalidations")                 \
    X(tlbi, "tlb-invalidations")                    \
    X(plbi, "plb-invalidations")                    \
    X(user_commands, "user-commands")               \
    X(user_completions, "user-completions")         \
    X(user_errors, "user-queue-errors")             \
    X(events, "events-recorded")                    \
    X(events_lost, "events-lost")                   \
    X(events_dropped, "events-dropped")             \
    X(irq_event, "interrupts-eventq")               \
    X(irq_error, "interrupts-glb-err")              \
    X(guest_errors, "guest-errors")

typedef struct UmmuCounters {
#define UMMU_COUNTER_MEMBER(member, name) uint64_t member;
    UMMU_COUNTER_LIST(UMMU_COUNTER_MEMBER)
#undef UMMU_COUNTER_MEMBER
    uint64_t faults[256];          /* by event code, recorded or not */
} UmmuCounters;

/* ---- configuration (properties) ----------------------------------------- */

typedef struct UmmuConfig {
    /* identity */
    uint32_t prod_id, prod_variant, prod_revision, arch_major, arch_minor;
    uint16_t vendor_id;
    uint32_t min_tid, max_tid, user_queues;
    /* CAP0 */
    uint8_t dsteid_size, tokenid_size;
    bool tct_two_level, tect_two_level;
    /* CAP1 */
    uint8_t eventq_log2, mcmdq_log2, mcmdq_size_log2;
    bool event_gen;
    uint32_t stall_max;
    /* CAP2 */
    bool vmid_tlbi, tlb_broadcast, range_tlbi, hw_bypass, s1, s2;
    bool gran_4k, gran_16k, gran_64k;
    uint8_t oas_bits;              /* 32 36 40 42 44 48 */
    /* CAP3 */
    bool coherent, mtm, hyp_s1, usi;
    uint8_t httu, stall_model, bbm_level;
    /* CAP4, CAP5 */
    uint8_t ucmdq_log2, ucplq_log2;
    bool pplb, mapt, free_bit, token_check, range_plbi, mapt_2m, mapt_4k;
    bool mapt_entry_mode, mapt_table_mode;
    bool gbpa_abort;               /* reset value of GBPA.ABORT */
    /* caches, in entries; 0 = off */
    uint32_t cfg_cache_entries, tlb_entries, plb_entries;
    bool strict;                   /* drop exactly what a command names */
    uint64_t stall_timeout_ns;     /* virtual time; 0 = never */
} UmmuConfig;

/* ---- register-backed units ---------------------------------------------- */

typedef struct UmmuMcmdq {
    uint64_t base;
    uint32_t pi, ci;               /* register images */
} UmmuMcmdq;

/* A user queue's control page; rings are found through the context table. */
typedef struct UmmuUqueue {
    uint16_t pi, ci, cpl_pi, cpl_ci;
    uint8_t state;                 /* UmmuUqueueState */
} UmmuUqueue;

typedef enum UmmuUqueueState {
    UMMU_UQ_IDLE,                  /* never ran since reset or release */
    UMMU_UQ_LIVE,                  /* the device owns UCMDQ_CI and UCPLQ_PI */
    UMMU_UQ_BLOCKED,               /* UCPLQ full, waits for UCPLQ_CI */
    UMMU_UQ_ERROR,                 /* stopped, context STATUS = error */
    UMMU_UQ_STATES,
} UmmuUqueueState;

typedef struct UmmuPmuCounter {
    uint32_t com_ctrl, ovf_sts, ovf_msk;
    uint32_t filt_cond[2], filt_msk[2];
    uint64_t cnt[2];
} UmmuPmuCounter;

typedef struct UmmuPmu {
    uint32_t glb_ctrl, ovf_usi_data, ovf_usi_attr, int_en, usi_mpam, usi_idx;
    uint32_t icg_en;
    uint64_t ovf_usi_addr;
    UmmuPmuCounter counter[UMMU_PMU_COUNTERS];
    bool active;                   /* derived: GLB_CTRL on and a counter on */
} UmmuPmu;

typedef enum UmmuFetchKind {
    UMMU_FETCH_TECT,
    UMMU_FETCH_TCT,
    UMMU_FETCH_MATT_S1,
    UMMU_FETCH_MATT_S2,
    UMMU_FETCH_MAPT,
    UMMU_FETCH_CMD,
    UMMU_FETCH_UCTX,
    UMMU_FETCH_UCMD,
    UMMU_FETCH_KV,
    UMMU_FETCH_KINDS,
} UmmuFetchKind;

/* Fault injection; all zero = off.  Set through QOM, saved, off at reset. */
typedef struct UmmuInject {
    uint64_t table_error_nth;      /* n-th matching read fails; counts down */
    uint32_t table_error_kinds;    /* mask of 1 << UmmuFetchKind; 0 = all */
    bool eventq_full;              /* treat the event queue as full */
    uint32_t drop_resumes;         /* ignore the next n CMD_STALL_RESUME */
    uint64_t resume_delay_ns;      /* stall answers come late (virtual) */
    uint64_t sync_delay_ns;        /* complete CMD_SYNC late (virtual time) */
} UmmuInject;

/* Outcome of the last benchmark-request (ummu-bench.c). */
typedef struct UmmuBenchResult {
    uint64_t lookups, ok;          /* made, and allowed */
    uint64_t ns;                   /* CPU time of all of them */
} UmmuBenchResult;

/* Arguments of the introspection properties (ummu-debug.c). */
typedef struct UmmuDebugQuery {
    uint32_t tag, tid;
    bool valid;                    /* result holds the last probe */
    UmmuResult result;
    UmmuBenchResult bench;
} UmmuDebugQuery;

/* Bus wrapper's side. */
typedef enum UmmuVector {
    UMMU_VEC_EVENTQ,
    UMMU_VEC_GLB_ERR,
    UMMU_VEC_COUNT,
} UmmuVector;

typedef struct UmmuBusOps {
    /* Raise the bus's own interrupt (MSI-X): no USI address is set. */
    void (*notify)(void *bus, UmmuVector vec);
    /* 32-bit message write to a doorbell; MMIO is allowed only here. */
    MemTxResult (*message)(void *bus, uint64_t addr, uint32_t data);
} UmmuBusOps;

struct UmmuClient {
    UmmuState *ummu;
    const UmmuClientOps *ops;
    void *opaque;
    uint64_t eid_lo, eid_hi;
    QLIST_ENTRY(UmmuClient) next;
};

/* One binding EID -> tag (ummu-kv.c). */
typedef struct UmmuKvEntry {
    uint64_t eid_lo, eid_hi;
    uint32_t kv_index;
    uint16_t tag;
} UmmuKvEntry;

/*
 * A piece of the address space that is plain RAM.  Found once, valid until the
 * memory topology changes; no reference is held, the listener forgets it first.
 */
typedef struct UmmuRamWindow {
    uint64_t first, last;          /* inclusive; none if first > last */
    MemoryRegionCache ram;         /* ptr: host address of first */
} UmmuRamWindow;

#define UMMU_RAM_WINDOWS 4

typedef struct UmmuCaches UmmuCaches;   /* ummu-cache.c */
typedef struct UmmuStalls UmmuStalls;   /* ummu-stall.c */

struct UmmuState {
    DeviceState parent_obj;

    UmmuConfig cfg;

    MemoryRegion frame;            /* registers, PMU, control pages */
    AddressSpace *dma_as;          /* from the wrapper; NULL once it is gone */
    DeviceState *bus_dev;          /* the bus function, refuses its unplug */
    const UmmuBusOps *bus_ops;
    void *bus;
    char *name;                    /* of the bus function, for trace and log */
    MemoryListener ram_listener;   /* on dma_as, forgets the windows */
    UmmuRamWindow ram_window[UMMU_RAM_WINDOWS];
    unsigned ram_victim;           /* next window to lose */

    /* Image of 0x0000..0x4FFF; MCMDQ banks live in mcmdq[] instead. */
    uint32_t regs[UMMU_CORE_REGS_SIZE / 4];
    UmmuMcmdq mcmdq[UMMU_MCMDQ_MAX];
    UmmuUqueue *uq;                /* cfg.user_queues entries */
    QEMUTimer *sync_timer;         /* delayed CMD_SYNC completion (injection) */
    uint64_t mcmdq_pending[UMMU_MCMDQ_MAX / 64];  /* queues waiting for it */

    GHashTable *kv;                /* EID -> UmmuKvEntry, authoritative */
    GHashTable *kv_slots;          /* KV_INDEX -> the same entry */
    const UmmuKvEntry *kv_last;    /* found last, NULL after every change */
    UmmuKvEntry *kv_saved;  /* UMMU_KV_SLOTS_MAX, filled for migration */
    uint32_t kv_saved_num;

    UmmuCaches *caches;
    UmmuStalls *stalls;
    UmmuPmu pmu;
    UmmuCounters cnt;
    UmmuDebugQuery query;
    UmmuInject inject;
    bool probing;                  /* a resolution without side effects runs */

    QLIST_HEAD(, UmmuClient) clients;
    Error *unplug_blocker;         /* set while there are clients */
};

#endif
