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

AddressSpace *ummu_dma_as(UmmuState *s)
{
    return s->dma_as;
}

/* ---- RAM windows --------------------------------------------------------- */

static void ummu_ram_forget(UmmuState *s)
{
    for (unsigned i = 0; i < UMMU_RAM_WINDOWS; i++) {
        s->ram_window[i].first = 1;
        s->ram_window[i].last = 0;
    }
}

static void ummu_ram_commit(MemoryListener *listener)
{
    ummu_ram_forget(container_of(listener, UmmuState, ram_listener));
}

void ummu_ram_init(UmmuState *s)
{
    ummu_ram_forget(s);
    s->ram_listener = (MemoryListener) {
        .name = "ummu", .commit = ummu_ram_commit,
    };
    memory_listener_register(&s->ram_listener, s->dma_as);
}

void ummu_ram_exit(UmmuState *s)
{
    memory_listener_unregister(&s->ram_listener);
    ummu_ram_forget(s);
}

static UmmuRamWindow *ummu_ram_known(UmmuState *s, uint64_t addr)
{
    for (unsigned i = 0; i < UMMU_RAM_WINDOWS; i++) {
        UmmuRamWindow *w = &s->ram_window[i];

        if (addr >= w->first && addr <= w->last) {
            return w;
        }
    }
    return NULL;
}

typedef struct UmmuRamSearch {
    uint64_t addr;
    UmmuRamWindow *w;
    bool found;
} UmmuRamSearch;

static bool ummu_ram_range(Int128 start, Int128 len, const MemoryRegion *cmr,
                           hwaddr offset, void *opaque)
{
    MemoryRegion *mr = (MemoryRegion *)cmr;
    uint64_t first = int128_get64(start);
    uint64_t last = first + (int128_getlo(len) - 1);
    UmmuRamSearch *search = opaque;

    if (search->addr < first || search->addr > last) {
        return false;
    }
    if (memory_region_is_ram(mr) &&
        memory_access_is_direct(mr, true, MEMTXATTRS_UNSPECIFIED)) {
        search->found = true;
        search->w->first = first;
        search->w->last = last;
        search->w->ram = (MemoryRegionCache) {
            .ptr = (uint8_t *)memory_region_get_ram_ptr(mr) + offset,
            .xlat = offset, .mrs.mr = mr, .is_write = true,
        };
    }
    return true;
}

/*
 * The window around @addr, NULL if there is no plain RAM.  Runs with the BQL,
 * under which alone the topology changes, so that the region found stays.
 */
static UmmuRamWindow *ummu_ram_find(UmmuState *s, uint64_t addr)
{
    UmmuRamWindow *w = ummu_ram_known(s, addr);
    UmmuRamSearch search = { .addr = addr };

    if (likely(w) || !s->dma_as) {
        return w;
    }
    search.w = &s->ram_window[s->ram_victim];
    WITH_RCU_READ_LOCK_GUARD() {
        flatview_for_each_range(address_space_to_flatview(s->dma_as),
                                ummu_ram_range, &search);
    }
    if (!search.found) {
        return NULL;
    }
    s->ram_victim = (s->ram_victim + 1) % UMMU_RAM_WINDOWS;
    return search.w;
}

void *ummu_ram_map(UmmuState *s, uint64_t pa, uint64_t *len, bool write)
{
    UmmuRamWindow *w = ummu_ram_find(s, pa);
    hwaddr xlat, plen = *len;
    MemoryRegion *mr;

    if (likely(w)) {
        *len = MIN(*len, w->last - pa + 1);
        if (!write) {
            fuzz_dma_read_cb(pa, *len, w->ram.mrs.mr);
        }
        return (uint8_t *)w->ram.ptr + (pa - w->first);
    }
    if (write || !s->dma_as || !*len) {
        return NULL;
    }
    RCU_READ_LOCK_GUARD();
    mr = address_space_translate(s->dma_as, pa, &xlat, &plen, false,
                                 MEMTXATTRS_UNSPECIFIED);
    if (!plen || !memory_access_is_direct(mr, false, MEMTXATTRS_UNSPECIFIED)) {
        return NULL;                /* else ROM: may be read */
    }
    *len = plen;
    return (uint8_t *)memory_region_get_ram_ptr(mr) + xlat;
}

void ummu_ram_written(UmmuState *s, uint64_t pa, uint64_t len)
{
    UmmuRamWindow *w = len ? ummu_ram_find(s, pa) : NULL;

    if (w) {
        address_space_cache_invalidate(&w->ram, pa - w->first, len);
    }
}

/* Host address if all of [addr, addr + len) is there, else NULL. */
static uint8_t *ummu_ram_ptr(UmmuState *s, uint64_t addr, size_t len,
                             bool write)
{
    uint64_t room = len;
    uint8_t *ptr = ummu_ram_map(s, addr, &room, write);

    return room == len ? ptr : NULL;
}

/* ---- accesses ----------------------------------------------------------- */

bool ummu_pa_is_memory(UmmuState *s, uint64_t pa, uint64_t len)
{
    while (len) {
        uint64_t part = len;

        if (!ummu_ram_map(s, pa, &part, true) || pa + (len - 1) < pa) {
            return false;
        }
        len -= part;
        pa += part;
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
    bool failed = ummu_inject_table_error(s, kind);
    uint8_t *ptr = failed ? NULL : ummu_ram_ptr(s, addr, len, false);

    if (likely(ptr)) {
        ummu_read_entry(buf, ptr, len);
    } else {
        memset(buf, 0, len);
    }
    if (!s->probing) {
        s->cnt.table_reads++;
        s->cnt.table_read_errors += !ptr;
        trace_ummu_table_read(ummu_id(s), fetch_kind_names[kind], addr, len,
                              ptr ? "ok" : failed ? "injected" : "bus error");
    }
    return ptr ? MEMTX_OK : MEMTX_DECODE_ERROR;
}

MemTxResult ummu_table_cmpxchg64(UmmuState *s, uint64_t addr, uint64_t old,
                                 uint64_t new, bool *swapped)
{
    uint64_t *ptr;

    *swapped = false;
    if (addr & 7) {
        return MEMTX_DECODE_ERROR;
    }
    ptr = (uint64_t *)ummu_ram_ptr(s, addr, 8, true);
    if (!ptr) {
        return MEMTX_DECODE_ERROR;
    }
    *swapped = qatomic_cmpxchg__nocheck(ptr, old, new) == old;
    if (*swapped) {
        ummu_ram_written(s, addr, 8);
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
