/*
 * UMMU: decoded tables and the interfaces between the translation files.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Raw entries are decoded once into these small structs; everything after the
 * fetch (checks, walks, caches) works on them only.  A function that can refuse
 * returns false and says why in a UmmuFault; the resolver records it.
 */
#ifndef HW_UMMU_XLATE_H
#define HW_UMMU_XLATE_H

#include "ummu-internal.h"

/* CLS of an event: what was being accessed. */
enum {
    UMMU_CLS_TCT = 0,
    UMMU_CLS_WALK = 1,
    UMMU_CLS_INPUT = 2,
};

typedef struct UmmuFault {
    uint8_t event;              /* UMMU_EVT_*; 0 = refused without an event */
    uint8_t cls;
    bool s2;
    bool ttrnw;                 /* the failing table access was a read */
    uint64_t ipa, ftaddr;
} UmmuFault;

/* Always false, so that a refusal is one return statement. */
static inline bool ummu_refuse(UmmuFault *f, uint8_t event)
{
    *f = (UmmuFault) { .event = event, .cls = UMMU_CLS_INPUT };
    return false;
}

/* One stage of translation, stage 1 and stage 2 alike. */
typedef struct UmmuStageCfg {
    uint64_t base;              /* start table, aligned to its size */
    uint8_t gran;               /* log2 of the granule: 12, 14 or 16 */
    uint8_t insize;             /* input address bits */
    uint8_t level;              /* start level */
    uint8_t outsize;            /* output address bits */
    bool big;                   /* descriptors are big endian */
    bool haf, hdf, affd, had;
} UmmuStageCfg;

typedef struct UmmuTecte {
    uint64_t tct_ptr, mtmc_ptr;
    UmmuStageCfg s2;
    uint16_t vmid;
    uint8_t mode;               /* UMMU_ST_MODE_* */
    uint8_t tct_num, tct_fmt;
    uint8_t regime;             /* UmmuRegime */
    uint8_t priv_sel, inst_sel;
    bool secure;                /* SECURE_SEL forces a state not there */
    bool has_s1, has_s2;
    bool mapt_en, stall_ok, mtm_en;
    bool s2_fbs, s2_fbr, s2_ptw;
} UmmuTecte;

typedef struct UmmuTcte {
    UmmuStageCfg s1;
    uint64_t bba, bta;          /* MAPT base block and block table */
    uint32_t bt_bytes;           /* size of the block table */
    uint16_t asid, mtm_id;
    uint8_t bb_log2;            /* log2 of the base block's bytes */
    uint8_t rtgs;
    uint8_t mapt_bits;          /* bound of MAPT addresses: GPAS */
    bool wxn, uwxn, pan;
    bool fbs, fbr, fba, ash;
    bool mapt_en, mapt_table, e_bit;
    bool bypass, mattwd;
} UmmuTcte;

/* What the access needs from the page tables. */
typedef struct UmmuNeed {
    bool read, write, exec, priv;
} UmmuNeed;

enum {
    UMMU_ATTR_USER = 1 << 0,    /* AP[1] after APTable */
    UMMU_ATTR_RO = 1 << 1,      /* never writable */
    UMMU_ATTR_CLEAN = 1 << 2,   /* writable after a dirty update in memory */
    UMMU_ATTR_UXN = 1 << 3,
    UMMU_ATTR_PXN = 1 << 4,
    UMMU_ATTR_S2_NR = 1 << 5,   /* stage 2: no read, no write, no execute */
    UMMU_ATTR_S2_NW = 1 << 6,
    UMMU_ATTR_S2_UXN = 1 << 7,
    UMMU_ATTR_S2_PXN = 1 << 8,
    UMMU_ATTR_S2_DEVICE = 1 << 9,
};

typedef struct UmmuLeaf {
    uint64_t pa;                /* of the address that was walked */
    uint64_t desc_pa, hier;     /* stage 1 page: its descriptor, bits above */
    uint16_t attr;              /* UMMU_ATTR_* of all stages */
    uint8_t shift;              /* log2 of the extent the leaf is valid for */
    uint8_t s1_shift;           /* extent of the stage 1 leaf alone */
} UmmuLeaf;

static inline bool ummu_perm_exec(uint16_t attr, const UmmuTcte *tc, bool priv)
{
    bool user = attr & UMMU_ATTR_USER;
    bool writable = !(attr & UMMU_ATTR_RO) && (priv || user);

    if ((attr & (priv ? UMMU_ATTR_PXN : UMMU_ATTR_UXN)) || (!priv && !user)) {
        return false;
    }
    if (tc->wxn && writable) {
        return false;
    }
    return !(tc->uwxn && priv && user && writable);
}

/*
 * Page permission of both stages; @tc is NULL without a stage 1.  Evaluated on
 * every use, also of cached entries: the switches belong to the context.
 */
static inline bool ummu_perm_s1(uint16_t attr, const UmmuTcte *tc,
                                const UmmuNeed *need)
{
    bool user = attr & UMMU_ATTR_USER;

    if (need->read | need->write) {
        if (need->priv ? user && tc->pan : !user) {
            return false;
        }
    }
    if (need->write && (attr & UMMU_ATTR_RO)) {
        return false;
    }
    return !need->exec || ummu_perm_exec(attr, tc, need->priv);
}

