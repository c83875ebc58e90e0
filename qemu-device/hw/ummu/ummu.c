/*
 * UMMU: the device core: properties, realize, reset, clients.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The core knows no bus.  A wrapper (ummu-pci.c) owns it, gives it an address
 * space and two callbacks for interrupts, and maps its register frame.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/module.h"
#include "hw/qdev-properties.h"
#include "ummu-internal.h"
#include "trace.h"

/* ---- validation --------------------------------------------------------- */

typedef struct UmmuLimit {
    const char *name;
    uint32_t value, min, max;
} UmmuLimit;

static bool ummu_check_limits(const UmmuConfig *c, Error **errp)
{
    const UmmuLimit limits[] = {
        { "prod-id", c->prod_id, 0, 0xfff },
        { "prod-variant", c->prod_variant, 0, 0xf },
        { "prod-revision", c->prod_revision, 0, 0xf },
        { "arch-major", c->arch_major, 0, 0xf },
        { "arch-minor", c->arch_minor, 0, 0xf },
        { "user-queues", c->user_queues, 1, UMMU_UQUEUE_MAX },
        { "dsteid-size", c->dsteid_size, 1, 16 },
        { "tokenid-size", c->tokenid_size, 1, UMMU_TID_BITS },
        { "eventq-log2", c->eventq_log2, 0, UMMU_RING_LOG2_MAX },
        { "mcmdq-log2", c->mcmdq_log2, 0, 8 },
        { "mcmdq-size-log2", c->mcmdq_size_log2, 1, 15 },
        { "stall-max", c->stall_max, 0, 4095 },
        { "httu", c->httu, 0, 2 },
        { "stall-model", c->stall_model, 0, 2 },
        { "bbm-level", c->bbm_level, 0, 2 },
        { "ucmdq-size-log2", c->ucmdq_log2, 1, 15 },
        { "ucplq-size-log2", c->ucplq_log2, 1, 15 },
        { "cfg-cache-entries", c->cfg_cache_entries, 0, 1u << 20 },
        { "tlb-entries", c->tlb_entries, 0, 1u << 20 },
        { "plb-entries", c->plb_entries, 0, 1u << 20 },
    };
    unsigned i;

    for (i = 0; i < ARRAY_SIZE(limits); i++) {
        const UmmuLimit *l = &limits[i];

        if (l->value < l->min || l->value > l->max) {
            error_setg(errp, "ummu: %s=%u is not in the range %u..%u", l->name,
                       l->value, l->min, l->max);
            return false;
        }
    }
    return true;
}

/* Rows of "this combination cannot exist". */
static bool ummu_check_combinations(const UmmuConfig *c, Error **errp)
{
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        { !c->s1 && !c->s2,
          "s1=off and s2=off: a UMMU translates with at least one stage" },
        { !c->gran_4k && !c->gran_16k && !c->gran_64k,
          "no translation granule: gran-4k, gran-16k or gran-64k must be on" },
        { c->hyp_s1 && !c->s1, "hyp-s1=on needs s1=on" },
        { c->min_tid > c->max_tid, "min-tid is larger than max-tid" },
        { c->max_tid >> c->tokenid_size,
          "max-tid does not fit into tokenid-size bits" },
        { c->stall_model == 2 && !c->stall_max,
          "stall-model=2 (always stall) needs stall-max > 0" },
        { c->mapt && !c->mapt_entry_mode && !c->mapt_table_mode,
          "mapt=on needs mapt-entry-mode or mapt-table-mode" },
        { c->mapt && c->mapt_table_mode && !c->mapt_4k && !c->mapt_2m,
          "mapt-table-mode=on needs mapt-4k or mapt-2m" },
        { c->pplb && !(c->mapt && c->token_check),
          "pplb=on needs mapt=on and token-check=on" },
        { c->free_bit && !(c->mapt && c->mapt_table_mode),
          "free-bit=on needs mapt=on and mapt-table-mode=on" },
    };
    unsigned i;

    for (i = 0; i < ARRAY_SIZE(rules); i++) {
        if (rules[i].wrong) {
            error_setg(errp, "ummu: %s", rules[i].why);
            return false;
        }
    }
    switch (c->oas_bits) {
    case 32: case 36: case 40: case 42: case 44: case 48:
        return true;
    default:
        error_setg(errp, "ummu: oas=%u is not one of 32, 36, 40, 42, 44, 48",
                   c->oas_bits);
        return false;
    }
}

/* ---- life cycle --------------------------------------------------------- */

void ummu_reset_enter(UmmuState *s)
{
    trace_ummu_reset(ummu_id(s));
    ummu_regs_reset(s);
    ummu_mcmdq_reset(s);
    ummu_ucmdq_reset(s);
    ummu_kv_reset(s);
    ummu_cache_reset(s);
    ummu_pmu_reset(s);
    memset(&s->cnt, 0, sizeof(s->cnt));
    memset(&s->inject, 0, sizeof(s->inject));
    memset(&s->query, 0, sizeof(s->query));
}

