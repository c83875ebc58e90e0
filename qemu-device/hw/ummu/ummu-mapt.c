/*
 * UMMU: permission tables (MAPT), single entry and multi-level.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * MAPT memory of a user context is mapped into the user process, which may
 * write anything at any moment.  A node is therefore copied once (32 bytes) and
 * only the copy is used, every index, offset and size is checked against the
 * geometry the kernel set up, and a walk takes at most four steps.
 */
#include "qemu/osdep.h"
#include "ummu-xlate.h"
#include "trace.h"

#define MAPT_TABLE_NODES   512
#define MAPT_TABLE_BYTES   (MAPT_TABLE_NODES * MAPTE_SIZE)
#define MAPT_SIZE_CODE_MAX 9          /* 2 MiB */
#define MAPT_FREED_OFFSET  0xfff      /* BASE = LIMIT marker of a freed range */

/* One block of the table: what the kernel promised about it. */
typedef struct UmmuMaptBlock {
    uint64_t base, size;
} UmmuMaptBlock;

typedef struct UmmuMaptWalk {
    UmmuState *s;
    const UmmuTecte *te;
    const UmmuTcte *tc;
} UmmuMaptWalk;

/* Node as decoded from its snapshot; BASE and LIMIT are offsets in the span. */
typedef struct UmmuMaptNode {
    uint64_t base, limit;
    uint32_t next_offset;
    uint16_t next_index;
    bool v, t, n, f;
    bool marked_free;           /* the driver's marker of a freed own range */
} UmmuMaptNode;

static bool ummu_mapt_fetch_fault(UmmuFault *f, uint64_t addr)
{
    *f = (UmmuFault) {
        .event = UMMU_EVT_P_PTW_EABT, .cls = UMMU_CLS_WALK, .ttrnw = true,
        .ftaddr = addr,
    };
    return false;
}

/* Read MAPT memory: a guest address in nested mode, a physical one else. */
static bool ummu_mapt_read(const UmmuMaptWalk *w, uint64_t addr, void *buf,
                           size_t len, UmmuFault *f)
{
    uint64_t pa;

    if (!ummu_table_ipa(w->s, w->te, addr, UMMU_CLS_WALK, &pa, f)) {
        return false;
    }
    if (ummu_table_read(w->s, pa, buf, len, UMMU_FETCH_MAPT) != MEMTX_OK) {
        return ummu_mapt_fetch_fault(f, pa);
    }
    if (!w->s->probing) {
        w->s->cnt.mapt_steps++;
    }
    return true;
}

/* One snapshot of a node; the words' byte order follows TCTE.ENDI. */
static bool ummu_mapt_read_words(const UmmuMaptWalk *w, uint64_t addr,
                                 uint32_t n[MAPTE_WORDS], UmmuFault *f)
{
    uint64_t raw[MAPTE_SIZE / 8] QEMU_UNINITIALIZED;

    if (!ummu_mapt_read(w, addr, raw, sizeof(raw), f)) {
        return false;
    }
    for (unsigned i = 0; i < MAPTE_WORDS; i++) {
        n[i] = le64_to_cpu(raw[i / 2]) >> (32 * (i % 2));
        n[i] = w->tc->s1.big ? bswap32(n[i]) : n[i];
    }
    return true;
}

static bool ummu_mapt_in_bounds(const UmmuMaptWalk *w, uint64_t base,
                                uint64_t size)
{
    return base + size - 1 <= ((uint64_t)1 << w->tc->mapt_bits) - 1;
}

/* ---- single-entry mode -------------------------------------------------- */

static bool ummu_mapt_single(const UmmuMaptWalk *w, uint64_t addr,
                             UmmuMaptEntry *e, UmmuFault *f)
{
    uint32_t n[UMAPTE_WORDS];

    if (!ummu_mapt_in_bounds(w, w->tc->bba, UMAPTE_SIZE)) {
        return ummu_refuse(f, UMMU_EVT_P_CFG_ERROR);
    }
    if (!ummu_mapt_read_words(w, w->tc->bba, n, f)) {
        return false;
    }
    *e = (UmmuMaptEntry) {
        .first = (uint64_t)FIELD_EX32(n[3], UMAPTE_W3, BASE_HI) << 32 | n[2],
        .last = (uint64_t)FIELD_EX32(n[5], UMAPTE_W5, LIMIT_HI) << 32 | n[4],
        .level = UMMU_MAPT_SINGLE,
        .perm = FIELD_EX32(n[0], UMAPTE_W0, PERMISSION),
        .e_bit = FIELD_EX32(n[0], UMAPTE_W0, E_BIT),
        .token_chk = FIELD_EX32(n[3], UMAPTE_W3, TOKEN_CHK),
        .token = { n[6], n[7] },
    };
    if (!FIELD_EX32(n[0], UMAPTE_W0, V) || addr < e->first || addr > e->last) {
        return ummu_refuse(f, UMMU_EVT_P_PERMISSION);
    }
    return true;
}

