/*
 * UMMU: DstEID look-up.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The device's own map from the full 128-bit EID to the tag is authoritative.
 * The slots of the key-value table and the CAM in memory are only written: the
 * driver looks at their V bit to find a free one.
 */
#include "qemu/osdep.h"
#include "ummu-internal.h"
#include "trace.h"

#define KV_CRC32_POLY 0x04c11db7u

static guint ummu_kv_key_hash(gconstpointer key)
{
    const UmmuKvEntry *e = key;
    uint64_t x = e->eid_lo ^ (e->eid_hi * 0x9e3779b97f4a7c15ull);

    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
    return x ^ (x >> 32);
}

static gboolean ummu_kv_key_equal(gconstpointer a, gconstpointer b)
{
    const UmmuKvEntry *x = a, *y = b;

    return x->eid_lo == y->eid_lo && x->eid_hi == y->eid_hi;
}

/* CRC-32, most significant bit first, from the EID's top byte downwards. */
uint32_t ummu_kv_hash(uint64_t eid_lo, uint64_t eid_hi, uint32_t seed)
{
    uint32_t crc = seed;
    int i, bit;

    for (i = 15; i >= 0; i--) {
        uint8_t byte = (i >= 8 ? eid_hi >> (8 * (i - 8)) : eid_lo >> (8 * i));

        crc ^= (uint32_t)byte << 24;
        for (bit = 0; bit < 8; bit++) {
            crc = (crc << 1) ^ (crc & 0x80000000u ? KV_CRC32_POLY : 0);
        }
    }
    return crc;
}

/* ---- slots in memory ---------------------------------------------------- */

/*
 * Address of slot @index, 0 if software has not set up a table for it.
 * The geometry registers are bounded by the documented number of slots.
 */
static uint64_t ummu_kv_slot_addr(UmmuState *s, uint32_t index)
{
    uint32_t cfg = ummu_reg32(s, A_UMMU_DSTEID_KV_TABLE_BASE_CFG);
    uint32_t kv_slots =
        FIELD_EX32(cfg, UMMU_DSTEID_KV_TABLE_BASE_CFG, DEPTH) *
        FIELD_EX32(cfg, UMMU_DSTEID_KV_TABLE_BASE_CFG, BANK_NUM);
    uint64_t kv = ummu_reg64(s, A_UMMU_DSTEID_KV_TABLE_BASE) &
                  R_UMMU_DSTEID_KV_TABLE_BASE_ADDR_MASK;
    uint64_t cam = ummu_reg64(s, A_UMMU_DSTEID_CAM_TABLE_BASE) &
                   R_UMMU_DSTEID_CAM_TABLE_BASE_ADDR_MASK;

    if (index < kv_slots) {
        return kv ? kv + (uint64_t)index * KV_ENTRY_SIZE : 0;
    }
    index -= kv_slots;
    cfg = ummu_reg32(s, A_UMMU_DSTEID_CAM_TABLE_BASE_CFG);
    if (cam && index < FIELD_EX32(cfg, UMMU_DSTEID_CAM_TABLE_BASE_CFG, DEPTH)) {
        return cam + (uint64_t)index * KV_ENTRY_SIZE;
    }
    return 0;
}

/* Hardware finds a KV slot only among the banks of its EID's hash. */
static bool ummu_kv_bucket_ok(UmmuState *s, const UmmuKvEntry *e)
{
    uint32_t banks = UMMU_REG_FIELD(s, UMMU_DSTEID_KV_TABLE_BASE_CFG, BANK_NUM);
    uint32_t depth = UMMU_REG_FIELD(s, UMMU_DSTEID_KV_TABLE_BASE_CFG, DEPTH);
    uint32_t cfg0 = ummu_reg32(s, A_UMMU_DSTEID_KV_TABLE_HASH_CFG0);
    unsigned width = FIELD_EX32(cfg0, UMMU_DSTEID_KV_TABLE_HASH_CFG0,
                                HASH_WIDTH);
    uint32_t hash;

    /* Only the CRC is documented bit by bit; others are not checked. */
    if (FIELD_EX32(cfg0, UMMU_DSTEID_KV_TABLE_HASH_CFG0, HASH_SEL) != 1 ||
        width > 2 || !banks || e->kv_index >= banks * depth) {
        return true;
    }
    hash = ummu_kv_hash(e->eid_lo, e->eid_hi,
                        ummu_reg32(s, A_UMMU_DSTEID_KV_TABLE_HASH_CFG1));
    return e->kv_index / banks == (hash & ((1u << (4 << width)) - 1));
}

