/*
 * UMMU as a PCI function.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A real UMMU is a platform device that firmware describes; as a PCI function
 * it works on every machine type.  What the firmware node would say stands in a
 * vendor-specific capability.  Interrupts: MSI-X vectors, unless software
 * programmed a USI address; then the device writes that message.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/module.h"
#include "qemu/units.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci_device.h"
#include "hw/pci/pcie.h"
#include "hw/qdev-properties.h"
#include "ummu-internal.h"
#include "trace.h"

#define UMMU_PCI_VENDOR        0x1234
#define UMMU_PCI_DEVICE        0x554d
#define UMMU_PCI_FRAME_BAR     0
#define UMMU_PCI_MSIX_BAR      1
/*
 * Many user queues need a frame that 32-bit windows have no room for.  A 64-bit
 * BAR takes two numbers, so MSI-X moves up by one then.
 */
#define UMMU_PCI_FRAME_32BIT   (256 * MiB)
#define UMMU_PCI_MSIX_BAR_WIDE 2

/* Vendor-specific capability: length and offsets. */
#define UMMU_PCI_CAP_LEN       0x18
#define UMMU_PCI_CAP_TYPE      0x55
#define UMMU_PCI_CAP_O_LEN     2
#define UMMU_PCI_CAP_O_TYPE    3
#define UMMU_PCI_CAP_O_MIN_TID 4
#define UMMU_PCI_CAP_O_MAX_TID 8
#define UMMU_PCI_CAP_O_VENDOR  12
#define UMMU_PCI_CAP_O_QUEUES  16

OBJECT_DECLARE_SIMPLE_TYPE(UmmuPciState, UMMU)

struct UmmuPciState {
    PCIDevice parent_obj;

    UmmuState core;
};

UmmuState *ummu_from_object(Object *obj)
{
    UmmuPciState *p = (UmmuPciState *)object_dynamic_cast(obj, TYPE_UMMU);

    return p ? &p->core : NULL;
}

/* ---- interrupts --------------------------------------------------------- */

static void ummu_pci_notify(void *bus, UmmuVector vec)
{
    if (msix_enabled(bus)) {
        msix_notify(bus, vec);
    }
}

/* The requester id makes it the interrupt of this function (ITS device id). */
static MemTxResult ummu_pci_message(void *bus, uint64_t addr, uint32_t data)
{
    PCIDevice *dev = bus;
    MemTxAttrs attrs = { .requester_id = pci_requester_id(dev) };
    MemTxResult res;

    address_space_stl_le(&dev->bus_master_as, addr, data, attrs, &res);
    return res;
}

static const UmmuBusOps ummu_pci_ops = {
    .notify = ummu_pci_notify,
    .message = ummu_pci_message,
};

/* ---- set-up ------------------------------------------------------------- */

static bool ummu_pci_add_node_cap(UmmuPciState *p, Error **errp)
{
    PCIDevice *dev = PCI_DEVICE(p);
    int pos = pci_add_capability(dev, PCI_CAP_ID_VNDR, 0, UMMU_PCI_CAP_LEN,
                                 errp);
    uint8_t *cap;

    if (pos < 0) {
        return false;
    }
    cap = dev->config + pos;
    pci_set_byte(cap + UMMU_PCI_CAP_O_LEN, UMMU_PCI_CAP_LEN);
    pci_set_byte(cap + UMMU_PCI_CAP_O_TYPE, UMMU_PCI_CAP_TYPE);
    pci_set_long(cap + UMMU_PCI_CAP_O_MIN_TID, p->core.cfg.min_tid);
    pci_set_long(cap + UMMU_PCI_CAP_O_MAX_TID, p->core.cfg.max_tid);
    pci_set_word(cap + UMMU_PCI_CAP_O_VENDOR, p->core.cfg.vendor_id);
    pci_set_long(cap + UMMU_PCI_CAP_O_QUEUES, p->core.cfg.user_queues);
    return true;
}

static bool ummu_pci_add_bars(UmmuPciState *p, Error **errp)
{
    PCIDevice *dev = PCI_DEVICE(p);
    bool wide = memory_region_size(&p->core.frame) > UMMU_PCI_FRAME_32BIT;
    unsigned i;

    pci_register_bar(dev, UMMU_PCI_FRAME_BAR, PCI_BASE_ADDRESS_SPACE_MEMORY |
                     (wide ? PCI_BASE_ADDRESS_MEM_TYPE_64 : 0), &p->core.frame);
    if (msix_init_exclusive_bar(dev, UMMU_VEC_COUNT,
                                wide ? UMMU_PCI_MSIX_BAR_WIDE
                                     : UMMU_PCI_MSIX_BAR, errp)) {
        return false;
    }
    for (i = 0; i < UMMU_VEC_COUNT; i++) {
        msix_vector_use(dev, i);
    }
    return true;
}

