// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The domain: what all units share, and the array of units.
 */
#include <linux/device.h>
#include <linux/slab.h>

#include "ummu.h"

static DEFINE_MUTEX(domain_mutex);	/* current domain, unit slots */
static struct ummu_domain *current_domain;
static u32 next_unit_id;

static void domain_release(struct kref *ref)
{
	struct ummu_domain *dom = container_of(ref, struct ummu_domain, ref);

	if (dom->fault_wq)
		destroy_workqueue(dom->fault_wq);
	ummu_cfg_free(dom);
	xa_destroy(&dom->tids);
	ida_destroy(&dom->asids);
	mutex_destroy(&dom->cfg_lock);
	mutex_destroy(&dom->bind_lock);
	kfree(dom);
}

void ummu_domain_put(struct ummu_domain *dom)
{
	if (dom)
		kref_put(&dom->ref, domain_release);
}

/* The domain of the units that are present, with a reference; or NULL */
struct ummu_domain *ummu_domain_get(void)
{
	struct ummu_domain *dom;

	mutex_lock(&domain_mutex);
	dom = current_domain;
	if (dom)
		kref_get(&dom->ref);
	mutex_unlock(&domain_mutex);
	return dom;
}

bool ummu_domain_alive(struct ummu_domain *dom)
{
	return dom && !READ_ONCE(dom->dead);
}

/* For debugfs: every unit of the current domain */
void ummu_units_for_each(void (*fn)(struct ummu_unit *u, void *arg), void *arg)
{
	struct ummu_domain *dom = ummu_domain_get();
	int i, idx;

	if (!dom)
		return;
	idx = srcu_read_lock(&ummu_srcu);
	for (i = 0; i < UMMU_MAX_UNITS; i++) {
		struct ummu_unit *u = srcu_dereference(dom->units[i], &ummu_srcu);

		if (u)
			fn(u, arg);
	}
	srcu_read_unlock(&ummu_srcu, idx);
	ummu_domain_put(dom);
}

static int domain_tid_range(struct ummu_domain *dom, struct device *dev)
{
	u32 bits = dom->caps.tct_two_level ? dom->caps.tid_bits :
		   min_t(u32, dom->caps.tid_bits, 10);

	dom->tct_num = bits;
	dom->tid_first = max_t(u32, dom->caps.min_tid, 1);
	/* "up to below max_tid", and the all-ones TID means invalid */
	dom->tid_last = min_t(u32, dom->caps.max_tid, BIT(bits)) - 1;
	if (!dom->caps.max_tid || dom->tid_first > dom->tid_last) {
		dev_err(dev, "no usable TID between %#x and %#x\n", dom->caps.min_tid,
			dom->caps.max_tid);
		return -EINVAL;
	}
	dom->tid_last = min_t(u32, dom->tid_last, UMMU_TID_INVALID - 1);
	dom->tid_next = dom->tid_first;
	return 0;
}

static struct ummu_domain *domain_create(struct ummu_unit *u)
{
	struct ummu_domain *dom = kzalloc(sizeof(*dom), GFP_KERNEL);
	int ret;

	if (!dom)
		return ERR_PTR(-ENOMEM);
	kref_init(&dom->ref);
	mutex_init(&dom->cfg_lock);
	mutex_init(&dom->bind_lock);
	INIT_LIST_HEAD(&dom->entities);
	xa_init_flags(&dom->tids, XA_FLAGS_ALLOC);
	ida_init(&dom->asids);
	dom->caps = u->caps;

	ret = domain_tid_range(dom, u->dev);
	if (ret)
		goto fail;
	dom->fault_wq = alloc_workqueue("ummu_fault", WQ_UNBOUND, 0);
	ret = dom->fault_wq ? ummu_cfg_alloc(dom) : -ENOMEM;
	if (ret)
		goto fail;
	return dom;
fail:
	ummu_domain_put(dom);
	return ERR_PTR(ret);
}

/*
 * Find or make the domain for a unit that is about to start.  The unit gets
 * commands of others only after ummu_domain_publish().
 */
struct ummu_domain *ummu_domain_attach(struct ummu_unit *u)
{
	struct ummu_domain *dom;
	unsigned int slot;

	mutex_lock(&domain_mutex);
	dom = current_domain;
	if (!dom) {
		dom = domain_create(u);
		if (IS_ERR(dom))
			goto out;
		current_domain = dom;
	} else if (!ummu_caps_equal(&dom->caps, &u->caps)) {
		dev_err(u->dev, "capabilities differ from the first UMMU's\n");
		dom = ERR_PTR(-EINVAL);
		goto out;
	} else {
		kref_get(&dom->ref);
	}
	for (slot = 0; slot < UMMU_MAX_UNITS; slot++)
		if (!rcu_access_pointer(dom->units[slot]))
			break;
	if (slot == UMMU_MAX_UNITS) {
		dev_err(u->dev, "more than %u UMMUs\n", UMMU_MAX_UNITS);
		ummu_domain_put(dom);
		dom = ERR_PTR(-ENOSPC);
		goto out;
	}
	u->dom = dom;
	u->slot = slot;
	u->id = ++next_unit_id;
	dom->unit_count++;
out:
	mutex_unlock(&domain_mutex);
	return dom;
}

void ummu_domain_publish(struct ummu_unit *u)
{
	rcu_assign_pointer(u->dom->units[u->slot], u);
}

/* After this nobody sends to the unit; the domain dies with its last unit */
void ummu_domain_detach(struct ummu_unit *u)
{
	struct ummu_domain *dom = u->dom;

	mutex_lock(&domain_mutex);
	RCU_INIT_POINTER(dom->units[u->slot], NULL);
	if (!--dom->unit_count) {
		WRITE_ONCE(dom->dead, true);
		current_domain = NULL;
	}
	mutex_unlock(&domain_mutex);

	synchronize_srcu(&ummu_srcu);
}