/* ---- multi-level mode --------------------------------------------------- */

static void ummu_mapt_node_decode(const uint32_t n[MAPTE_WORDS], unsigned level,
                                  UmmuMaptNode *node)
{
    uint64_t mask = ((uint64_t)1 << ummu_mapt_span(level)) - 1;
    uint64_t base = (uint64_t)FIELD_EX32(n[3], MAPTE_W3, BASE_HI) << 32 | n[2];
    uint64_t limit = (uint64_t)FIELD_EX32(n[5], MAPTE_W5, LIMIT_HI) << 32 |
                     n[4];

    node->v = FIELD_EX32(n[0], MAPTE_W0, V);
    node->t = FIELD_EX32(n[0], MAPTE_W0, T);
    node->n = FIELD_EX32(n[0], MAPTE_W0, N);
    node->f = FIELD_EX32(n[0], MAPTE_W0, F_BIT);
    node->next_offset = FIELD_EX32(n[0], MAPTE_W0, NEXT_LV_OFFSET_LO) |
                        FIELD_EX32(n[1], MAPTE_W1, NEXT_LV_OFFSET_HI) << 20;
    node->next_index = FIELD_EX32(n[1], MAPTE_W1, NEXT_LV_INDEX);
    /* Only the bits inside the level's span are defined. */
    node->base = base & mask;
    node->limit = limit & mask;
    node->marked_free = base == MAPT_FREED_OFFSET &&
                        limit == MAPT_FREED_OFFSET &&
                        !FIELD_EX32(n[0], MAPTE_W0, PERMISSION);
}

/* Own range there and not freed: by F_BIT, or by the driver's marker (6.2). */
static bool ummu_mapt_own_range(const UmmuMaptWalk *w, const UmmuMaptNode *node)
{
    return !(node->f && ummu_cap_free_bit(w->s)) && !node->marked_free;
}

static bool ummu_mapt_base_block(const UmmuMaptWalk *w, UmmuMaptBlock *block,
                                 UmmuFault *f)
{
    block->base = w->tc->bba;
    block->size = (uint64_t)1 << w->tc->bb_log2;
    if (w->tc->bb_log2 > 12 + MAPT_SIZE_CODE_MAX ||
        block->size < MAPT_TABLE_BYTES ||
        !ummu_mapt_in_bounds(w, block->base, block->size)) {
        return ummu_refuse(f, UMMU_EVT_P_CFG_ERROR);
    }
    return true;
}

static bool ummu_mapt_block_desc(const UmmuMaptWalk *w, unsigned index,
                                 UmmuMaptBlock *block, UmmuFault *f)
{
    uint64_t at = w->tc->bta + (uint64_t)index * MAPT_BLOCK_DESC_SIZE, desc;

    if (index >= w->tc->bt_bytes / MAPT_BLOCK_DESC_SIZE ||
        !ummu_mapt_in_bounds(w, w->tc->bta, w->tc->bt_bytes)) {
        return ummu_refuse(f, UMMU_EVT_P_CFG_ERROR);
    }
    if (!ummu_mapt_read(w, at, &desc, sizeof(desc), f)) {
        return false;
    }
    desc = w->tc->s1.big ? be64_to_cpu(desc) : le64_to_cpu(desc);
    block->base = FIELD_EX64(desc, MAPT_BLOCK_DESC_W0, BA) << 5;
    block->size = (uint64_t)4096 << FIELD_EX64(desc, MAPT_BLOCK_DESC_W0, BS);
    if (!FIELD_EX64(desc, MAPT_BLOCK_DESC_W0, V) ||
        FIELD_EX64(desc, MAPT_BLOCK_DESC_W0, BS) > MAPT_SIZE_CODE_MAX ||
        !ummu_mapt_in_bounds(w, block->base, block->size)) {
        return ummu_refuse(f, UMMU_EVT_P_CFG_ERROR);
    }
    return true;
}