static void ummu_pci_realize(PCIDevice *dev, Error **errp)
{
    UmmuPciState *p = UMMU(dev);
    UmmuState *s = &p->core;

    s->name = g_strdup(DEVICE(dev)->id ? DEVICE(dev)->id : "ummu");
    s->bus = dev;
    s->bus_dev = DEVICE(dev);
    s->bus_ops = &ummu_pci_ops;
    s->dma_as = pci_get_address_space(dev);
    if (!qdev_realize(DEVICE(s), NULL, errp)) {
        return;
    }
    if (!ummu_pci_add_bars(p, errp)) {
        return;
    }
    if (!ummu_pci_add_node_cap(p, errp)) {
        msix_uninit_exclusive_bar(dev);
        return;
    }
    if (pci_bus_is_express(pci_get_bus(dev))) {
        if (pcie_endpoint_cap_init(dev, 0) < 0) {
            error_setg(errp, "ummu: no room for the PCI Express capability");
            msix_uninit_exclusive_bar(dev);
            return;
        }
        pcie_cap_flr_init(dev);
    }
}

static void ummu_pci_exit(PCIDevice *dev)
{
    UmmuPciState *p = UMMU(dev);

    qdev_unrealize(DEVICE(&p->core));
    msix_uninit_exclusive_bar(dev);
    if (pci_is_express(dev)) {
        pcie_cap_exit(dev);
    }
}

static void ummu_pci_config_write(PCIDevice *dev, uint32_t addr, uint32_t val,
                                  int len)
{
    pci_default_write_config(dev, addr, val, len);
    if (pci_is_express(dev)) {
        pcie_cap_flr_write_config(dev, addr, val, len);
    }
}

static void ummu_pci_reset_enter(Object *obj, ResetType type)
{
    ummu_reset_enter(&UMMU(obj)->core);
}

static void ummu_pci_reset_hold(Object *obj, ResetType type)
{
    ummu_reset_hold(&UMMU(obj)->core);
}

/* Loaded before its clients, which claim their stalled requests from it. */
static const VMStateDescription vmstate_ummu_pci = {
    .name = "ummu",
    .version_id = 1,
    .minimum_version_id = 1,
    .priority = MIG_PRI_IOMMU,
    .fields = (const VMStateField[]) {
        VMSTATE_PCI_DEVICE(parent_obj, UmmuPciState),
        VMSTATE_MSIX(parent_obj, UmmuPciState),
        VMSTATE_STRUCT(core, UmmuPciState, 1, vmstate_ummu, UmmuState),
        VMSTATE_END_OF_LIST()
    },
};

static void ummu_pci_init(Object *obj)
{
    UmmuPciState *p = UMMU(obj);

    object_initialize_child(obj, "core", &p->core, TYPE_UMMU_CORE);
    qdev_alias_all_properties(DEVICE(&p->core), obj);
    ummu_debug_alias(obj, OBJECT(&p->core));
    PCI_DEVICE(obj)->cap_present |= QEMU_PCI_CAP_EXPRESS;
}

static void ummu_pci_class_init(ObjectClass *oc, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);
    PCIDeviceClass *k = PCI_DEVICE_CLASS(oc);
    ResettableClass *rc = RESETTABLE_CLASS(oc);

    k->realize = ummu_pci_realize;
    k->exit = ummu_pci_exit;
    k->config_write = ummu_pci_config_write;
    k->vendor_id = UMMU_PCI_VENDOR;
    k->device_id = UMMU_PCI_DEVICE;
    k->revision = 1;
    k->class_id = PCI_CLASS_SYSTEM_OTHER;
    rc->phases.enter = ummu_pci_reset_enter;
    rc->phases.hold = ummu_pci_reset_hold;
    dc->desc = "UnifiedBus memory management unit";
    dc->vmsd = &vmstate_ummu_pci;
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
}

static const TypeInfo ummu_pci_types[] = {
    {
        .name = TYPE_UMMU,
        .parent = TYPE_PCI_DEVICE,
        .instance_size = sizeof(UmmuPciState),
        .instance_init = ummu_pci_init,
        .class_init = ummu_pci_class_init,
        .interfaces = (InterfaceInfo[]) {
            { INTERFACE_PCIE_DEVICE },
            { INTERFACE_CONVENTIONAL_PCI_DEVICE },
            { }
        },
    },
};

DEFINE_TYPES(ummu_pci_types)
