// SPDX-License-Identifier: MIT
/* The layouts of the interface, checked where they are compiled. */
#include <sys/ioctl.h>

#include <ummu_api.h>

#include "arch.h"
#include "internal.h"

_Static_assert(sizeof(struct ummu_token_info) == 64, "ummu_token_info");
_Static_assert(sizeof(struct ummu_tid_attr) == ARCH_TID_ATTR_SIZE, "ummu_tid_attr");
_Static_assert(offsetof(struct ummu_tid_attr, kabi_reserve) == ARCH_TID_RESERVE_OFFSET, "ummu_tid_attr reserve");
_Static_assert(sizeof(struct ummu_seg_attr) == 64, "ummu_seg_attr");
_Static_assert(offsetof(struct ummu_seg_attr, kabi_reserve) == ARCH_SEG_RESERVE_OFFSET, "ummu_seg_attr reserve");
_Static_assert(sizeof(struct ummu_tid_info) == 128, "ummu_tid_info");
_Static_assert(offsetof(struct ummu_tid_info, blk_exp_size) == 8, "blk_exp_size");
_Static_assert(offsetof(struct ummu_tid_info, tid) == 24, "tid");
_Static_assert(offsetof(struct ummu_tid_info, hw_cap) == 40, "hw_cap");
_Static_assert(offsetof(struct ummu_tid_info, size) == 56, "size");
_Static_assert(offsetof(struct ummu_tid_info, kabi_reserve) == 64, "tid_info reserve");
_Static_assert(sizeof(ummu_log_backend_t) == 48, "ummu_log_backend");
_Static_assert(UMMU_IOCALLOC_TID == 0x40806b04, "ALLOC");
_Static_assert(UMMU_IOCFREE_TID == 0x40806b05, "FREE");
_Static_assert(UMMU_IOCPLBI_VA == 0x40806b06, "PLBI_VA");
_Static_assert(UMMU_IOCPLBI_ALL == 0x40806b07, "PLBI_ALL");
_Static_assert(sizeof(mapt_node) == MAPTE_SIZE, "MAPTE");
_Static_assert(MAPTE_SIZE == UMAPTE_SIZE, "one node type serves both modes");