static inline bool ummu_perm_s2(uint16_t attr, const UmmuNeed *need)
{
    return !(need->read && (attr & UMMU_ATTR_S2_NR)) &&
           !(need->write && (attr & UMMU_ATTR_S2_NW)) &&
           !(need->exec && (attr & (need->priv ? UMMU_ATTR_S2_PXN :
                                    UMMU_ATTR_S2_UXN)));
}

/* One range of the permission table that carries rights of its own. */
typedef struct UmmuMaptPath {
    uint32_t offset;            /* NEXT_LV_OFFSET and NEXT_LV_INDEX by which */
    uint16_t index;             /* a table on the way was reached */
} UmmuMaptPath;

#define UMMU_MAPT_LEVELS 4
#define UMMU_MAPT_SINGLE 4      /* "level" of the entry of single-entry mode */

typedef struct UmmuMaptEntry {
    uint64_t first, last;       /* UBA[47:0], inclusive */
    uint32_t token[2];
    UmmuMaptPath path[UMMU_MAPT_LEVELS - 1];
    uint8_t depth;              /* valid members of path[] */
    uint8_t level;
    uint8_t perm;               /* PERMISSION */
    bool e_bit, token_chk;
} UmmuMaptEntry;

static inline unsigned ummu_mapt_span(unsigned level)
{
    return level == UMMU_MAPT_SINGLE ? UMMU_MAPT_ADDR_BITS : 39 - 9 * level;
}

/* ---- ummu-tables.c ------------------------------------------------------ */

bool ummu_tecte_fetch(UmmuState *s, uint32_t tag, UmmuTecte *te, UmmuFault *f);
bool ummu_tcte_fetch(UmmuState *s, const UmmuTecte *te, uint32_t tid,
                     UmmuTcte *tc, UmmuFault *f);
void ummu_tecte_decode(const UmmuState *s, const uint64_t w[8], UmmuTecte *te);
void ummu_tcte_decode(const UmmuState *s, const UmmuTecte *te,
                      const uint64_t w[8], UmmuTcte *tc);
bool ummu_tecte_legal(const UmmuState *s, const uint64_t w[8]);
bool ummu_tcte_legal(const UmmuState *s, const UmmuTecte *te,
                     const uint64_t w[8]);

/* ---- ummu-walk.c -------------------------------------------------------- */

/* Start level and log2 of the start table's bytes for a stage 1 geometry. */
unsigned ummu_s1_start_level(unsigned gran, unsigned insize);
bool ummu_walk(UmmuState *s, const UmmuTecte *te, const UmmuTcte *tc,
               uint64_t ia, const UmmuNeed *need, UmmuLeaf *leaf, UmmuFault *f);
/*
 * The pages behind a page that was just walked, as far as their descriptors lie
 * in the same 64 bytes: at most @max.  Returns how many of @leaves are filled,
 * all of them valid and accessed before; rights are judged on use.
 */
#define UMMU_WALK_AHEAD 7
unsigned ummu_walk_ahead(UmmuState *s, const UmmuTcte *tc, const UmmuLeaf *leaf,
                         unsigned max, UmmuLeaf leaves[UMMU_WALK_AHEAD]);
bool ummu_table_s2(UmmuState *s, const UmmuTecte *te, uint64_t ipa, uint8_t cls,
                   uint64_t *pa, UmmuFault *f);

/* Address of a table in nested mode; identity when stage 2 is off. */
static inline bool ummu_table_ipa(UmmuState *s, const UmmuTecte *te,
                                  uint64_t ipa, uint8_t cls, uint64_t *pa,
                                  UmmuFault *f)
{
    *pa = ipa;
    return !te->has_s2 || ummu_table_s2(s, te, ipa, cls, pa, f);
}

/* ---- ummu-mapt.c -------------------------------------------------------- */

bool ummu_mapt_find(UmmuState *s, const UmmuTecte *te, const UmmuTcte *tc,
                    uint64_t addr, UmmuMaptEntry *e, UmmuFault *f);
typedef enum UmmuMaptVerdict {
    UMMU_MAPT_PASS,
    UMMU_MAPT_EBIT,
    UMMU_MAPT_TYPE,
    UMMU_MAPT_TOKEN,
} UmmuMaptVerdict;

/* The checks of 6.3, in their order. */
static inline UmmuMaptVerdict ummu_mapt_check(const UmmuMaptEntry *e,
                                              const UmmuRequest *req)
{
    static const uint8_t bit[] = {
        [UMMU_ACCESS_WRITE] = 1, [UMMU_ACCESS_READ] = 2,
        [UMMU_ACCESS_ATOMIC] = 4,
    };

    if (e->e_bit && !req->e_bit) {
        return UMMU_MAPT_EBIT;
    }
    if (!(e->perm & bit[req->access])) {
        return UMMU_MAPT_TYPE;
    }
    if (e->token_chk && !(req->token_valid && (req->token == e->token[0] ||
                                               req->token == e->token[1]))) {
        return UMMU_MAPT_TOKEN;
    }
    return UMMU_MAPT_PASS;
}

/* ---- ummu-stall.c ------------------------------------------------------- */

/* Keep a request; false if the list is full.  The event is the caller's. */
bool ummu_stall_add(UmmuState *s, UmmuClient *c, uint32_t tag,
                    const UmmuRequest *req, uint8_t event, uint16_t *stag);
/* Take back a stall whose event could not be recorded. */
void ummu_stall_drop(UmmuState *s, uint16_t stag);
bool ummu_stall_has_room(const UmmuState *s);

#endif
