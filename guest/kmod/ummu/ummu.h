/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ummu.ko: shared state.
 *
 * DOC: overview
 *
 * A *unit* is one UMMU (register frame, command and event queues, user queue
 * contexts, DstEID table).  All units present form one *domain*: they are
 * identical, share one TECT and one TCT in memory, and get every command.  The
 * domain lives as long as a unit or a process record refers to it; when its
 * last unit goes it is dead for ever: its TIDs can only be unmapped and closed.
 *
 * A *process record* (struct ummu_proc) belongs to one address space and is
 * created by open("/dev/ummu/tid").  It owns TIDs (struct ummu_ctx).
 *
 * DOC: locking, in the order in which locks nest
 *
 *  ummu_proc_mutex    table of process records by mm (open, release)
 *  mmap_lock          taken by the core around mmap and vm_operations
 *  ummu_proc.lock     TIDs of a process, their blocks and mappings
 *  ummu_domain.bind_lock   bindings by client drivers, entities
 *  ummu_domain.cfg_lock    TECT, TCT and DstEID tables
 *  ummu_domain.tids   (xa_lock) TID -> context, also from the event thread
 *  ummu_mcmdq.lock    one command ring; irq-safe, taken under page table locks
 *
 * ummu_srcu protects the unit array: commands may be sent from any context, a
 * unit is only switched off after the last sender has left.
 */
#ifndef _UMMU_H
#define _UMMU_H

#include <linux/bitfield.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/ratelimit.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "ummu_api.h"
#include "ummu_layout.h"

#define UMMU_MAX_UNITS		4
#define UMMU_MAX_BLOCKS		512
#define UMMU_BLOCK_MIN		SZ_16K
#define UMMU_BLOCK_DEFAULT	SZ_64K
#define UMMU_BLOCK_MAX		SZ_2M
#define UMMU_TID_BITS		20
#define UMMU_VA_BITS		48
#define UMMU_VENDOR_HUAWEI	0xcc08
#define UMMU_LOCAL_TAG		0	/* the OS that owns the UMMU */
#define UMMU_CMD_BATCH		32
#define UMMU_KV_BANKS		8
#define UMMU_KV_HASHES		256
#define UMMU_CAM_SLOTS		256

#define UMMU_POLL_US		5	/* register handshakes */
#define UMMU_RELEASE_US		100	/* user queue release */
#define UMMU_SYNC_MS		100	/* any wait for the command queue */

/* Work-arounds of the first generation (vendor 0xCC08, product 0) */
#define UMMU_OPT_DOUBLE_PLBI	BIT(0)
#define UMMU_OPT_KCMD_PLBI	BIT(1)
#define UMMU_OPT_CHECK_CONT	BIT(2)
#define UMMU_OPT_SYNC_PLBI	BIT(3)
#define UMMU_OPT_KV_CAM_CONT	BIT(4)
#define UMMU_OPT_ONE_MCMDQ	BIT(5)
#define UMMU_OPT_DOUBLE_TLBI	BIT(6)
#define UMMU_OPT_SCALE_LIMIT	BIT(7)

/* Software's enum; the bit in the TCTE has the opposite polarity */
enum ummu_mapt_mode {
	UMMU_MAPT_TABLE = 0,
	UMMU_MAPT_ENTRY = 1,
};

struct ummu_caps {
	u32 cap[7];
	u32 iidr;
	/* from the firmware description */
	u32 min_tid;
	u32 max_tid;
	u16 vendor_id;
	/* derived */
	u32 options;		/* UMMU_OPT_* */
	u8 tag_bits;
	u8 tid_bits;
	u8 oas_code;
	u8 httu;
	bool tect_two_level;
	bool tct_two_level;
	bool usi;		/* message interrupts */
	bool sync_by_write;	/* CMD_SYNC completion by memory write */
	bool coherent;
	bool range_tlbi;
	bool el2_regime;
	bool mapt;
	bool stall;
	bool broadcast;		/* hears the CPU's TLB invalidations */
	bool free_bit;
	bool pplb;
	bool granule_ok;	/* CPU page size is a granule */
};

struct ummu_cmd {
	u64 w[4];
};

struct ummu_unit;

