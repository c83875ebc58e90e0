/*
 * UMMU device model: interfaces shared by the files of the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * DOC: parts
 *
 *   ummu.c         properties, reset, clients    ummu-tables.c   TECT, TCT
 *   ummu-regs.c    register frame             ummu-walk.c     MATT
 *   ummu-mem.c     guest memory, messages     ummu-mapt.c     MAPT
 *   ummu-mcmdq.c   kernel command queues      ummu-cache.c   config, TLB, PLB
 *   ummu-command.c what their commands do     ummu-resolve.c  one request
 *   ummu-ucmdq.c   user command queues        ummu-stall.c   stalled requests
 *   ummu-eventq.c  events, errors, interrupts    ummu-pmu.c      counters
 *   ummu-kv.c      DstEID look-up             ummu-debug.c    introspection
 *   ummu-pci.c     bus wrapper                ummu-vmstate.c  saved state
 *   ummu-bench.c   cost of look-ups           ummu-record.c   refusals
 *
 * DOC: locking and order
 *
 * One lock: the BQL.  Register accesses, ummu_translate(), invalidations,
 * timers, bottom halves and QOM accessors all run with it held; the device
 * starts no thread and has no lock of its own, so there is no lock order to
 * keep.  A client that works in a thread takes the BQL around ummu_translate()
 * *and* the access to the returned piece, otherwise a CMD_SYNC could complete
 * between the two and the access would outlive its permission.
 *
 * Re-entry: all accesses of the device to guest memory go through ummu-mem.c,
 * which touches RAM only, never a register, so no access can come back into a
 * model.  The one exception are interrupt messages; they are sent last, after
 * the state they announce is complete.
 *
 * Order seen by software: command effects -> CI -> completion write; event
 * record -> PI -> interrupt; completion entry -> UCPLQ_PI.
 *
 * DOC: hostile input
 *
 * Everything read from registers' values, rings and tables is untrusted.  Each
 * loop is bounded by a clamped ring exponent or a fixed number of levels, and
 * wrong values end as an architectural error, a counter and a trace line.
 */
#ifndef HW_UMMU_INTERNAL_H
#define HW_UMMU_INTERNAL_H

#include "ummu-state.h"

/* ---- registers and capabilities (ummu-regs.c) --------------------------- */

static inline uint32_t ummu_reg32(const UmmuState *s, hwaddr offset)
{
    return s->regs[offset / 4];
}

static inline uint64_t ummu_reg64(const UmmuState *s, hwaddr offset)
{
    return s->regs[offset / 4] | (uint64_t)s->regs[offset / 4 + 1] << 32;
}

