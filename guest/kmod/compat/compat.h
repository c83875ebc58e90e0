/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Differences between kernels.  Each HAVE_* comes from a feature probe (see
 * Kbuild.in): a few lines compiled against the headers of the kernel that the
 * module is built for, never from a version number.
 */
#ifndef _UMMULAB_COMPAT_H
#define _UMMULAB_COMPAT_H

#include <linux/mm.h>
#include <linux/mmu_notifier.h>

#ifndef HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* The notifier for devices that walk the CPU's page tables was renamed */
#ifdef HAVE_ARCH_INVALIDATE_SECONDARY_TLBS
#define COMPAT_MN_INVALIDATE	arch_invalidate_secondary_tlbs
#else
#define COMPAT_MN_INVALIDATE	invalidate_range
#endif

#ifdef HAVE_EVENTFD_SIGNAL_ONE_ARG
#define compat_eventfd_signal(ctx)	eventfd_signal(ctx)
#else
#define compat_eventfd_signal(ctx)	eventfd_signal(ctx, 1)
#endif

#endif /* _UMMULAB_COMPAT_H */
