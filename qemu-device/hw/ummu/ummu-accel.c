/*
 * ummu-accel: QOM object, PCI function, properties, reset.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/log.h"
#include "qemu/module.h"
#include "qemu/units.h"
#include "hw/pci/msix.h"
#include "hw/pci/pcie.h"
#include "hw/qdev-properties.h"
#include "ummu-internal.h"
#include "ummu-accel.h"
#include "trace.h"

#define ACCEL_PCI_VENDOR     0x1234
#define ACCEL_PCI_DEVICE     0x5541
#define ACCEL_BAR_FRAME      0
#define ACCEL_BAR_MSIX       1
#define ACCEL_BAR_VRAM       2
#define ACCEL_TURN_BYTES     (2 * MiB)
#define ACCEL_TURN_BYTES_MIN 4096
#define ACCEL_TURN_BYTES_MAX (64 * MiB)
#define ACCEL_VRAM_MIN       4096
#define ACCEL_EID_DIGITS     32

/* ---- services for the other files ---------------------------------------- */

const char *accel_id(AccelState *s)
{
    /* For trace lines on the fast path: no cast that is checked at run time. */
    return s->parent_obj.qdev.id ? s->parent_obj.qdev.id : TYPE_UMMU_ACCEL;
}

void accel_guest_error(AccelState *s, const char *fmt, ...)
{
    g_autofree char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    s->cnt.guest_errors++;
    trace_ummu_accel_guest_error(accel_id(s), text);
    qemu_log_mask(LOG_GUEST_ERROR, "%s: %s\n", accel_id(s), text);
}

void accel_interrupt(AccelState *s, uint32_t vector)
{
    s->irq_pending |= 1ull << vector;
}

void accel_send_interrupts(AccelState *s)
{
    while (s->irq_pending) {
        unsigned vector = ctz64(s->irq_pending);

        s->irq_pending &= s->irq_pending - 1;
        s->cnt.interrupts++;
        if (msix_enabled(PCI_DEVICE(s))) {
            msix_notify(PCI_DEVICE(s), vector);
        }
    }
}

/* The cost model's only look into the UMMU: how many tables it has read. */
uint64_t accel_walk_steps(AccelState *s)
{
    const UmmuCounters *cnt = &s->ummu->cnt;

    return cnt->s1_steps + cnt->s2_steps + cnt->mapt_steps;
}

/* ---- realize ------------------------------------------------------------- */

static bool accel_parse_eid(AccelState *s, Error **errp)
{
    const char *digits = s->cfg.eid;
    size_t len;

    if (!digits) {
        error_setg(errp, "ummu-accel: property 'eid' is required (hexadecimal, "
                   "up to 128 bits)");
        return false;
    }
    if (g_str_has_prefix(digits, "0x")) {
        digits += 2;
    }
    len = strlen(digits);
    if (!len || len > ACCEL_EID_DIGITS ||
        strspn(digits, "0123456789abcdefABCDEF") != len) {
        error_setg(errp, "ummu-accel: eid '%s' is not a hexadecimal number of "
                   "up to 128 bits", s->cfg.eid);
        return false;
    }
    s->eid_lo = 0;
    s->eid_hi = 0;
    for (; *digits; digits++) {
        s->eid_hi = s->eid_hi << 4 | s->eid_lo >> 60;
        s->eid_lo = s->eid_lo << 4 | g_ascii_xdigit_value(*digits);
    }
    return true;
}

