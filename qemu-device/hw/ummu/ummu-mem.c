/*
 * UMMU: access to guest memory and sending of interrupt messages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Only RAM is ever touched for tables, rings and records: an access that met a
 * device register could come back into this model while it is in the middle of
 * a change.  Anything that is not RAM therefore is a bus error.
 */
#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/rcu.h"
#include "exec/memory.h"
#include "hw/pci/pci_device.h"
#include "ummu-internal.h"
#include "trace.h"

static const char *const fetch_kind_names[UMMU_FETCH_KINDS] = {
    [UMMU_FETCH_TECT] = "tect",
    [UMMU_FETCH_TCT] = "tct",
    [UMMU_FETCH_MATT_S1] = "matt-s1",
    [UMMU_FETCH_MATT_S2] = "matt-s2",
    [UMMU_FETCH_MAPT] = "mapt",
    [UMMU_FETCH_CMD] = "command",
    [UMMU_FETCH_UCTX] = "user-context",
    [UMMU_FETCH_UCMD] = "user-command",
    [UMMU_FETCH_KV] = "kv",
};

const char *ummu_fetch_kind_name(UmmuFetchKind kind)
{
    return kind < UMMU_FETCH_KINDS ? fetch_kind_names[kind] : "unknown";
}

AddressSpace *ummu_dma_as(UmmuState *s)
{
    return s->dma_as;
}

/*
 * Host pointer of guest RAM that holds all of [addr, addr + len), or NULL.
 * Call inside an RCU read section and use the pointer only there.
 */
static uint8_t *ummu_ram_ptr(UmmuState *s, uint64_t addr, size_t len,
                             bool is_write, MemoryRegion **mr_out,
                             hwaddr *xlat_out)
{
    hwaddr xlat, plen = len;
    MemoryRegion *mr;

    if (!s->dma_as || addr + len < addr) {
        return NULL;
    }
    mr = address_space_translate(s->dma_as, addr, &xlat, &plen, is_write,
                                 MEMTXATTRS_UNSPECIFIED);
    if (plen < len ||
        !memory_access_is_direct(mr, is_write, MEMTXATTRS_UNSPECIFIED)) {
        return NULL;
    }
    *mr_out = mr;
    *xlat_out = xlat;
    return (uint8_t *)memory_region_get_ram_ptr(mr) + xlat;
}

bool ummu_pa_is_memory(UmmuState *s, uint64_t pa, uint64_t len)
{
    if (!s->dma_as) {
        return false;
    }
    RCU_READ_LOCK_GUARD();
    while (len) {
        hwaddr xlat, plen = len;
        MemoryRegion *mr;

        mr = address_space_translate(s->dma_as, pa, &xlat, &plen, true,
                                     MEMTXATTRS_UNSPECIFIED);
        if (!plen || !memory_access_is_direct(mr, true,
                                              MEMTXATTRS_UNSPECIFIED)) {
            return false;
        }
        len -= plen;
        if (len && pa + plen < pa) {
            return false;
        }
        pa += plen;
    }
    return true;
}

/* The injected bus error hits the n-th read of the chosen kinds, once. */
static bool ummu_inject_table_error(UmmuState *s, UmmuFetchKind kind)
{
    UmmuInject *inj = &s->inject;

    if (likely(!inj->table_error_nth) || s->probing) {
        return false;
    }
    if (inj->table_error_kinds && !(inj->table_error_kinds & (1u << kind))) {
        return false;
    }
    return --inj->table_error_nth == 0;
}

/*
 * Software stores the word with the valid bit last, behind a write barrier:
 * reading it first gives either an invalid or a complete entry.
 */
static void ummu_read_entry(void *buf, const uint8_t *ptr, size_t len)
{
    size_t i;

    if (((uintptr_t)ptr | len) & 7) {
        memcpy(buf, ptr, len);
        return;
    }
    for (i = 0; i < len; i += 8) {
        uint64_t word = qatomic_read__nocheck((const uint64_t *)(ptr + i));

        memcpy((uint8_t *)buf + i, &word, 8);
        if (i == 0) {
            smp_rmb(); /* the valid bit before what it vouches for */
        }
    }
}

MemTxResult ummu_table_read(UmmuState *s, uint64_t addr, void *buf, size_t len,
                            UmmuFetchKind kind)
{
    MemoryRegion *mr;
    hwaddr xlat;
    uint8_t *ptr;
    bool failed = ummu_inject_table_error(s, kind);

    RCU_READ_LOCK_GUARD();
    ptr = failed ? NULL : ummu_ram_ptr(s, addr, len, false, &mr, &xlat);
    if (ptr) {
        ummu_read_entry(buf, ptr, len);
    } else {
        memset(buf, 0, len);
    }
    if (!s->probing) {
        s->cnt.table_reads++;
        s->cnt.table_read_errors += !ptr;
        trace_ummu_table_read(ummu_id(s), ummu_fetch_kind_name(kind), addr, len,
                              ptr ? "ok" : failed ? "injected" : "bus error");
    }
    return ptr ? MEMTX_OK : MEMTX_DECODE_ERROR;
}

MemTxResult ummu_table_cmpxchg64(UmmuState *s, uint64_t addr, uint64_t old,
                                 uint64_t new, bool *swapped)
{
    MemoryRegion *mr;
    hwaddr xlat;
    uint64_t *ptr;

    *swapped = false;
    if (addr & 7) {
        return MEMTX_DECODE_ERROR;
    }
    RCU_READ_LOCK_GUARD();
    ptr = (uint64_t *)ummu_ram_ptr(s, addr, 8, true, &mr, &xlat);
    if (!ptr) {
        return MEMTX_DECODE_ERROR;
    }
    *swapped = qatomic_cmpxchg__nocheck(ptr, old, new) == old;
    if (*swapped) {
        memory_region_set_dirty(mr, xlat, 8);
    }
    return MEMTX_OK;
}

MemTxResult ummu_mem_write(UmmuState *s, uint64_t addr, const void *buf,
                           size_t len)
{
    if (!ummu_pa_is_memory(s, addr, len)) {
        return MEMTX_DECODE_ERROR;
    }
    smp_wmb(); /* what a record announces before the record */
    return address_space_write(s->dma_as, addr, MEMTXATTRS_UNSPECIFIED, buf,
                               len);
}

/*
 * Interrupt doorbells are registers of the interrupt controller (a system
 * device).  Registers of PCI functions, ours among them, are no doorbells:
 * refusing them keeps a message from re-entering a model that is at work.
 */
static bool ummu_message_target_ok(UmmuState *s, uint64_t addr)
{
    hwaddr xlat, plen = 4;
    MemoryRegion *mr;
    Object *owner;

    if (addr & 3) {
        return false;
    }
    RCU_READ_LOCK_GUARD();
    mr = address_space_translate(s->dma_as, addr, &xlat, &plen, true,
                                 MEMTXATTRS_UNSPECIFIED);
    if (plen < 4) {
        return false;
    }
    owner = memory_region_owner(mr);
    return memory_access_is_direct(mr, true, MEMTXATTRS_UNSPECIFIED) ||
           !owner || (!object_dynamic_cast(owner, TYPE_PCI_DEVICE) &&
                      owner != OBJECT(s));
}

MemTxResult ummu_message(UmmuState *s, uint64_t addr, uint32_t data)
{
    if (!s->bus_ops || !s->dma_as || !ummu_message_target_ok(s, addr)) {
        return MEMTX_DECODE_ERROR;
    }
    smp_wmb(); /* what a message announces before the message */
    return s->bus_ops->message(s->bus, addr, data);
}