static bool ummu_kv_slot_write(UmmuState *s, const UmmuKvEntry *e, bool valid)
{
    uint64_t addr = ummu_kv_slot_addr(s, e->kv_index);
    uint32_t w[KV_ENTRY_WORDS] = { 0 };

    if (!addr) {
        return true;
    }
    if (valid) {
        w[0] = FIELD_DP32(0, KV_ENTRY_W0, V, 1);
        w[0] = FIELD_DP32(w[0], KV_ENTRY_W0, TECTE_TAG, e->tag);
        w[0] = cpu_to_le32(w[0]);
        w[4] = cpu_to_le32(e->eid_lo);
        w[5] = cpu_to_le32(e->eid_lo >> 32);
        w[6] = cpu_to_le32(e->eid_hi);
        w[7] = cpu_to_le32(e->eid_hi >> 32);
    }
    return ummu_mem_write(s, addr, w, sizeof(w)) == MEMTX_OK;
}

/* ---- bind, unbind, find ------------------------------------------------- */

static void ummu_kv_insert(UmmuState *s, UmmuKvEntry *e)
{
    s->kv_last = NULL;
    g_hash_table_insert(s->kv, e, e);
    g_hash_table_insert(s->kv_slots, GUINT_TO_POINTER(e->kv_index), e);
}

static UmmuKvResult ummu_kv_check_create(UmmuState *s, const UmmuKvEntry *e)
{
    if (e->kv_index >= UMMU_KV_SLOTS_MAX) {
        return UMMU_KV_BAD_INDEX;
    }
    if (g_hash_table_contains(s->kv, e)) {
        return UMMU_KV_DUPLICATE;
    }
    if (g_hash_table_contains(s->kv_slots, GUINT_TO_POINTER(e->kv_index))) {
        return UMMU_KV_SLOT_USED;
    }
    if (!ummu_kv_bucket_ok(s, e)) {
        ummu_guest_error(s, "KV_INDEX %u is not in the hash bucket of its EID",
                         e->kv_index);
        return s->cfg.strict ? UMMU_KV_BAD_INDEX : UMMU_KV_OK;
    }
    return UMMU_KV_OK;
}

UmmuKvResult ummu_kv_create(UmmuState *s, uint64_t eid_lo, uint64_t eid_hi,
                            uint16_t tag, uint32_t kv_index)
{
    UmmuKvEntry e = { .eid_lo = eid_lo, .eid_hi = eid_hi, .kv_index = kv_index,
                      .tag = tag };
    UmmuKvResult res = ummu_kv_check_create(s, &e);

    if (res == UMMU_KV_OK && !ummu_kv_slot_write(s, &e, true)) {
        res = UMMU_KV_ABORT;
    }
    if (res == UMMU_KV_OK) {
        ummu_kv_insert(s, g_memdup2(&e, sizeof(e)));
    } else {
        ummu_guest_error(s, "CREATE_KVTBL refused, reason %u", res);
    }
    trace_ummu_kv(ummu_id(s), "create", eid_hi, eid_lo, tag, kv_index, res);
    return res;
}

UmmuKvResult ummu_kv_delete(UmmuState *s, uint64_t eid_lo, uint64_t eid_hi,
                            uint16_t tag, uint32_t kv_index)
{
    const UmmuKvEntry key = { .eid_lo = eid_lo, .eid_hi = eid_hi };
    UmmuKvEntry *e = g_hash_table_lookup(s->kv, &key);
    UmmuKvResult res = UMMU_KV_OK;

    if (!e) {
        ummu_guest_error(s, "DELETE_KVTBL of an unknown EID");
        res = UMMU_KV_NOT_FOUND;
    } else {
        /* A binding goes by EID; a wrong tag or slot does not keep it alive. */
        if (e->tag != tag || e->kv_index != kv_index) {
            ummu_guest_error(s, "DELETE_KVTBL names tag %u slot %u, bound are "
                             "tag %u slot %u", tag, kv_index, e->tag,
                             e->kv_index);
        }
        if (!ummu_kv_slot_write(s, e, false)) {
            res = UMMU_KV_ABORT;
        }
        s->kv_last = NULL;
        g_hash_table_remove(s->kv_slots, GUINT_TO_POINTER(e->kv_index));
        g_hash_table_remove(s->kv, e);
    }
    trace_ummu_kv(ummu_id(s), "delete", eid_hi, eid_lo, tag, kv_index, res);
    return res;
}

