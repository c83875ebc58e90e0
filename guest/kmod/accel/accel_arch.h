/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Everything that depends on the CPU architecture, in one place.
 */
#ifndef _ACCEL_ARCH_H
#define _ACCEL_ARCH_H

#include <linux/mm.h>

/* How a process maps its doorbell: stores arrive one by one and in order */
static inline pgprot_t accel_arch_pgprot_device(pgprot_t prot)
{
#ifdef CONFIG_ARM64
	return pgprot_device(prot);
#else
	return pgprot_noncached(prot);
#endif
}

#endif /* _ACCEL_ARCH_H */