void ummu_reset_hold(UmmuState *s)
{
    ummu_stall_fail_all(s);
}

static void ummu_realize(DeviceState *dev, Error **errp)
{
    UmmuState *s = UMMU_CORE(dev);

    if (!ummu_check_limits(&s->cfg, errp) ||
        !ummu_check_combinations(&s->cfg, errp)) {
        return;
    }
    s->uq = g_new0(UmmuUqueue, s->cfg.user_queues);
    s->sync_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, ummu_mcmdq_sync_expired,
                                 s);
    ummu_ram_init(s);
    ummu_kv_init(s);
    ummu_cache_init(s);
    ummu_stall_init(s);
    ummu_regs_init(s);
    ummu_reset_enter(s);
}

/*
 * The bus is gone.  A client may still hold a reference and ask: everything it
 * asks for is refused, and memory is freed with the last reference only.
 */
static void ummu_unrealize(DeviceState *dev)
{
    UmmuState *s = UMMU_CORE(dev);

    ummu_reset_enter(s);
    ummu_reset_hold(s);
    s->cfg.gbpa_abort = true;
    ummu_regs_reset(s);
    ummu_ram_exit(s);
    s->bus_ops = NULL;
    s->dma_as = NULL;
}

static void ummu_finalize(Object *obj)
{
    UmmuState *s = UMMU_CORE(obj);

    if (s->uq) {
        ummu_stall_free(s);
        ummu_cache_free(s);
        ummu_kv_free(s);
        timer_free(s->sync_timer);
        g_free(s->uq);
    }
    g_free(s->name);
}

/* ---- clients ------------------------------------------------------------ */

UmmuClient *ummu_client_register(UmmuState *s, const UmmuClientOps *ops,
                                 void *opaque, uint64_t eid_lo, uint64_t eid_hi,
                                 Error **errp)
{
    UmmuClient *c;

    if (!s || !s->dma_as || !s->bus_dev) {
        error_setg(errp, "the UMMU is not realized: put it before its clients");
        return NULL;
    }
    QLIST_FOREACH(c, &s->clients, next) {
        if (c->eid_lo == eid_lo && c->eid_hi == eid_hi) {
            error_setg(errp, "eid 0x%" PRIx64 " is already used by another "
                       "device behind this UMMU", eid_lo);
            return NULL;
        }
    }
    if (QLIST_EMPTY(&s->clients)) {
        error_setg(&s->unplug_blocker,
                   "%s has devices behind it: remove them first", ummu_id(s));
        qdev_add_unplug_blocker(s->bus_dev, s->unplug_blocker);
    }
    c = g_new0(UmmuClient, 1);
    c->ummu = s;
    c->ops = ops;
    c->opaque = opaque;
    c->eid_lo = eid_lo;
    c->eid_hi = eid_hi;
    QLIST_INSERT_HEAD(&s->clients, c, next);
    /* The core is part of the bus function: hold that. */
    object_ref(OBJECT(s->bus_dev));
    return c;
}

void ummu_client_unregister(UmmuClient *c)
{
    UmmuState *s = c->ummu;

    ummu_stall_forget_client(c);
    QLIST_REMOVE(c, next);
    g_free(c);
    if (QLIST_EMPTY(&s->clients) && s->unplug_blocker) {
        qdev_del_unplug_blocker(s->bus_dev, s->unplug_blocker);
        error_free(s->unplug_blocker);
        s->unplug_blocker = NULL;
    }
    object_unref(OBJECT(s->bus_dev));
}

/* ---- type --------------------------------------------------------------- */