/* Direct mode: the EID is the tag, bits above the tag width must be 0. */
static bool ummu_kv_direct(UmmuState *s, uint64_t eid_lo, uint64_t eid_hi,
                           uint32_t *tag)
{
    *tag = eid_lo;
    return !eid_hi && !(eid_lo >> s->cfg.dsteid_size);
}

bool ummu_kv_lookup(UmmuState *s, uint64_t eid_lo, uint64_t eid_hi,
                    uint32_t *tag)
{
    const UmmuKvEntry key = { .eid_lo = eid_lo, .eid_hi = eid_hi };
    const UmmuKvEntry *e = s->kv_last;

    if (!UMMU_REG_FIELD(s, UMMU_CTRL1, TECT_MODE_SEL)) {
        return ummu_kv_direct(s, eid_lo, eid_hi, tag);
    }
    if (!e || e->eid_lo != eid_lo || e->eid_hi != eid_hi) {
        e = s->kv_last = g_hash_table_lookup(s->kv, &key);
    }
    *tag = e ? e->tag : 0;
    if (!s->probing) {
        *(e ? &s->cnt.kv_hit : &s->cnt.kv_miss) += 1;
        ummu_pmu_count(s, UMMU_PMU_KV_HIT, *tag, 0, e != NULL, 1);
    }
    return e != NULL;
}

/* ---- life cycle --------------------------------------------------------- */

void ummu_kv_init(UmmuState *s)
{
    s->kv = g_hash_table_new_full(ummu_kv_key_hash, ummu_kv_key_equal, NULL,
                                  g_free);
    s->kv_slots = g_hash_table_new(NULL, NULL);
    s->kv_saved = g_new0(UmmuKvEntry, UMMU_KV_SLOTS_MAX);
}

void ummu_kv_reset(UmmuState *s)
{
    s->kv_last = NULL;
    g_hash_table_remove_all(s->kv_slots);
    g_hash_table_remove_all(s->kv);
}

void ummu_kv_free(UmmuState *s)
{
    g_clear_pointer(&s->kv_slots, g_hash_table_unref);
    g_clear_pointer(&s->kv, g_hash_table_unref);
    g_clear_pointer(&s->kv_saved, g_free);
}

static int ummu_kv_compare(const void *a, const void *b)
{
    const UmmuKvEntry *x = a, *y = b;

    return x->kv_index < y->kv_index ? -1 : x->kv_index > y->kv_index;
}

/* Sorted by slot, so that the same state always gives the same bytes. */
void ummu_kv_save(UmmuState *s)
{
    GHashTableIter it;
    gpointer e;

    s->kv_saved_num = 0;
    g_hash_table_iter_init(&it, s->kv);
    while (g_hash_table_iter_next(&it, NULL, &e)) {
        s->kv_saved[s->kv_saved_num++] = *(UmmuKvEntry *)e;
    }
    qsort(s->kv_saved, s->kv_saved_num, sizeof(*s->kv_saved), ummu_kv_compare);
}

int ummu_kv_load(UmmuState *s)
{
    uint32_t i;

    ummu_kv_reset(s);
    for (i = 0; i < s->kv_saved_num; i++) {
        const UmmuKvEntry *e = &s->kv_saved[i];

        if (e->kv_index >= UMMU_KV_SLOTS_MAX ||
            g_hash_table_contains(s->kv, e) ||
            g_hash_table_contains(s->kv_slots, GUINT_TO_POINTER(e->kv_index))) {
            return -EINVAL;
        }
        ummu_kv_insert(s, g_memdup2(e, sizeof(*e)));
    }
    return 0;
}
