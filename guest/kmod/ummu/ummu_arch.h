/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Everything that depends on the CPU architecture, in one place.
 *
 * On arm64 the UMMU can walk a process's own page table ("shared" mode): the
 * descriptor format is the same.  Elsewhere only "separated" mode exists.
 */
#ifndef _UMMU_ARCH_H
#define _UMMU_ARCH_H

#include <linux/io.h>
#include <linux/mm.h>
#include <linux/types.h>

/* Memory attributes of tables that the driver builds itself (separated mode) */
#define UMMU_OWN_MAIR		0xffULL	/* index 0: normal, write-back */

#ifdef CONFIG_ARM64
#include <asm/cpufeature.h>
#include <asm/memory.h>
#include <asm/sysreg.h>
#include <asm/virt.h>

static inline bool ummu_arch_can_share(void)
{
	return true;
}

/* Bits of a user virtual address as the process page table resolves them */
static inline unsigned int ummu_arch_user_va_bits(void)
{
	return vabits_actual;
}

static inline u64 ummu_arch_mair(void)
{
	return read_sysreg(mair_el1);
}

/* ID_AA64MMFR0_EL1.PARange uses the codes of TCTE.GPAS (6 = 52 bits and up) */
static inline unsigned int ummu_arch_pa_code(void)
{
	u64 mmfr0 = read_sanitised_ftr_reg(SYS_ID_AA64MMFR0_EL1);

	return min_t(unsigned int, mmfr0 & 0xf, 5);
}

static inline bool ummu_arch_el2(void)
{
	return is_kernel_in_hyp_mode();
}

/* TCTE.TGS: 0 = 4K, 1 = 64K, 2 = 16K */
static inline unsigned int ummu_arch_tgs(void)
{
	return PAGE_SHIFT == 16 ? 1 : PAGE_SHIFT == 14 ? 2 : 0;
}

static inline pgprot_t ummu_arch_pgprot_device(pgprot_t prot)
{
	return pgprot_device(prot);
}

#else /* !CONFIG_ARM64 */

static inline bool ummu_arch_can_share(void)
{
	return false;
}

static inline unsigned int ummu_arch_user_va_bits(void)
{
	return 48;
}

static inline u64 ummu_arch_mair(void)
{
	return UMMU_OWN_MAIR;
}

static inline unsigned int ummu_arch_pa_code(void)
{
	return 5;
}

static inline bool ummu_arch_el2(void)
{
	return false;
}

static inline unsigned int ummu_arch_tgs(void)
{
	return 0;
}

static inline pgprot_t ummu_arch_pgprot_device(pgprot_t prot)
{
	return pgprot_noncached(prot);
}
#endif /* CONFIG_ARM64 */

#endif /* _UMMU_ARCH_H */
