/*
 * UMMU: what a client device (the accelerator) may use of it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * All functions are called with the BQL held.  A client presents a request
 * and gets either a physically contiguous piece to access *now* (before it
 * returns to the main loop: a later invalidation would not cover it), or a
 * refusal whose event the UMMU has already recorded, or UMMU_RES_STALLED.
 */
#ifndef HW_UMMU_UMMU_H
#define HW_UMMU_UMMU_H

#include "qom/object.h"
#include "exec/memory.h"

/*
 * The build clears automatic variables; those of the translation path that are
 * storage only, or filled before use, are too large for that.
 */
#ifndef QEMU_UNINITIALIZED
#define QEMU_UNINITIALIZED __attribute__((uninitialized))
#endif

#define TYPE_UMMU "ummu"
typedef struct UmmuState UmmuState;

typedef enum UmmuAccess {
    UMMU_ACCESS_READ,
    UMMU_ACCESS_WRITE,
    UMMU_ACCESS_ATOMIC,
} UmmuAccess;

typedef enum UmmuStatus {
    UMMU_RES_OK,       /* [uba, uba + len) -> [pa, pa + len), all checks pass */
    UMMU_RES_FAULT,    /* refused; event = architectural code or 0 (silent) */
    UMMU_RES_RAZWI,    /* TCTE.FBA = 0: read as zero / ignore write */
    UMMU_RES_STALLED,  /* kept; stall_done() will be called with this stag */
    UMMU_RES_RETRY,    /* cannot be kept (STALL_MAX, EVENTQ): "page fault" */
} UmmuStatus;

typedef struct UmmuRequest {
    uint64_t eid_lo, eid_hi;   /* DstEID */
    uint32_t tid;              /* 20 bits */
    uint32_t token;            /* meaningful if token_valid */
    bool token_valid;
    bool e_bit;                /* 1: trusted local initiator */
    bool privileged;
    bool instruction;
    bool no_stall;             /* debug or client that cannot wait */
    UmmuAccess access;
    uint64_t uba;
    uint64_t len;              /* bytes; 0 needs no permission check */
} UmmuRequest;

/* One physically contiguous part of an answer. */
typedef struct UmmuPiece {
    uint64_t pa, len;
} UmmuPiece;

/* Room for the parts behind the first one; none is the usual case. */
typedef struct UmmuPieces {
    unsigned max;              /* in: room in @piece */
    unsigned n;                /* out */
    UmmuPiece *piece;
} UmmuPieces;

typedef struct UmmuResult {
    UmmuStatus status;
    uint8_t event;             /* event code when FAULT/STALLED */
    uint16_t stag;             /* when STALLED */
    uint64_t pa;               /* when OK */
    uint64_t len;              /* OK, RAZWI: bytes from uba on; else 0 */
    uint64_t fault_addr;       /* first refused byte */
} UmmuResult;

/*
 * The core behind an object of TYPE_UMMU.  The bus function holds the core, it
 * is not the core: link to TYPE_UMMU as Object and convert here.  NULL for any
 * other object.
 */
UmmuState *ummu_from_object(Object *obj);

/*
 * A client of a UMMU.  stall_done() runs from the main loop (bottom half),
 * never from inside ummu_translate(): retry = translate again, else fail.
 */
typedef struct UmmuClient UmmuClient;
typedef struct UmmuClientOps {
    void (*stall_done)(void *opaque, uint16_t stag, bool retry);
} UmmuClientOps;

UmmuClient *ummu_client_register(UmmuState *s, const UmmuClientOps *ops,
                                 void *opaque, uint64_t eid_lo,
                                 uint64_t eid_hi, Error **errp);
void ummu_client_unregister(UmmuClient *c);
/* Forget a stalled request whose job has ended (queue disabled, unplug). */
void ummu_client_cancel_stall(UmmuClient *c, uint16_t stag);
/* After migration: claim a stall that the loaded UMMU state lists. */
bool ummu_client_claim_stall(UmmuClient *c, uint16_t stag);

/*
 * Resolve the longest prefix of the request that is physically contiguous.
 * MAPT coverage is checked for the returned prefix only; the caller loops.
 */
void ummu_translate(UmmuClient *c, const UmmuRequest *req, UmmuResult *res);

/*
 * The same, and what follows res.len bytes later as far as it is allowed too
 * and @more has room: one resolution for a stream over scattered pages.  Where
 * the parts end the client asks again; a refusal there is recorded only then.
 */
void ummu_translate_parts(UmmuClient *c, const UmmuRequest *req,
                          UmmuResult *res, UmmuPieces *more);

/* Address space that physical addresses of this UMMU refer to. */
AddressSpace *ummu_dma_as(UmmuState *s);

/*
 * True if [pa, pa + len) is memory a client may touch: RAM-backed (guest RAM or
 * a VRAM BAR).  Device registers are refused: DMA can never re-enter a model.
 */
bool ummu_pa_is_memory(UmmuState *s, uint64_t pa, uint64_t len);

/*
 * Host address of such memory at @pa; *len is cut to what follows in one piece.
 * NULL if it is no memory, or not writable for @write.  Valid until the caller
 * returns to the main loop.  After a write call ummu_ram_written() for what was
 * written: translated guest code and dirty logs depend on it.
 */
void *ummu_ram_map(UmmuState *s, uint64_t pa, uint64_t *len, bool write);
void ummu_ram_written(UmmuState *s, uint64_t pa, uint64_t len);

#endif
