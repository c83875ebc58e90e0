/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ummu_accel.ko: shared state.
 *
 * DOC: overview
 *
 * One open file is one queue.  The device reaches the queue's rings and the
 * operands of its jobs by virtual address, through the UMMU, so the driver
 * neither copies nor pins: it only says which TIDs a queue may name.
 *
 * DOC: locking, in the order in which locks nest
 *
 *  accel_dev.files_lock  list of open files
 *  accel_queue.lock      life of the queue, its bindings; may nest in mmap_lock,
 *                        so user memory is never touched under it
 *  (ummu.ko's binding lock: taken by ummu_tid_bind(), held around revoke())
 *  accel_dev.hw_lock     every register access, and accel_dev.gone
 *  accel_dev.irq_lock    what an interrupt looks at; irq-safe
 */
#ifndef _ACCEL_H
#define _ACCEL_H

#include <linux/idr.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "accel_layout.h"
#include "ummu_api.h"
#include "uapi/ummu_accel.h"

#define ACCEL_MAX_QUEUES	64

struct eventfd_ctx;
struct pci_dev;

/* What a vector's handler is given: it must not ask the PCI layer, which takes a mutex */
struct accel_vector {
	struct accel_dev *dev;
	unsigned int qid;
	int irq;
};

struct accel_dev {
	struct kref ref;
	struct pci_dev *pdev;
	void __iomem *regs;
	phys_addr_t doorbells;
	struct miscdevice misc;
	char name[24];
	int instance;
	unsigned int queues;
	unsigned int max_log2;
	unsigned int max_tids;
	u64 eid_lo;
	u64 eid_hi;
	struct ida qids;

	struct mutex files_lock;	/* files */
	struct list_head files;

	spinlock_t hw_lock;	/* registers, gone, revoked bindings */
	bool gone;		/* registers must not be touched any more */

	spinlock_t irq_lock;	/* slots, from the interrupt handler too */
	struct accel_queue *slots[ACCEL_MAX_QUEUES];
	struct accel_vector vectors[ACCEL_MAX_QUEUES];

	/* memory management, accel_hmm.h; NULL where there is none */
	struct accel_devmem *devmem;
	struct accel_dma *dma;
	spinlock_t hmms_lock;		/* hmms */
	struct list_head hmms;
	struct dentry *debugfs;
};

struct accel_binding {
	struct ummu_tid_binding b;
	struct list_head node;
	struct accel_queue *q;
	bool revoked;		/* under hw_lock */
};

struct accel_queue {
	struct accel_dev *dev;
	struct list_head node;	/* accel_dev.files */
	struct mm_struct *mm;	/* of the opener; compared, never used */
	struct address_space *mapping;
	struct page *spare;	/* stands in for the doorbell page */

	struct mutex lock;	/* all below but what says otherwise */
	int qid;		/* -1: no queue */
	struct accel_binding *ring;
	struct list_head bindings;
	struct accel_hmm *hmm;	/* the mirror that this file owns */

	bool dead;		/* ring TID revoked; under hw_lock */
	wait_queue_head_t wait;
	struct eventfd_ctx *eventfd;	/* under irq_lock */
};

extern const struct file_operations accel_fops;

void accel_dev_put(struct accel_dev *dev);
void accel_files_shutdown(struct accel_dev *dev);

/* accel_hmm.c, calls of the process */
struct accel_hmm;
int accel_hmm_enable(struct accel_queue *q, struct accel_hmm_enable *arg);
void accel_hmm_stop(struct accel_hmm *h);
int accel_hmm_range(struct accel_hmm *h, struct accel_hmm_range *r);
void accel_hmm_stats(struct accel_hmm *h, struct accel_hmm_stats *s);

/* accel_queue.c */
int accel_queue_create(struct accel_queue *q, struct accel_queue_create *arg);
int accel_queue_destroy(struct accel_queue *q);
int accel_queue_bind(struct accel_queue *q, u32 tid);
int accel_queue_unbind(struct accel_queue *q, u32 tid);
bool accel_queue_state(struct accel_queue *q, bool *completions, bool *error);
void accel_queue_notify(struct accel_queue *q);

static inline void __iomem *accel_qreg(struct accel_queue *q, u32 off)
{
	return q->dev->regs + ACCEL_QUEUE_BANK_BASE + q->qid * ACCEL_QUEUE_BANK_STRIDE + off;
}

static inline void __iomem *accel_dbreg(struct accel_queue *q, u32 off)
{
	return q->dev->regs + ACCEL_DOORBELL_BANK_BASE + q->qid * ACCEL_DOORBELL_BANK_STRIDE + off;
}

#endif /* _ACCEL_H */