/* Value of one register field: UMMU_REG_FIELD(s, UMMU_CTRL0, UMMU_EN) */
#define UMMU_REG_FIELD(s, reg, field) \
    FIELD_EX32(ummu_reg32((s), A_##reg), reg, field)
#define UMMU_REG64_FIELD(s, reg, field) \
    FIELD_EX64(ummu_reg64((s), A_##reg), reg, field)

static inline bool ummu_enabled(const UmmuState *s)
{
    return UMMU_REG_FIELD(s, UMMU_CTRL0, UMMU_EN);
}

static inline bool ummu_eventq_enabled(const UmmuState *s)
{
    return UMMU_REG_FIELD(s, UMMU_CTRL0, EVENTQ_EN);
}

/* These two need the capability as well. */
static inline bool ummu_mapt_enabled(const UmmuState *s)
{
    return s->cfg.mapt && UMMU_REG_FIELD(s, UMMU_CTRL0, MAPT_EN);
}

static inline bool ummu_positive_plb(const UmmuState *s)
{
    return s->cfg.pplb && UMMU_REG_FIELD(s, UMMU_CTRL2, POSITIVE_PLB);
}

static inline bool ummu_cap_s1(const UmmuState *s) { return s->cfg.s1; }
static inline bool ummu_cap_s2(const UmmuState *s) { return s->cfg.s2; }
static inline bool ummu_cap_bypass(const UmmuState *s)
{
    return s->cfg.hw_bypass;
}
static inline bool ummu_cap_free_bit(const UmmuState *s)
{
    return s->cfg.free_bit;
}
static inline unsigned ummu_cap_oas(const UmmuState *s)
{
    return s->cfg.oas_bits;
}
static inline unsigned ummu_cap_httu(const UmmuState *s) { return s->cfg.httu; }
/* TGS/TG of TCTE and TECTE: 0 = 4K, 1 = 64K, 2 = 16K; 3 is never legal. */
bool ummu_cap_granule(const UmmuState *s, unsigned tg);

uint64_t ummu_tect_base(const UmmuState *s);
/* LOG2SIZE clamped to what the tag width of the capability allows. */
static inline unsigned ummu_tect_log2size(const UmmuState *s)
{
    return MIN(UMMU_REG_FIELD(s, UMMU_TECT_BASE_CFG, LOG2SIZE),
               s->cfg.dsteid_size);
}

void ummu_regs_init(UmmuState *s);
void ummu_regs_reset(UmmuState *s);        /* reset values and capabilities */
/* Check a loaded image and recompute what follows from it; < 0: refused. */
int ummu_regs_post_load(UmmuState *s);

/* Name and image of register number @i (introspection); NULL past the last. */
const char *ummu_reg_describe(const UmmuState *s, unsigned i, uint64_t *value);

/* One guest mistake: counter, trace line, LOG_GUEST_ERROR line. */
void ummu_guest_error(UmmuState *s, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
/* For trace and log lines. */
static inline const char *ummu_id(const UmmuState *s)
{
    return s->name ? s->name : "ummu";
}

/* ---- guest memory and messages (ummu-mem.c) ----------------------------- */

/*
 * Read a table entry.  RAM only; anything else is a bus error.  An aligned
 * 8-byte read is single-copy atomic.  Honours fault injection and counts,
 * unless s->probing.
 */
MemTxResult ummu_table_read(UmmuState *s, uint64_t addr, void *buf, size_t len,
                            UmmuFetchKind kind);
/*
 * Update a 64-bit descriptor in place for access flag and dirty state.
 * @old and @new are the raw little-endian or big-endian memory image, as read
 * by ummu_table_read() into a uint64_t.  Returns MEMTX_OK and sets @swapped
 * false if another agent changed the descriptor first.
 */
MemTxResult ummu_table_cmpxchg64(UmmuState *s, uint64_t addr, uint64_t old,
                                 uint64_t new, bool *swapped);
/* Follow and stop following the address space: its RAM is remembered. */
void ummu_ram_init(UmmuState *s);
void ummu_ram_exit(UmmuState *s);
/* Write RAM (records, completions, results). */
MemTxResult ummu_mem_write(UmmuState *s, uint64_t addr, const void *buf,
                           size_t len);
/*
 * 32-bit message: interrupt doorbell or RAM, no register of a PCI function.
 */
MemTxResult ummu_message(UmmuState *s, uint64_t addr, uint32_t data);

/* ---- events and global errors (ummu-eventq.c) --------------------------- */

typedef struct UmmuEvent {
    uint8_t code;                  /* UMMU_EVT_* */
    bool rnw, ind, pnu;            /* access: read, instruction, privileged */
    uint8_t cls;                   /* 0 TCT fetch, 1 table walk, 2 input */
    bool nsipa, s2, stall, ttrnw;
    uint32_t tid;
    uint16_t tag;
    uint16_t stag;
    uint32_t reason;
    uint64_t ipa;                  /* byte address; bits 51:12 are recorded */
    uint64_t iaddr;                /* UBA as given */
    uint64_t ftaddr;               /* table access that failed */
    uint64_t eid_lo, eid_hi;       /* BAD_DSTEID and KV results only */
} UmmuEvent;

/*
 * Record one event: write, advance PI, interrupt.  False if it is not in the
 * queue (EVENTQ off, full, or the write was aborted).  Fields the code does not
 * define are left 0 whatever @ev holds.  Counts cnt.faults[code] as well.
 */
bool ummu_event_record(UmmuState *s, const UmmuEvent *ev);
/* True if the next record would be accepted: a stall must ask first. */
bool ummu_eventq_has_room(const UmmuState *s);
void ummu_eventq_enabled_changed(UmmuState *s, bool on);
void ummu_glb_err_raise(UmmuState *s, uint32_t bit_mask);
void ummu_interrupt(UmmuState *s, UmmuVector vec);
/* GLB_INT_EN was written: send what is pending. */
void ummu_interrupts_enabled(UmmuState *s, uint32_t newly_on);
const char *ummu_event_name(uint8_t code);

/* ---- DstEID look-up (ummu-kv.c) ----------------------------------------- */

/* Follows CTRL1.TECT_MODE_SEL: key-value map or direct index. */
bool ummu_kv_lookup(UmmuState *s, uint64_t eid_lo, uint64_t eid_hi,
                    uint32_t *tag);
/* Results double as REASON of the result events. */
typedef enum UmmuKvResult {
    UMMU_KV_OK,
    UMMU_KV_DUPLICATE,             /* EID bound already: first binding stays */
    UMMU_KV_BAD_INDEX,             /* beyond the last slot, or wrong bucket */
    UMMU_KV_NOT_FOUND,
    UMMU_KV_SLOT_USED,             /* slot belongs to another EID */
    UMMU_KV_ABORT,                 /* slot could not be written */
} UmmuKvResult;
UmmuKvResult ummu_kv_create(UmmuState *s, uint64_t eid_lo, uint64_t eid_hi,
                            uint16_t tag, uint32_t kv_index);
UmmuKvResult ummu_kv_delete(UmmuState *s, uint64_t eid_lo, uint64_t eid_hi,
                            uint16_t tag, uint32_t kv_index);
uint32_t ummu_kv_hash(uint64_t eid_lo, uint64_t eid_hi, uint32_t seed);
void ummu_kv_init(UmmuState *s);
void ummu_kv_reset(UmmuState *s);
void ummu_kv_free(UmmuState *s);
/* Table <-> flat array for the saved state. */
void ummu_kv_save(UmmuState *s);
int ummu_kv_load(UmmuState *s);

typedef struct UmmuPlbInv UmmuPlbInv;
typedef struct UmmuTlbInv UmmuTlbInv;
typedef struct UmmuCfgInv UmmuCfgInv;

/* ---- command queues (ummu-mcmdq.c, ummu-ucmdq.c) ------------------------ */

uint64_t ummu_mcmdq_read(UmmuState *s, unsigned q, hwaddr off, unsigned size);
void ummu_mcmdq_write(UmmuState *s, unsigned q, hwaddr off, uint64_t val,
                      unsigned size);
void ummu_mcmdq_reset(UmmuState *s);
int ummu_mcmdq_post_load(UmmuState *s);
void ummu_mcmdq_sync_expired(void *opaque);       /* timer callback */

/*
 * Execute the command @w (host order) that lies at @slot; CMD_SYNC is completed
 * by the queue.  Returns a UMMU_MCMDQ_ERR_REASON_*.
 */
unsigned ummu_command_execute(UmmuState *s, unsigned qi, uint64_t slot,
                              const uint64_t w[CMD_WORDS]);
const char *ummu_command_name(uint8_t opcode);
/* Fill the range of a PLBI: 2^log2 bytes at an unaligned address. */
void ummu_plbi_range(uint64_t addr, unsigned log2, UmmuPlbInv *inv);

uint64_t ummu_ucmdq_read(UmmuState *s, hwaddr off, unsigned size);
void ummu_ucmdq_write(UmmuState *s, hwaddr off, uint64_t val, unsigned size);
void ummu_ucmdq_release(UmmuState *s, uint32_t qid);
void ummu_ucmdq_reset(UmmuState *s);

/* ---- performance counters (ummu-pmu.c) ---------------------------------- */

/* Event selectors of the PMU that the model can count. */
enum {
    UMMU_PMU_PPTW_REQ = UMMU_PMU_EV_TCU_PPTW_REQ_NUM,  /* MAPT walks */
    UMMU_PMU_CNTX_MISS = UMMU_PMU_EV_TCU_CNTX_CACHE_MISS_NUM,
    UMMU_PMU_CMD_SEND = UMMU_PMU_EV_SWIF_CMD_SEND_NUM,
    /* Rates: CNT0 hits, CNT1 look-ups. */
    UMMU_PMU_TLB_HIT = UMMU_PMU_EV_TBU_TLB_CACHE_HIT_RATE,
    UMMU_PMU_PLB_HIT = UMMU_PMU_EV_TBU_PLB_CACHE_HIT_RATE,
    UMMU_PMU_KV_HIT = UMMU_PMU_EV_UBIF_KV_CACHE_HIT_RATE,
    UMMU_PMU_REQ = UMMU_PMU_EV_REQ_RATE,
    UMMU_PMU_RSP = UMMU_PMU_EV_RSP_RATE,
    /* The model's own. */
    UMMU_PMU_STEPS_S1 = UMMU_PMU_EV_MODEL_WALK_STEPS_S1,
    UMMU_PMU_STEPS_S2 = UMMU_PMU_EV_MODEL_WALK_STEPS_S2,
    UMMU_PMU_STEPS_MAPT = UMMU_PMU_EV_MODEL_WALK_STEPS_MAPT,
    UMMU_PMU_STALL = UMMU_PMU_EV_MODEL_STALL_NUM,
    UMMU_PMU_CFGI = UMMU_PMU_EV_MODEL_CFGI_NUM,
    UMMU_PMU_TLBI = UMMU_PMU_EV_MODEL_TLBI_NUM,
    UMMU_PMU_PLBI = UMMU_PMU_EV_MODEL_PLBI_NUM,
    UMMU_PMU_BYTES_READ = UMMU_PMU_EV_MODEL_BYTES_READ,
    UMMU_PMU_BYTES_WRITTEN = UMMU_PMU_EV_MODEL_BYTES_WRITTEN,
    UMMU_PMU_FAULT = UMMU_PMU_EV_MODEL_FAULT_NUM,   /* + code of a fault */
    UMMU_PMU_FAULTS = 0x20,
};

void ummu_pmu_add(UmmuState *s, unsigned event, uint32_t tag, uint32_t tid,
                  uint64_t cnt0, uint64_t cnt1);

/* Cheap when no counter runs; never called for a probe. */
static inline void ummu_pmu_count(UmmuState *s, unsigned event, uint32_t tag,
                                  uint32_t tid, uint64_t cnt0, uint64_t cnt1)
{
    if (unlikely(s->pmu.active) && !s->probing) {
        ummu_pmu_add(s, event, tag, tid, cnt0, cnt1);
    }
}

/* A fault, recorded or not: totals by code, and the counters that watch it. */
static inline void ummu_count_fault(UmmuState *s, uint8_t code, uint32_t tag,
                                    uint32_t tid)
{
    s->cnt.faults[code]++;
    if (code < UMMU_PMU_FAULTS) {
        ummu_pmu_count(s, UMMU_PMU_FAULT + code, tag, tid, 1, 0);
    }
}

uint64_t ummu_pmu_read(UmmuState *s, hwaddr off, unsigned size);
void ummu_pmu_write(UmmuState *s, hwaddr off, uint64_t val, unsigned size);
void ummu_pmu_reset(UmmuState *s);
void ummu_pmu_update_active(UmmuState *s);

/* ---- introspection (ummu-debug.c), migration (ummu-vmstate.c) ----------- */

void ummu_debug_init(Object *core);
/* "eid=..,tid=..,uba=..,len=..,access=.." as a request that never stalls. */
bool ummu_request_parse(const QDict *d, UmmuRequest *req, Error **errp);
/* Number at @key, *value unchanged without the key; false with an error. */
bool ummu_request_u64(const QDict *d, const char *key, uint64_t max,
                      uint64_t *value, Error **errp);
/* QOM setter of benchmark-request (ummu-bench.c). */
void ummu_set_benchmark(Object *obj, const char *text, Error **errp);
/* Give the bus function the same introspection properties as the core has. */
void ummu_debug_alias(Object *bus_dev, Object *core);
extern const VMStateDescription vmstate_ummu;

/* ---- life cycle, for the bus wrapper (ummu.c) --------------------------- */

void ummu_reset_enter(UmmuState *s);       /* own state, no effect on others */
void ummu_reset_hold(UmmuState *s);        /* clients: stalls have failed */

/* ---- caches (ummu-cache.c) ---------------------------------------------- */

typedef enum UmmuRegime {
    UMMU_REGIME_EL1,
    UMMU_REGIME_EL2,
} UmmuRegime;

/* Which configuration entries to drop; tags are an inclusive range. */
struct UmmuCfgInv {
    bool tecte, tcte;              /* kinds of entries */
    bool by_tag;
    uint32_t tag_first, tag_last;
    bool by_tid;                   /* TCTE only */
    uint32_t tid;
};

/*
 * Which TLB entries to drop: every set condition must hold.
 *
 * s1: entries with a stage 1 part (stage 1 only and combined); the range is
 *     their input address.
 * s2: stage 2 only entries, the range is the IPA; *and* combined entries, for
 *     which the range, TID and ASID are ignored (their IPA is not known).
 * first/last are inclusive and raw as in the command: compare within the
 * entry's input size, so that sign-extended kernel addresses match.
 */
struct UmmuTlbInv {
    bool s1, s2;
    bool by_regime;
    UmmuRegime regime;
    bool by_tag;
    uint32_t tag_first, tag_last;
    bool by_tid, by_asid, by_vmid, by_range;
    uint32_t tid;
    uint16_t asid, vmid;
    uint64_t first, last;
    bool leaf;                     /* only leaf entries need to go (hint) */
};

/* Which PLB entries to drop; addresses are UBA[47:0], inclusive. */
struct UmmuPlbInv {
    bool by_tag;
    uint32_t tag_first, tag_last;
    bool by_tid;
    uint32_t tid;
    bool by_range;                 /* own range overlaps [first, last] */
    uint64_t first, last;
    bool by_next;                  /* came from this next-level table */
    uint16_t next_index;
    uint32_t next_offset;
};

/* Sizes from s->cfg; called at realize, after validation. */
void ummu_cache_init(UmmuState *s);
void ummu_cache_reset(UmmuState *s);   /* drop everything, keep the arrays */
void ummu_cache_free(UmmuState *s);
/* Each returns the number of entries dropped and adds it to cnt.*_drop. */
size_t ummu_cfg_invalidate(UmmuState *s, const UmmuCfgInv *inv);
size_t ummu_tlb_invalidate(UmmuState *s, const UmmuTlbInv *inv);
size_t ummu_plb_invalidate(UmmuState *s, const UmmuPlbInv *inv);
/* Entries in use now (introspection). */
void ummu_cache_fill(UmmuState *s, uint32_t *cfg, uint32_t *tlb, uint32_t *plb);

/* ---- resolution and stalls (ummu-resolve.c, ummu-stall.c) --------------- */

/*
 * Decide one request.  @probe: no event, no counter, no cache fill, no table
 * update, no stall (a fault that would stall reports UMMU_RES_FAULT).
 * ummu_translate() is this with probe = false.
 */
void ummu_resolve(UmmuState *s, UmmuClient *c, const UmmuRequest *req,
                  bool probe, UmmuResult *res, UmmuPieces *more);

/*
 * Introspection: read the entry a request of (tag, tid) would use, past the
 * caches, without side effects.  0, or the event code of the refusal.
 */
uint8_t ummu_peek_tecte(UmmuState *s, uint32_t tag, uint64_t out[8]);
uint8_t ummu_peek_tcte(UmmuState *s, uint32_t tag, uint32_t tid,
                       uint64_t out[8]);

void ummu_stall_init(UmmuState *s);
void ummu_stall_free(UmmuState *s);
/*
 * CMD_STALL_RESUME; false for an unknown STAG or another tag.  The answer
 * reaches the client inject.resume_delay_ns later (0: next main loop turn).
 */
bool ummu_stall_resume(UmmuState *s, uint16_t stag, uint32_t tag, bool retry);
unsigned ummu_stall_terminate(UmmuState *s, uint32_t tag);  /* CMD_STALL_TERM */
unsigned ummu_stall_fail_all(UmmuState *s);           /* reset, UMMU_EN = 0 */
void ummu_stall_forget_client(UmmuClient *c);
unsigned ummu_stall_count(UmmuState *s);
/* Introspection, one line per stalled request: "stag=.. tag=.. tid=.. ..." */
void ummu_stall_describe(UmmuState *s, GString *out);
/* Saved as VMSTATE_STRUCT_POINTER(stalls); opaque is UmmuStalls. */
extern const VMStateDescription vmstate_ummu_stalls;
/* After load, registers valid: bounds, timers. */
int ummu_stall_post_load(UmmuState *s);

#endif