struct ummu_mcmdq {
	spinlock_t lock;	/* ring, pi, and the wait for room */
	struct ummu_unit *unit;
	void __iomem *regs;
	unsigned int index;
	unsigned int log2;
	__le64 *ring;
	dma_addr_t ring_dma;
	u32 pi;			/* index with wrap bit */
	u64 posted;		/* commands since start, never wraps */
	u32 errack;		/* ERRACK as last written */
	u32 sync_seq;
	__le32 *sync_word;	/* the device writes sync_seq here */
	dma_addr_t sync_dma;
	u64 errors;
	u64 timeouts;
};

struct ummu_evtq {
	__le64 *ring;
	dma_addr_t dma;
	unsigned int log2;
	u32 ci;			/* index with wrap bit */
	u32 ovf;		/* OVFLG_RESP as last written */
	u64 seen;
	u64 lost;
	struct ratelimit_state rs;
	unsigned long last_jiffies;
	u32 last_key;
	u32 suppressed;
};

struct ummu_ucmdq_table {
	__le64 *ctx;
	dma_addr_t dma;
	unsigned int log2;
	struct ida qids;
	struct mutex release_lock;	/* the pair of release registers */
};

struct ummu_unit {
	struct device *dev;
	void __iomem *regs;
	void __iomem *ctrl_pages;
	phys_addr_t ctrl_phys;
	u32 ctrl_count;		/* control pages that exist */
	struct ummu_domain *dom;
	unsigned int slot;
	u32 id;			/* never used twice */
	struct ummu_caps caps;
	struct ummu_mcmdq *mcmdq;
	unsigned int mcmdq_count;
	struct ummu_evtq evtq;
	struct ummu_ucmdq_table uq;
	__le32 *kv;		/* KV slots, CAM slots behind them */
	dma_addr_t kv_dma;
	int irq_evtq;
	int irq_glb;
	u64 glb_errors;
	bool running;		/* interrupts mean something */
	bool broken;		/* registers answer all ones: unplugged */
};

struct ummu_entity {
	struct list_head node;
	struct device *consumer;
	u64 eid_lo;
	u64 eid_hi;
	u32 kv_index[UMMU_MAX_UNITS];
};

struct ummu_domain {
	struct kref ref;
	bool dead;
	struct ummu_caps caps;
	struct ummu_unit __rcu *units[UMMU_MAX_UNITS];
	unsigned int unit_count;

	struct mutex cfg_lock;	/* TECT and TCT, level by level */
	void *tect;
	void **tect_l2;
	void *tct;
	unsigned int tct_num;
	void **tct_l2;

	struct mutex bind_lock;	/* entities and their EID bindings */
	struct list_head entities;

	struct xarray tids;
	u32 tid_next;
	u32 tid_first;
	u32 tid_last;
	struct ida asids;
	struct workqueue_struct *fault_wq;
};

struct ummu_table {		/* a page table of the driver's own */
	struct ummu_domain *dom;
	u32 asid;
	__le64 *root;
};

struct ummu_block {
	struct page *page;
	unsigned int order;
	unsigned int maps;
};

struct ummu_uq {		/* one user queue pair on one unit */
	u32 unit_id;
	unsigned int slot;
	u32 qid;
	struct page *cmd;
	struct page *cpl;
	phys_addr_t ctrl;
};

enum ummu_ctx_state {
	UMMU_CTX_OFF,		/* TCTE.V = 0 */
	UMMU_CTX_LIVE,
	UMMU_CTX_QUIET,		/* refuses silently, walks nothing */
};

struct ummu_ctx {
	u32 tid;
	enum ummu_mapt_mode mode;
	enum ummu_ctx_state state;
	struct ummu_proc *proc;
	struct list_head node;	/* ummu_proc.ctxs */
	bool doomed;		/* free with the last mapping */
	u64 hw_cap;
	unsigned long block_size;
	struct xarray blocks;
	__le64 *block_table;
	unsigned int maps;	/* mappings of any kind */
	unsigned int uq_maps;
	unsigned int uq_count;
	struct ummu_uq uq[UMMU_MAX_UNITS];
	struct list_head bindings;
	struct platform_device *vdev;
	struct ummu_svm *svm;	/* page table of a client driver; also under xa_lock of tids */
};

/* A TID whose page table a client driver fills */
struct ummu_svm {
	struct kref ref;	/* the client, the context, faults on their way */
	struct ummu_table table;
	u32 tid;
	struct mutex lock;	/* ops run under it; not taken by the table calls */
	const struct ummu_svm_ops *ops;	/* NULL: detached */
	void *priv;
	const void *owner;
	struct ummu_proc *kproc;	/* of a kernel TID: its record */
	struct ummu_ctx *kctx;
	unsigned int spurious;
};