static bool accel_check_config(AccelState *s, Error **errp)
{
    if (s->cfg.queues < 1 || s->cfg.queues > ACCEL_QUEUES_MAX) {
        error_setg(errp, "ummu-accel: queues=%u is not in 1..%u", s->cfg.queues,
                   ACCEL_QUEUES_MAX);
        return false;
    }
    if (s->cfg.vram_size && (!is_power_of_2(s->cfg.vram_size) ||
                             s->cfg.vram_size < ACCEL_VRAM_MIN)) {
        error_setg(errp, "ummu-accel: vram-size must be 0 or a power of two of "
                   "at least %u", ACCEL_VRAM_MIN);
        return false;
    }
    if (s->cfg.turn_bytes < ACCEL_TURN_BYTES_MIN ||
        s->cfg.turn_bytes > ACCEL_TURN_BYTES_MAX) {
        error_setg(errp, "ummu-accel: turn-bytes=%u is not in %u..%u",
                   s->cfg.turn_bytes, ACCEL_TURN_BYTES_MIN,
                   (unsigned)ACCEL_TURN_BYTES_MAX);
        return false;
    }
    s->ummu = s->ummu_obj ? ummu_from_object(s->ummu_obj) : NULL;
    if (!s->ummu) {
        error_setg(errp, "ummu-accel: property 'ummu' must name a ummu device "
                   "(-device ummu,id=NAME before this one)");
        return false;
    }
    return accel_parse_eid(s, errp);
}

static const UmmuClientOps accel_client_ops = {
    .stall_done = accel_stall_done,
};

static void accel_add_frame(AccelState *s)
{
    PCIDevice *dev = PCI_DEVICE(s);

    memory_region_init_io(&s->frame, OBJECT(s), &accel_frame_ops, s,
                          "ummu-accel.frame", accel_frame_size(s));
    /* 32 bits wide: a 64-bit BAR 0 would take the place of BAR 1. */
    pci_register_bar(dev, ACCEL_BAR_FRAME, PCI_BASE_ADDRESS_SPACE_MEMORY,
                     &s->frame);
}

static bool accel_add_vram(AccelState *s, Error **errp)
{
    if (!s->cfg.vram_size) {
        return true;
    }
    if (!memory_region_init_ram(&s->vram, OBJECT(s), "ummu-accel.vram",
                                s->cfg.vram_size, errp)) {
        return false;
    }
    pci_register_bar(PCI_DEVICE(s), ACCEL_BAR_VRAM,
                     PCI_BASE_ADDRESS_SPACE_MEMORY |
                     PCI_BASE_ADDRESS_MEM_TYPE_64 |
                     PCI_BASE_ADDRESS_MEM_PREFETCH, &s->vram);
    return true;
}

static bool accel_add_interrupts(AccelState *s, Error **errp)
{
    PCIDevice *dev = PCI_DEVICE(s);

    if (msix_init_exclusive_bar(dev, s->cfg.queues, ACCEL_BAR_MSIX, errp)) {
        return false;
    }
    for (uint32_t i = 0; i < s->cfg.queues; i++) {
        msix_vector_use(dev, i);
    }
    return true;
}

static void accel_realize(PCIDevice *dev, Error **errp)
{
    AccelState *s = UMMU_ACCEL(dev);

    if (!accel_check_config(s, errp)) {
        return;
    }
    for (uint32_t i = 0; i < ACCEL_QUEUES_MAX; i++) {
        s->queue[i].s = s;
        s->queue[i].number = i;
    }
    accel_add_frame(s);
    if (!accel_add_vram(s, errp) || !accel_add_interrupts(s, errp)) {
        return;
    }
    if (pci_bus_is_express(pci_get_bus(dev))) {
        if (pcie_endpoint_cap_init(dev, 0) < 0) {
            error_setg(errp, "ummu-accel: no room for the PCI Express "
                       "capability");
            goto fail;
        }
        pcie_cap_flr_init(dev);
    }
    /* Last: from here on the UMMU knows us. */
    s->client = ummu_client_register(s->ummu, &accel_client_ops, s, s->eid_lo,
                                     s->eid_hi, errp);
    if (!s->client) {
        goto fail;
    }
    s->timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, accel_engine_timer, s);
    accel_regs_reset(s);
    return;

fail:
    msix_uninit_exclusive_bar(dev);
    if (pci_is_express(dev) && dev->exp.exp_cap) {
        pcie_cap_exit(dev);
    }
}

