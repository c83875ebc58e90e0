/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What ummu.ko offers to drivers of devices behind the UMMU.
 *
 * An entity (a device, named by its 128-bit EID) reaches memory through the
 * TIDs of processes.  The driver of the device registers the entity once and
 * binds each TID that it lets the device use.  When a TID ends (FREE, death of
 * the process) every binding is revoked before the TID's tables go away.
 */
#ifndef _UMMU_API_H
#define _UMMU_API_H

#include <linux/list.h>
#include <linux/types.h>

struct device;
struct file;
struct mm_struct;

#define UMMU_TID_NONE		0u
#define UMMU_TID_INVALID	0xfffffu

/**
 * struct ummu_tid_binding - one use of a TID by a client driver
 * @node: for ummu.ko only
 * @tid: the TID, filled by ummu_tid_bind()
 * @owner: who binds; a TID with a page table of a client driver has one owner
 * @revoke: stop the device from using the TID before returning
 *
 * @revoke runs in process context with ummu.ko's binding lock held: it must
 * not call back into this interface and must not take a lock that is held
 * around ummu_tid_bind() or ummu_tid_unbind().
 */
struct ummu_tid_binding {
	struct list_head node;
	u32 tid;
	const void *owner;
	void (*revoke)(struct ummu_tid_binding *binding);
};

int ummu_entity_add(struct device *consumer, u64 eid_lo, u64 eid_hi);
void ummu_entity_del(struct device *consumer, u64 eid_lo, u64 eid_hi);

int ummu_tid_bind(struct mm_struct *mm, u32 tid, struct ummu_tid_binding *binding);
void ummu_tid_unbind(struct ummu_tid_binding *binding);

/*
 * A TID whose page table the client driver fills itself (HMM), and TIDs of the
 * kernel for the driver's own DMA.  The calls that change a table are for one
 * caller at a time and return when no device can use what was removed.
 */
struct ummu_svm;

/**
 * struct ummu_svm_ops - what the client driver does for such a TID
 * @fault: make @addr reachable, process alive; 0 = try again, else the job is refused.
 *	   Process context, no lock of this interface but the one against detach.
 */
struct ummu_svm_ops {
	int (*fault)(void *priv, u64 addr, bool write);
};

struct ummu_svm *ummu_svm_attach(struct mm_struct *mm, u32 tid, const struct ummu_svm_ops *ops,
				 void *priv, const void *owner);
void ummu_svm_detach(struct ummu_svm *svm, struct mm_struct *mm);
struct ummu_svm *ummu_svm_kernel(void);
u32 ummu_svm_tid(const struct ummu_svm *svm);
int ummu_svm_map(struct ummu_svm *svm, u64 va, u64 pa, bool write);
int ummu_svm_map_block(struct ummu_svm *svm, u64 va, u64 pa, bool write);
bool ummu_svm_unmap(struct ummu_svm *svm, u64 start, u64 end);
bool ummu_svm_allows(struct ummu_svm *svm, u64 va, bool write);

#endif /* _UMMU_API_H */
