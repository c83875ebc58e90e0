/*
 * UMMU: register frame.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Every register is a row of the generated list: offset, width, reset value,
 * mask of existing bits, access, and the enable bit that protects it.  What a
 * write does beyond storing the value is a hook beside the row.
 */
#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/host-utils.h"
#include "qemu/log.h"
#include "ummu-internal.h"
#include "trace.h"

typedef enum UmmuRegAccess {
    UMMU_REG_RO,
    UMMU_REG_RW,
    UMMU_REG_WO_SC,
    UMMU_REG_TOGGLE,
} UmmuRegAccess;

typedef enum UmmuRegGuard {
    UMMU_GUARD_NONE,
    UMMU_GUARD_UMMU_EN,
    UMMU_GUARD_EVENTQ_EN,
    UMMU_GUARD_MAPT_EN,
} UmmuRegGuard;

typedef struct UmmuRegInfo {
    const char *name;
    uint32_t offset;
    uint8_t width;
    uint8_t access;
    uint8_t guard;
    uint64_t reset;
    uint64_t mask;
} UmmuRegInfo;

static const UmmuRegInfo reg_info[] = {
#define UMMU_REG_ROW(_name, _offset, _width, _reset, _mask, _access, _guard) \
    { .name = #_name, .offset = (_offset), .width = (_width),               \
      .reset = (_reset), .mask = (_mask), .access = UMMU_REG_##_access,     \
      .guard = UMMU_GUARD_##_guard },
    UMMU_REG_LIST(UMMU_REG_ROW)
#undef UMMU_REG_ROW
};

/* Row number + 1 for each 32-bit word of the frame; 0 = hole. */
static uint8_t reg_row[UMMU_CORE_REGS_SIZE / 4];
QEMU_BUILD_BUG_ON(ARRAY_SIZE(reg_info) >= UINT8_MAX);

static void ummu_regs_index(void)
{
    unsigned i, w;

    for (i = 0; i < ARRAY_SIZE(reg_info); i++) {
        for (w = 0; w < reg_info[i].width / 32; w++) {
            reg_row[reg_info[i].offset / 4 + w] = i + 1;
        }
    }
}

/* ---- small helpers ------------------------------------------------------ */

void ummu_guest_error(UmmuState *s, const char *fmt, ...)
{
    g_autofree char *text = NULL;
    va_list ap;

    s->cnt.guest_errors++;
    if (!qemu_loglevel_mask(LOG_GUEST_ERROR) &&
        !trace_event_get_state(TRACE_UMMU_GUEST_ERROR)) {
        return;
    }
    va_start(ap, fmt);
    text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    trace_ummu_guest_error(ummu_id(s), text);
    qemu_log_mask(LOG_GUEST_ERROR, "%s: %s\n", ummu_id(s), text);
}

bool ummu_cap_granule(const UmmuState *s, unsigned tg)
{
    switch (tg) {
    case 0:
        return s->cfg.gran_4k;
    case 1:
        return s->cfg.gran_64k;
    case 2:
        return s->cfg.gran_16k;
    default:
        return false;
    }
}

uint64_t ummu_tect_base(const UmmuState *s)
{
    return ummu_reg64(s, A_UMMU_TECT_BASE) & R_UMMU_TECT_BASE_ADDR_MASK;
}

/* ---- hooks: what a write starts ----------------------------------------- */

/* An exponent above the capability acts as the capability's maximum (V17). */
static void ummu_check_exponent(UmmuState *s, const char *what, unsigned log2,
                                unsigned max)
{
    if (log2 > max) {
        ummu_guest_error(s, "%s LOG2SIZE %u exceeds the capability, used as %u",
                         what, log2, max);
    }
}

static void ummu_ctrl0_written(UmmuState *s, uint64_t old)
{
    uint32_t val = ummu_reg32(s, A_UMMU_CTRL0);
    uint32_t off = old & ~val;

    s->regs[R_UMMU_CTRL0_ACK] = val;
    if (off & R_UMMU_CTRL0_UMMU_EN_MASK) {
        ummu_stall_fail_all(s);
        if (!s->cfg.strict) {
            ummu_cache_reset(s);
        }
    }
    trace_ummu_enable(ummu_id(s), val, off);
}

/* CTRL3, GBPA, GBPA_MTM_CFG: taken over only together with the update flag. */
static void ummu_update_written(UmmuState *s, hwaddr offset, uint32_t flag,
                                uint64_t old)
{
    uint32_t *reg = &s->regs[offset / 4];

    if (*reg & flag) {
        *reg &= ~flag;
    } else {
        *reg = old;
        ummu_guest_error(s, "write to 0x%" HWADDR_PRIx " without the update "
                         "flag", offset);
    }
}

static void ummu_ctrl3_written(UmmuState *s, uint64_t old)
{
    ummu_update_written(s, A_UMMU_CTRL3, R_UMMU_CTRL3_UPDATE_FLG_MASK, old);
}

static void ummu_gbpa_written(UmmuState *s, uint64_t old)
{
    ummu_update_written(s, A_UMMU_GBPA, R_UMMU_GBPA_UPDATE_MASK, old);
}

static void ummu_gbpa_mtm_written(UmmuState *s, uint64_t old)
{
    ummu_update_written(s, A_UMMU_GBPA_MTM_CFG, R_UMMU_GBPA_MTM_CFG_UPDATE_MASK,
                        old);
}

static void ummu_tect_cfg_written(UmmuState *s, uint64_t old)
{
    ummu_check_exponent(s, "TECT",
                        UMMU_REG_FIELD(s, UMMU_TECT_BASE_CFG, LOG2SIZE),
                        s->cfg.dsteid_size);
}

static void ummu_evtq_base_written(UmmuState *s, uint64_t old)
{
    ummu_check_exponent(s, "EVENTQ",
                        UMMU_REG64_FIELD(s, UMMU_EVENT_QUE_BASE, LOG2SIZE),
                        s->cfg.eventq_log2);
}

static void ummu_uctx_base_written(UmmuState *s, uint64_t old)
{
    uint64_t base = ummu_reg64(s, A_UMMU_MAPT_CMDQ_CTXT_BADDR);

    ummu_check_exponent(s, "user queue context table",
                        FIELD_EX64(base, UMMU_MAPT_CMDQ_CTXT_BADDR, LOG2SIZE),
                        16);
}

static void ummu_int_en_written(UmmuState *s, uint64_t old)
{
    ummu_interrupts_enabled(s, ummu_reg32(s, A_UMMU_GLB_INT_EN) & ~old);
}

static void ummu_glb_err_resp_written(UmmuState *s, uint64_t old)
{
    uint32_t changed = old ^ ummu_reg32(s, A_UMMU_GLB_ERR_RESP);
    uint32_t was_pending = old ^ ummu_reg32(s, A_UMMU_GLB_ERR);

    if (changed & ~was_pending) {
        ummu_guest_error(s, "GLB_ERR_RESP acknowledges 0x%x, which is not "
                         "pending", changed & ~was_pending);
    }
}

static void ummu_release_written(UmmuState *s, uint64_t old)
{
    if (UMMU_REG_FIELD(s, UMMU_RELEASE_UM_QUEUE, RELEASE)) {
        s->regs[R_UMMU_RELEASE_UM_QUEUE] = 0;
        ummu_ucmdq_release(s, ummu_reg32(s, A_UMMU_RELEASE_UM_QUEUE_ID));
    }
}

/* Memory initialisation ends at once: the *_INITING bits always read 0. */
static void ummu_user_config2_written(UmmuState *s, uint64_t old)
{
    s->regs[R_UMMU_USER_CONFIG2] &=
        ~(R_UMMU_USER_CONFIG2_TBU_L2_MEM_INITING_MASK |
          R_UMMU_USER_CONFIG2_MCMDQ_MEM_INITING_MASK);
    if (UMMU_REG_FIELD(s, UMMU_USER_CONFIG2, INV_TLB_ALL_NS)) {
        const UmmuTlbInv all = { .s1 = true, .s2 = true };

        ummu_tlb_invalidate(s, &all);
    }
}

static const struct {
    uint32_t offset;
    void (*written)(UmmuState *s, uint64_t old);
} reg_hooks[] = {
    { A_UMMU_CTRL0, ummu_ctrl0_written },
    { A_UMMU_CTRL3, ummu_ctrl3_written },
    { A_UMMU_GBPA, ummu_gbpa_written },
    { A_UMMU_GBPA_MTM_CFG, ummu_gbpa_mtm_written },
    { A_UMMU_TECT_BASE_CFG, ummu_tect_cfg_written },
    { A_UMMU_EVENT_QUE_BASE, ummu_evtq_base_written },
    { A_UMMU_GLB_INT_EN, ummu_int_en_written },
    { A_UMMU_GLB_ERR_RESP, ummu_glb_err_resp_written },
    { A_UMMU_MAPT_CMDQ_CTXT_BADDR, ummu_uctx_base_written },
    { A_UMMU_RELEASE_UM_QUEUE, ummu_release_written },
    { A_UMMU_USER_CONFIG2, ummu_user_config2_written },
};

/* ---- access ------------------------------------------------------------- */

static bool ummu_guarded(const UmmuState *s, const UmmuRegInfo *r)
{
    switch ((UmmuRegGuard)r->guard) {
    case UMMU_GUARD_UMMU_EN:
        return UMMU_REG_FIELD(s, UMMU_CTRL0, UMMU_EN);
    case UMMU_GUARD_EVENTQ_EN:
        return UMMU_REG_FIELD(s, UMMU_CTRL0, EVENTQ_EN);
    case UMMU_GUARD_MAPT_EN:
        return UMMU_REG_FIELD(s, UMMU_CTRL0, MAPT_EN);
    case UMMU_GUARD_NONE:
        break;
    }
    return false;
}

/*
 * A register answers to accesses of its own width, a 64-bit register also to
 * each of its halves.  NULL for anything else.
 */
static const UmmuRegInfo *ummu_reg_find(hwaddr off, unsigned size)
{
    const UmmuRegInfo *r;

    if (off >= UMMU_CORE_REGS_SIZE || (off & 3) || !reg_row[off / 4]) {
        return NULL;
    }
    r = &reg_info[reg_row[off / 4] - 1];
    if (size == 4 || (size == 8 && r->width == 64 && off == r->offset)) {
        return r;
    }
    return NULL;
}

static void ummu_reg_write(UmmuState *s, const UmmuRegInfo *r, hwaddr off,
                           uint64_t val, unsigned size)
{
    uint64_t old = r->width == 64 ? ummu_reg64(s, r->offset)
                                  : ummu_reg32(s, r->offset);
    unsigned word, n;

    if (r->access == UMMU_REG_RO || r->access == UMMU_REG_TOGGLE) {
        ummu_guest_error(s, "write to read-only %s", r->name);
        return;
    }
    if (ummu_guarded(s, r)) {
        ummu_guest_error(s, "write to %s while its unit is enabled", r->name);
        return;
    }
    for (n = 0; n < size / 4; n++) {
        word = off / 4 + n;
        s->regs[word] = (val >> (32 * n)) &
                        (r->mask >> (32 * (word - r->offset / 4)));
    }
    for (n = 0; n < ARRAY_SIZE(reg_hooks); n++) {
        if (reg_hooks[n].offset == r->offset) {
            reg_hooks[n].written(s, old);
        }
    }
}

static uint64_t ummu_core_read(UmmuState *s, hwaddr off, unsigned size)
{
    const UmmuRegInfo *r = ummu_reg_find(off, size);
    uint64_t val;

    if (!r) {
        ummu_guest_error(s, "bad read of %u bytes at 0x%" HWADDR_PRIx, size,
                         off);
        return 0;
    }
    val = size == 8 ? ummu_reg64(s, off) : ummu_reg32(s, off);
    trace_ummu_reg_read(ummu_id(s), r->name, off, size, val);
    return val;
}

static void ummu_core_write(UmmuState *s, hwaddr off, uint64_t val,
                            unsigned size)
{
    const UmmuRegInfo *r = ummu_reg_find(off, size);

    if (!r) {
        ummu_guest_error(s, "bad write of %u bytes at 0x%" HWADDR_PRIx, size,
                         off);
        return;
    }
    trace_ummu_reg_write(ummu_id(s), r->name, off, size, val);
    ummu_reg_write(s, r, off, val, size);
}

static bool ummu_in_mcmdq_bank(const UmmuState *s, hwaddr off)
{
    return off >= MCMDQ_BANK_BASE &&
           off < MCMDQ_BANK_BASE +
                 ((hwaddr)MCMDQ_BANK_STRIDE << s->cfg.mcmdq_log2);
}

static uint64_t ummu_frame_read(void *opaque, hwaddr off, unsigned size)
{
    UmmuState *s = opaque;

    if (ummu_in_mcmdq_bank(s, off)) {
        off -= MCMDQ_BANK_BASE;
        return ummu_mcmdq_read(s, off / MCMDQ_BANK_STRIDE,
                               off % MCMDQ_BANK_STRIDE, size);
    }
    if (off >= UMMU_CTRL_PAGE_BASE) {
        return ummu_ucmdq_read(s, off - UMMU_CTRL_PAGE_BASE, size);
    }
    if (off >= UMMU_PMU_BASE && off < UMMU_PMU_BASE + UMMU_PMU_SIZE) {
        return ummu_pmu_read(s, off - UMMU_PMU_BASE, size);
    }
    return ummu_core_read(s, off, size);
}

static void ummu_frame_write(void *opaque, hwaddr off, uint64_t val,
                             unsigned size)
{
    UmmuState *s = opaque;

    if (ummu_in_mcmdq_bank(s, off)) {
        off -= MCMDQ_BANK_BASE;
        ummu_mcmdq_write(s, off / MCMDQ_BANK_STRIDE, off % MCMDQ_BANK_STRIDE,
                         val, size);
    } else if (off >= UMMU_CTRL_PAGE_BASE) {
        ummu_ucmdq_write(s, off - UMMU_CTRL_PAGE_BASE, val, size);
    } else if (off >= UMMU_PMU_BASE && off < UMMU_PMU_BASE + UMMU_PMU_SIZE) {
        ummu_pmu_write(s, off - UMMU_PMU_BASE, val, size);
    } else {
        ummu_core_write(s, off, val, size);
    }
}

/*
 * The memory core must hand every access over as it was made: splitting or
 * widening one would turn a bad access into good ones at other registers.
 */
static const MemoryRegionOps ummu_frame_ops = {
    .read = ummu_frame_read,
    .write = ummu_frame_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

/*
 * Control pages are 4 KiB or 64 KiB apart by UMCMD_PAGE_SEL.  Room is made for
 * user-queues pages of either size, at most 1 GiB of the larger ones.
 */
static uint64_t ummu_frame_size(const UmmuState *s)
{
    uint64_t small = (uint64_t)s->cfg.user_queues * 0x1000;
    uint64_t large = (uint64_t)MIN(s->cfg.user_queues, 16384) * 0x10000;

    return pow2ceil(UMMU_CTRL_PAGE_BASE + MAX(small, large));
}

void ummu_regs_init(UmmuState *s)
{
    ummu_regs_index();
    memory_region_init_io(&s->frame, OBJECT(s), &ummu_frame_ops, s,
                          "ummu-frame", ummu_frame_size(s));
}

/* ---- capabilities and reset --------------------------------------------- */

static unsigned ummu_oas_code(unsigned bits)
{
    static const uint8_t oas[] = { 32, 36, 40, 42, 44, 48 };
    unsigned i;

    for (i = 0; i < ARRAY_SIZE(oas) - 1 && oas[i] != bits; i++) {
        /* the last code is the fall-back; realize refuses other sizes */
    }
    return i;
}

#define SET_CAP(reg, field, val) \
    (s->regs[R_##reg] = FIELD_DP32(s->regs[R_##reg], reg, field, (val)))

static void ummu_build_caps_0_2(UmmuState *s)
{
    const UmmuConfig *c = &s->cfg;

    SET_CAP(UMMU_IIDR, PROD_ID, c->prod_id);
    SET_CAP(UMMU_IIDR, PROD_VARIANT, c->prod_variant);
    SET_CAP(UMMU_IIDR, PROD_REVISION, c->prod_revision);
    SET_CAP(UMMU_AIDR, ARCH_MAJOR_REV, c->arch_major);
    SET_CAP(UMMU_AIDR, ARCH_MINOR_REV, c->arch_minor);

    SET_CAP(UMMU_CAP0, DSTEID_SIZE, c->dsteid_size);
    SET_CAP(UMMU_CAP0, TOKENID_SIZE, c->tokenid_size);
    SET_CAP(UMMU_CAP0, TCT_LEVEL, c->tct_two_level);
    SET_CAP(UMMU_CAP0, TECT_LEVEL, c->tect_two_level);

    SET_CAP(UMMU_CAP1, EVENTQ_SIZE, c->eventq_log2);
    SET_CAP(UMMU_CAP1, EVENTQ_NUMB, 0);
    SET_CAP(UMMU_CAP1, MCMDQ_SIZE, c->mcmdq_size_log2);
    SET_CAP(UMMU_CAP1, MCMDQ_NUMB, c->mcmdq_log2);
    SET_CAP(UMMU_CAP1, EVENT_GEN, c->event_gen);
    SET_CAP(UMMU_CAP1, STALL_MAX, c->stall_max);

    SET_CAP(UMMU_CAP2, VMID_TLBI, c->vmid_tlbi);
    SET_CAP(UMMU_CAP2, TLB_BROADCAST, c->tlb_broadcast);
    SET_CAP(UMMU_CAP2, RANGE_TLBI, c->range_tlbi);
    SET_CAP(UMMU_CAP2, OA_SIZE, ummu_oas_code(c->oas_bits));
    SET_CAP(UMMU_CAP2, GRAN4K_T, c->gran_4k);
    SET_CAP(UMMU_CAP2, GRAN16K_T, c->gran_16k);
    SET_CAP(UMMU_CAP2, GRAN64K_T, c->gran_64k);
    SET_CAP(UMMU_CAP2, S1_TRANS, c->s1);
    SET_CAP(UMMU_CAP2, S2_TRANS, c->s2);
    SET_CAP(UMMU_CAP2, HW_BYPASS, c->hw_bypass);
}

static void ummu_build_caps_3_6(UmmuState *s)
{
    const UmmuConfig *c = &s->cfg;

    SET_CAP(UMMU_CAP3, BBM_LEVEL, c->bbm_level);
    SET_CAP(UMMU_CAP3, COHERENT_ACCESS, c->coherent);
    SET_CAP(UMMU_CAP3, MTM_SUPPORT, c->mtm);
    SET_CAP(UMMU_CAP3, HTTU_SUPPORT, c->httu);
    SET_CAP(UMMU_CAP3, HYP_S1CONTEXT, c->hyp_s1);
    SET_CAP(UMMU_CAP3, USI_SUPPORT, c->usi);
    SET_CAP(UMMU_CAP3, STALL_MODEL, c->stall_model);

    SET_CAP(UMMU_CAP4, UCMDQ_UCPLQ_NUMB, ctz64(pow2ceil(c->user_queues)));
    SET_CAP(UMMU_CAP4, UCMDQ_SIZE, c->ucmdq_log2);
    SET_CAP(UMMU_CAP4, UCPLQ_SIZE, c->ucplq_log2);
    /* User event queues exist as register fields only: not offered. */
    SET_CAP(UMMU_CAP4, UIEQ_SIZE, 0);
    SET_CAP(UMMU_CAP4, UIEQ_NUMB, 0);
    SET_CAP(UMMU_CAP4, UIEQ_SUPPORT, 0);
    SET_CAP(UMMU_CAP4, PPLB_SUPPORT, c->pplb);

    SET_CAP(UMMU_CAP5, MAPT_SUPPORT, c->mapt);
    SET_CAP(UMMU_CAP5, MAPT_MODE, c->mapt_entry_mode | c->mapt_table_mode << 1);
    SET_CAP(UMMU_CAP5, GRAN2M_P, c->mapt_2m);
    SET_CAP(UMMU_CAP5, GRAN4K_P, c->mapt_4k);
    SET_CAP(UMMU_CAP5, TOKENVAL_CHK, c->token_check);
    SET_CAP(UMMU_CAP5, TOKENVAL_CHK_MODE, c->token_check);
    SET_CAP(UMMU_CAP5, RANGE_PLBI, c->range_plbi);
    SET_CAP(UMMU_CAP5, FREE_BIT, c->free_bit);
    if (!c->mtm) {
        s->regs[R_UMMU_CAP6] = 0;
    }
}

void ummu_regs_reset(UmmuState *s)
{
    unsigned i;

    memset(s->regs, 0, sizeof(s->regs));
    for (i = 0; i < ARRAY_SIZE(reg_info); i++) {
        s->regs[reg_info[i].offset / 4] = reg_info[i].reset;
        if (reg_info[i].width == 64) {
            s->regs[reg_info[i].offset / 4 + 1] = reg_info[i].reset >> 32;
        }
    }
    ummu_build_caps_0_2(s);
    ummu_build_caps_3_6(s);
    SET_CAP(UMMU_GBPA, ABORT, s->cfg.gbpa_abort);
}

/*
 * A saved image comes from outside: bits that do not exist are dropped, and the
 * capabilities must be those of this device, else its tables mean other things.
 */
int ummu_regs_post_load(UmmuState *s)
{
    g_autofree uint32_t *loaded = g_memdup2(s->regs, sizeof(s->regs));
    unsigned i, w, word;

    ummu_regs_reset(s);
    for (i = 0; i < ARRAY_SIZE(reg_info); i++) {
        const UmmuRegInfo *r = &reg_info[i];

        for (w = 0; w < r->width / 32; w++) {
            word = r->offset / 4 + w;
            if (r->access != UMMU_REG_RO) {
                s->regs[word] = loaded[word] & (r->mask >> (32 * w));
            } else if (r->offset != A_UMMU_CTRL0_ACK &&
                       s->regs[word] != loaded[word]) {
                error_report("%s: the saved state is of a device whose %s is "
                             "0x%x, here it is 0x%x: use the same properties",
                             ummu_id(s), r->name, loaded[word], s->regs[word]);
                return -EINVAL;
            }
        }
    }
    s->regs[R_UMMU_CTRL0_ACK] = s->regs[R_UMMU_CTRL0];
    return 0;
}

const char *ummu_reg_describe(const UmmuState *s, unsigned i, uint64_t *value)
{
    if (i >= ARRAY_SIZE(reg_info)) {
        return NULL;
    }
    *value = reg_info[i].width == 64 ? ummu_reg64(s, reg_info[i].offset)
                                     : ummu_reg32(s, reg_info[i].offset);
    return reg_info[i].name;
}
