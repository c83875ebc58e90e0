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
 * @revoke: stop the device from using the TID before returning
 *
 * @revoke runs in process context with ummu.ko's binding lock held: it must
 * not call back into this interface and must not take a lock that is held
 * around ummu_tid_bind() or ummu_tid_unbind().
 */
struct ummu_tid_binding {
	struct list_head node;
	u32 tid;
	void (*revoke)(struct ummu_tid_binding *binding);
};

int ummu_entity_add(struct device *consumer, u64 eid_lo, u64 eid_hi);
void ummu_entity_del(struct device *consumer, u64 eid_lo, u64 eid_hi);

int ummu_tid_bind(struct mm_struct *mm, u32 tid, struct ummu_tid_binding *binding);
void ummu_tid_unbind(struct ummu_tid_binding *binding);

#endif /* _UMMU_API_H */