static void accel_exit(PCIDevice *dev)
{
    AccelState *s = UMMU_ACCEL(dev);

    for (uint32_t i = 0; i < s->cfg.queues; i++) {
        accel_queue_stop(&s->queue[i]);
    }
    timer_free(s->timer);
    s->timer = NULL;
    ummu_client_unregister(s->client);
    s->client = NULL;
    msix_uninit_exclusive_bar(dev);
    if (pci_is_express(dev)) {
        pcie_cap_exit(dev);
    }
}

static void accel_config_write(PCIDevice *dev, uint32_t addr, uint32_t val,
                               int len)
{
    pci_default_write_config(dev, addr, val, len);
    if (pci_is_express(dev)) {
        pcie_cap_flr_write_config(dev, addr, val, len);
    }
}

static void accel_reset_hold(Object *obj, ResetType type)
{
    AccelState *s = UMMU_ACCEL(obj);

    accel_regs_reset(s);
    s->next_queue = 0;
    s->irq_pending = 0;
    s->cnt = (AccelCounters) { 0 };
    timer_del(s->timer);
    msix_reset(PCI_DEVICE(s));
}

/* ---- QOM ----------------------------------------------------------------- */

static const Property accel_properties[] = {
    DEFINE_PROP_LINK("ummu", AccelState, ummu_obj, TYPE_UMMU, Object *),
    DEFINE_PROP_STRING("eid", AccelState, cfg.eid),
    DEFINE_PROP_SIZE("vram-size", AccelState, cfg.vram_size, 0),
    DEFINE_PROP_UINT32("queues", AccelState, cfg.queues, 16),
    DEFINE_PROP_UINT32("turn-bytes", AccelState, cfg.turn_bytes,
                       ACCEL_TURN_BYTES),
    DEFINE_PROP_UINT32("retry-limit", AccelState, cfg.retry_limit, 1000),
    DEFINE_PROP_UINT32("link-latency-ns", AccelState, cfg.link_latency_ns, 0),
    DEFINE_PROP_UINT32("bytes-per-us", AccelState, cfg.bytes_per_us, 0),
    DEFINE_PROP_UINT32("walk-step-ns", AccelState, cfg.walk_step_ns, 0),
};

static void accel_instance_init(Object *obj)
{
    AccelState *s = UMMU_ACCEL(obj);

#define ACCEL_ADD_COUNTER(member, name) \
    object_property_add_uint64_ptr(obj, name, &s->cnt.member, \
                                   OBJ_PROP_FLAG_READ);
    ACCEL_COUNTER_LIST(ACCEL_ADD_COUNTER)
#undef ACCEL_ADD_COUNTER
    PCI_DEVICE(obj)->cap_present |= QEMU_PCI_CAP_EXPRESS;
}

static void accel_class_init(ObjectClass *oc, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);
    PCIDeviceClass *k = PCI_DEVICE_CLASS(oc);
    ResettableClass *rc = RESETTABLE_CLASS(oc);

    accel_ops_init();
    k->realize = accel_realize;
    k->exit = accel_exit;
    k->config_write = accel_config_write;
    k->vendor_id = ACCEL_PCI_VENDOR;
    k->device_id = ACCEL_PCI_DEVICE;
    k->revision = 1;
    k->class_id = PCI_CLASS_PROCESSOR_CO;
    rc->phases.hold = accel_reset_hold;
    dc->desc = "Accelerator behind a UMMU";
    dc->vmsd = &accel_vmstate;
    device_class_set_props(dc, accel_properties);
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
}

static const TypeInfo accel_types[] = {
    {
        .name = TYPE_UMMU_ACCEL,
        .parent = TYPE_PCI_DEVICE,
        .instance_size = sizeof(AccelState),
        .instance_init = accel_instance_init,
        .class_init = accel_class_init,
        .interfaces = (InterfaceInfo[]) {
            { INTERFACE_PCIE_DEVICE },
            { INTERFACE_CONVENTIONAL_PCI_DEVICE },
            { }
        },
    },
};

DEFINE_TYPES(accel_types)