struct ummu_matt;

struct ummu_proc {
	struct mm_struct *mm;
	struct ummu_domain *dom;
	struct mmu_notifier mn;
	struct mutex lock;	/* ctxs, and the life of each context */
	struct list_head ctxs;
	unsigned int ctx_count;
	u32 asid;
	bool mm_dead;
	struct ummu_matt *matt;	/* own page table, separated mode only */
	struct ummu_svm *ksvm;	/* of a record without process: its contexts' table */
	struct address_space *mapping;	/* of the device file */

	spinlock_t fault_lock;	/* faults, from the event thread */
	struct list_head faults;
	struct work_struct fault_work;
	u64 fault_page;		/* last fault answered with RETRY ... */
	bool fault_write;
	unsigned int fault_repeat;	/* ... and how often in a row */
	u64 faults_retried;
	u64 faults_aborted;
};

struct ummu_fault {
	struct list_head node;
	struct ummu_svm *svm;	/* the client driver's, with a reference */
	struct ummu_domain *dom;
	unsigned int slot;
	u32 unit_id;
	u32 tid;
	u16 stag;
	u16 tag;
	u8 code;
	bool write;
	bool exec;
	u64 addr;
};

extern struct srcu_struct ummu_srcu;

/* ummu_params.c */
bool ummu_param_expan(void);
unsigned long ummu_param_block_size(void);
bool ummu_param_kcmd(const struct ummu_caps *caps);
bool ummu_param_shared(const struct ummu_caps *caps);

/* ummu_caps.c */
int ummu_caps_read(struct ummu_unit *u);
bool ummu_caps_equal(const struct ummu_caps *a, const struct ummu_caps *b);

/* ummu_core.c */
int ummu_unit_prepare(struct ummu_unit *u);
int ummu_unit_start(struct ummu_unit *u);
void ummu_unit_stop(struct ummu_unit *u);
void ummu_unit_shutdown(struct ummu_unit *u);

/* ummu_domain.c */
struct ummu_domain *ummu_domain_get(void);
void ummu_domain_put(struct ummu_domain *dom);
struct ummu_domain *ummu_domain_attach(struct ummu_unit *u);
void ummu_domain_publish(struct ummu_unit *u);
void ummu_domain_detach(struct ummu_unit *u);
bool ummu_domain_alive(struct ummu_domain *dom);
void ummu_units_for_each(void (*fn)(struct ummu_unit *u, void *arg), void *arg);

/* ummu_cmdq.c */
int ummu_mcmdq_alloc(struct ummu_unit *u);
int ummu_mcmdq_enable(struct ummu_unit *u);
int ummu_unit_issue(struct ummu_unit *u, const struct ummu_cmd *cmds, unsigned int n, bool sync);
int ummu_issue(struct ummu_domain *dom, const struct ummu_cmd *cmds, unsigned int n);
int ummu_issue_one(struct ummu_domain *dom, struct ummu_cmd cmd);
void ummu_mcmdq_recover_all(struct ummu_unit *u);
int ummu_check_continuity(struct ummu_domain *dom, phys_addr_t pa, unsigned int order, u32 index);

/* ummu_inval.c */
int ummu_plbi_tid(struct ummu_domain *dom, u32 tid);
int ummu_plbi_range(struct ummu_domain *dom, u32 tid, u64 va, u64 size);
void ummu_tlbi_asid(struct ummu_domain *dom, u32 asid);
void ummu_tlbi_range(struct ummu_domain *dom, u32 asid, u64 start, u64 end);
int ummu_cfgi_tct(struct ummu_domain *dom, u32 tid, bool leaf);
void ummu_init_invalidate(struct ummu_unit *u);

/* ummu_event.c */
int ummu_evtq_alloc(struct ummu_unit *u);
irqreturn_t ummu_evtq_irq(int irq, void *data);
irqreturn_t ummu_glb_irq(int irq, void *data);

/* ummu_cfg.c */
int ummu_cfg_alloc(struct ummu_domain *dom);
void ummu_cfg_free(struct ummu_domain *dom);
void ummu_tect_program(struct ummu_unit *u);
int ummu_tecte_local_on(struct ummu_domain *dom);
void ummu_tecte_local_off(struct ummu_domain *dom);

/* ummu_entity.c */
int ummu_kv_alloc(struct ummu_unit *u);
void ummu_kv_program(struct ummu_unit *u);
void ummu_entities_replay(struct ummu_unit *u);