/* From a node to the table below it. */
static bool ummu_mapt_descend(const UmmuMaptWalk *w, const UmmuMaptNode *node,
                              UmmuMaptBlock *block, uint64_t *table,
                              UmmuFault *f)
{
    uint64_t offset = (uint64_t)node->next_offset * MAPTE_SIZE;

    if (node->n && !ummu_mapt_block_desc(w, node->next_index, block, f)) {
        return false;
    }
    if (node->next_offset % MAPT_TABLE_NODES ||
        offset + MAPT_TABLE_BYTES > block->size) {
        return ummu_refuse(f, UMMU_EVT_P_CFG_ERROR);
    }
    *table = block->base + offset;
    return true;
}

static void ummu_mapt_fill(const uint32_t n[MAPTE_WORDS],
                           const UmmuMaptNode *node, unsigned level,
                           uint64_t addr, UmmuMaptEntry *e)
{
    uint64_t start = addr & ~(((uint64_t)1 << ummu_mapt_span(level)) - 1);

    e->first = start + node->base;
    e->last = start + node->limit;
    e->level = level;
    e->perm = FIELD_EX32(n[0], MAPTE_W0, PERMISSION);
    e->e_bit = FIELD_EX32(n[0], MAPTE_W0, E_BIT);
    e->token_chk = FIELD_EX32(n[3], MAPTE_W3, TOKEN_CHK);
    e->token[0] = n[6];
    e->token[1] = n[7];
}

static bool ummu_mapt_table(const UmmuMaptWalk *w, uint64_t addr,
                            UmmuMaptEntry *e, UmmuFault *f)
{
    unsigned last_level = w->tc->rtgs == 2 ? 2 : 3;
    UmmuMaptBlock block;
    uint64_t table;

    if (!ummu_mapt_base_block(w, &block, f)) {
        return false;
    }
    table = block.base;
    e->depth = 0;
    for (unsigned level = 0; level <= last_level; level++) {
        unsigned span = ummu_mapt_span(level);
        uint64_t off = extract64(addr, 0, span);
        uint64_t at = table + extract64(addr, span, 9) * MAPTE_SIZE;
        uint32_t n[MAPTE_WORDS] QEMU_UNINITIALIZED;
        UmmuMaptNode node QEMU_UNINITIALIZED;

        if (!ummu_mapt_read_words(w, at, n, f)) {
            return false;
        }
        ummu_mapt_node_decode(n, level, &node);
        trace_ummu_mapt_step(ummu_id(w->s), addr, level, at, node.v, node.t,
                             node.base, node.limit);
        if (!node.v) {
            break;
        }
        if (off >= node.base && off <= node.limit &&
            ummu_mapt_own_range(w, &node)) {
            ummu_mapt_fill(n, &node, level, addr, e);
            return true;
        }
        if (node.t || level == last_level) {
            break;
        }
        if (!ummu_mapt_descend(w, &node, &block, &table, f)) {
            return false;
        }
        e->path[e->depth++] = (UmmuMaptPath) {
            .offset = node.next_offset, .index = node.next_index,
        };
    }
    return ummu_refuse(f, UMMU_EVT_P_PERMISSION);
}

/*
 * The node whose own range holds @addr (UBA[47:0]).  Its rights are not judged
 * here: the same entry serves every later request through the PLB.
 */
bool ummu_mapt_find(UmmuState *s, const UmmuTecte *te, const UmmuTcte *tc,
                    uint64_t addr, UmmuMaptEntry *e, UmmuFault *f)
{
    const UmmuMaptWalk w = { .s = s, .te = te, .tc = tc };

    if (tc->mapt_table ? !s->cfg.mapt_table_mode : !s->cfg.mapt_entry_mode) {
        return ummu_refuse(f, UMMU_EVT_P_CFG_ERROR);
    }
    return tc->mapt_table ? ummu_mapt_table(&w, addr, e, f) :
                            ummu_mapt_single(&w, addr, e, f);
}