static const Property ummu_properties[] = {
    DEFINE_PROP_UINT32("prod-id", UmmuState, cfg.prod_id, 1),
    DEFINE_PROP_UINT32("prod-variant", UmmuState, cfg.prod_variant, 0),
    DEFINE_PROP_UINT32("prod-revision", UmmuState, cfg.prod_revision, 0),
    DEFINE_PROP_UINT32("arch-major", UmmuState, cfg.arch_major, 0),
    DEFINE_PROP_UINT32("arch-minor", UmmuState, cfg.arch_minor, 0),
    DEFINE_PROP_UINT16("vendor-id", UmmuState, cfg.vendor_id, 0xcc08),
    DEFINE_PROP_UINT32("min-tid", UmmuState, cfg.min_tid, 1),
    DEFINE_PROP_UINT32("max-tid", UmmuState, cfg.max_tid, 0xffffe),
    DEFINE_PROP_UINT32("user-queues", UmmuState, cfg.user_queues, 256),
    DEFINE_PROP_UINT8("dsteid-size", UmmuState, cfg.dsteid_size, 16),
    DEFINE_PROP_UINT8("tokenid-size", UmmuState, cfg.tokenid_size, 20),
    DEFINE_PROP_BOOL("tct-two-level", UmmuState, cfg.tct_two_level, true),
    DEFINE_PROP_BOOL("tect-two-level", UmmuState, cfg.tect_two_level, true),
    DEFINE_PROP_UINT8("eventq-log2", UmmuState, cfg.eventq_log2, 19),
    DEFINE_PROP_UINT8("mcmdq-log2", UmmuState, cfg.mcmdq_log2, 3),
    DEFINE_PROP_UINT8("mcmdq-size-log2", UmmuState, cfg.mcmdq_size_log2, 15),
    DEFINE_PROP_BOOL("event-gen", UmmuState, cfg.event_gen, true),
    DEFINE_PROP_UINT32("stall-max", UmmuState, cfg.stall_max, 128),
    DEFINE_PROP_BOOL("vmid-tlbi", UmmuState, cfg.vmid_tlbi, false),
    DEFINE_PROP_BOOL("tlb-broadcast", UmmuState, cfg.tlb_broadcast, false),
    DEFINE_PROP_BOOL("range-tlbi", UmmuState, cfg.range_tlbi, true),
    DEFINE_PROP_BOOL("hw-bypass", UmmuState, cfg.hw_bypass, true),
    DEFINE_PROP_BOOL("s1", UmmuState, cfg.s1, true),
    DEFINE_PROP_BOOL("s2", UmmuState, cfg.s2, true),
    DEFINE_PROP_BOOL("gran-4k", UmmuState, cfg.gran_4k, true),
    DEFINE_PROP_BOOL("gran-16k", UmmuState, cfg.gran_16k, true),
    DEFINE_PROP_BOOL("gran-64k", UmmuState, cfg.gran_64k, true),
    DEFINE_PROP_UINT8("oas", UmmuState, cfg.oas_bits, 48),
    DEFINE_PROP_BOOL("coherent", UmmuState, cfg.coherent, true),
    DEFINE_PROP_BOOL("mtm", UmmuState, cfg.mtm, true),
    DEFINE_PROP_BOOL("hyp-s1", UmmuState, cfg.hyp_s1, true),
    DEFINE_PROP_BOOL("usi", UmmuState, cfg.usi, true),
    DEFINE_PROP_UINT8("httu", UmmuState, cfg.httu, 2),
    DEFINE_PROP_UINT8("stall-model", UmmuState, cfg.stall_model, 0),
    DEFINE_PROP_UINT8("bbm-level", UmmuState, cfg.bbm_level, 2),
    DEFINE_PROP_UINT8("ucmdq-size-log2", UmmuState, cfg.ucmdq_log2, 15),
    DEFINE_PROP_UINT8("ucplq-size-log2", UmmuState, cfg.ucplq_log2, 15),
    DEFINE_PROP_BOOL("pplb", UmmuState, cfg.pplb, false),
    DEFINE_PROP_BOOL("mapt", UmmuState, cfg.mapt, true),
    DEFINE_PROP_BOOL("mapt-entry-mode", UmmuState, cfg.mapt_entry_mode, true),
    DEFINE_PROP_BOOL("mapt-table-mode", UmmuState, cfg.mapt_table_mode, true),
    DEFINE_PROP_BOOL("mapt-4k", UmmuState, cfg.mapt_4k, true),
    DEFINE_PROP_BOOL("mapt-2m", UmmuState, cfg.mapt_2m, false),
    DEFINE_PROP_BOOL("token-check", UmmuState, cfg.token_check, true),
    DEFINE_PROP_BOOL("range-plbi", UmmuState, cfg.range_plbi, true),
    DEFINE_PROP_BOOL("free-bit", UmmuState, cfg.free_bit, false),
    DEFINE_PROP_BOOL("gbpa-abort", UmmuState, cfg.gbpa_abort, false),
    DEFINE_PROP_UINT32("cfg-cache-entries", UmmuState, cfg.cfg_cache_entries,
                       1024),
    DEFINE_PROP_UINT32("tlb-entries", UmmuState, cfg.tlb_entries, 4096),
    DEFINE_PROP_UINT32("plb-entries", UmmuState, cfg.plb_entries, 4096),
    DEFINE_PROP_BOOL("strict", UmmuState, cfg.strict, false),
    DEFINE_PROP_UINT64("stall-timeout-ns", UmmuState, cfg.stall_timeout_ns, 0),
};

static void ummu_class_init(ObjectClass *oc, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);

    dc->desc = "UnifiedBus memory management unit (core)";
    dc->realize = ummu_realize;
    dc->unrealize = ummu_unrealize;
    dc->user_creatable = false;    /* lives inside a bus wrapper */
    device_class_set_props(dc, ummu_properties);
}

static void ummu_init(Object *obj)
{
    QLIST_INIT(&UMMU_CORE(obj)->clients);
    ummu_debug_init(obj);
}

static const TypeInfo ummu_types[] = {
    {
        .name = TYPE_UMMU_CORE,
        .parent = TYPE_DEVICE,
        .instance_size = sizeof(UmmuState),
        .instance_init = ummu_init,
        .instance_finalize = ummu_finalize,
        .class_init = ummu_class_init,
    },
};

DEFINE_TYPES(ummu_types)