int ummu_ctx_write_live(struct ummu_ctx *ctx);
void ummu_ctx_write_quiet(struct ummu_ctx *ctx);
void ummu_ctx_write_off(struct ummu_ctx *ctx);
const __le64 *ummu_tct_peek(struct ummu_domain *dom, u32 tid);
const __le64 *ummu_tect_peek(struct ummu_domain *dom, u32 tag);

static inline u32 ummu_ctx_asid(const struct ummu_ctx *ctx)
{
	return ctx->svm ? ctx->svm->table.asid : ctx->proc->asid;
}

/* ummu_ctx.c */
u64 ummu_hw_cap(const struct ummu_caps *caps);
struct ummu_ctx *ummu_ctx_alloc(struct ummu_proc *p, enum ummu_mapt_mode mode);
void ummu_ctx_remove(struct ummu_ctx *ctx);
void ummu_ctx_destroy(struct ummu_ctx *ctx);
struct ummu_ctx *ummu_ctx_find(struct ummu_proc *p, u32 tid);
struct ummu_block *ummu_block_get(struct ummu_ctx *ctx, u32 index);
void ummu_block_put(struct ummu_ctx *ctx, u32 index);

/* ummu_map.c */
int ummu_mmap(struct file *filp, struct vm_area_struct *vma);

/* ummu_ucmdq.c */
int ummu_ucmdq_table_alloc(struct ummu_unit *u);
void ummu_ucmdq_table_program(struct ummu_unit *u);
int ummu_uq_get(struct ummu_ctx *ctx);
void ummu_uq_put(struct ummu_ctx *ctx);

/* ummu_proc.c */
extern const struct file_operations ummu_tid_fops;
void ummu_procs_unit_gone(struct ummu_domain *dom);
void ummu_procs_for_each(void (*fn)(struct ummu_proc *p, void *arg), void *arg);
struct ummu_proc *ummu_proc_lock(struct mm_struct *mm);
int ummu_cdev_init(void);
void ummu_cdev_exit(void);

/* ummu_fault.c */
void ummu_fault_queue(struct ummu_unit *u, const struct ummu_fault *f);
void ummu_fault_work(struct work_struct *work);

/* ummu_matt.c */
int ummu_matt_create(struct ummu_proc *p);
void ummu_matt_destroy(struct ummu_proc *p);
phys_addr_t ummu_matt_root(struct ummu_proc *p);
int ummu_matt_fault(struct ummu_proc *p, u64 addr, bool write);

/* ummu_table.c */
int ummu_table_init(struct ummu_table *t, struct ummu_domain *dom, u32 asid);
void ummu_table_free(struct ummu_table *t);
phys_addr_t ummu_table_root(const struct ummu_table *t);
int ummu_table_map(struct ummu_table *t, u64 va, u64 pa, bool write);
int ummu_table_map_block(struct ummu_table *t, u64 va, u64 pa, bool write);
bool ummu_table_zap(struct ummu_table *t, u64 start, u64 end);
bool ummu_table_allows(struct ummu_table *t, u64 va, bool write);

/* ummu_svm.c */
struct ummu_svm *ummu_svm_of(struct ummu_ctx *ctx);
void ummu_svm_put(struct ummu_svm *svm);
int ummu_svm_fault(struct ummu_svm *svm, u64 addr, bool write);
void ummu_svm_revoke(struct ummu_ctx *ctx);

/* ummu_sysfs.c */
int ummu_sysfs_init(void);
void ummu_sysfs_exit(void);
struct platform_device *ummu_vdev_add(u32 tid, u32 mode);
void ummu_vdev_del(struct platform_device *pdev);

/* ummu_debugfs.c */
void ummu_debugfs_init(void);
void ummu_debugfs_exit(void);

/* ummu_pci.c */
int ummu_pci_register(void);
void ummu_pci_unregister(void);

static inline struct ummu_cmd ummu_cmd_op(u8 opcode)
{
	return (struct ummu_cmd){ .w = { opcode } };
}

static inline u32 ummu_rd(struct ummu_unit *u, u32 off)
{
	return readl(u->regs + off);
}

static inline void ummu_wr(struct ummu_unit *u, u32 off, u32 val)
{
	writel(val, u->regs + off);
}

static inline void ummu_wr64(struct ummu_unit *u, u32 off, u64 val)
{
	writeq(val, u->regs + off);
}

#endif /* _UMMU_H */
