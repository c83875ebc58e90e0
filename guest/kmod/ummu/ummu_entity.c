// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Entities: which DstEIDs reach the local OS's contexts, and the key-value
 * table that the device looks them up in.
 *
 * Software picks a free slot by looking at the valid bits in memory; the device
 * writes the slots when it executes CREATE and DELETE.
 */
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "ummu.h"

#define KV_SLOTS	(UMMU_KV_HASHES * UMMU_KV_BANKS)
#define KV_POLY		0x04c11db7u
#define KV_SEED		0xffffffffu

int ummu_kv_alloc(struct ummu_unit *u)
{
	/* One piece: the first generation needs the CAM right behind the table */
	u->kv = dmam_alloc_coherent(u->dev, (KV_SLOTS + UMMU_CAM_SLOTS) * KV_ENTRY_SIZE,
				    &u->kv_dma, GFP_KERNEL);
	return u->kv ? 0 : -ENOMEM;
}

void ummu_kv_program(struct ummu_unit *u)
{
	memset(u->kv, 0, (KV_SLOTS + UMMU_CAM_SLOTS) * KV_ENTRY_SIZE);
	ummu_wr64(u, UMMU_DSTEID_KV_TABLE_BASE, u->kv_dma & UMMU_DSTEID_KV_TABLE_BASE_ADDR);
	ummu_wr(u, UMMU_DSTEID_KV_TABLE_BASE_CFG,
		FIELD_PREP(UMMU_DSTEID_KV_TABLE_BASE_CFG_BANK_NUM, UMMU_KV_BANKS) |
		FIELD_PREP(UMMU_DSTEID_KV_TABLE_BASE_CFG_DEPTH, UMMU_KV_HASHES));
	ummu_wr(u, UMMU_DSTEID_KV_TABLE_HASH_CFG0,
		FIELD_PREP(UMMU_DSTEID_KV_TABLE_HASH_CFG0_HASH_SEL, 1) |
		FIELD_PREP(UMMU_DSTEID_KV_TABLE_HASH_CFG0_HASH_WIDTH, 1));
	ummu_wr(u, UMMU_DSTEID_KV_TABLE_HASH_CFG1, KV_SEED);
	ummu_wr64(u, UMMU_DSTEID_CAM_TABLE_BASE,
		  (u->kv_dma + KV_SLOTS * KV_ENTRY_SIZE) & UMMU_DSTEID_CAM_TABLE_BASE_ADDR);
	ummu_wr(u, UMMU_DSTEID_CAM_TABLE_BASE_CFG,
		FIELD_PREP(UMMU_DSTEID_CAM_TABLE_BASE_CFG_DEPTH, UMMU_CAM_SLOTS));
}

/* CRC-32, most significant bit first, from the top byte of the EID downwards */
static u8 kv_hash(u64 lo, u64 hi)
{
	u32 crc = KV_SEED;
	int i, bit;

	for (i = 15; i >= 0; i--) {
		crc ^= (u32)((i >= 8 ? hi >> (i - 8) * 8 : lo >> i * 8) & 0xff) << 24;
		for (bit = 0; bit < 8; bit++)
			crc = crc << 1 ^ (crc & BIT(31) ? KV_POLY : 0);
	}
	return crc;
}

static bool kv_slot_used(struct ummu_unit *u, u32 slot)
{
	__le32 w = READ_ONCE(u->kv[slot * (KV_ENTRY_SIZE / sizeof(u32))]);

	return le32_to_cpu(w) & KV_ENTRY_W0_V;
}

static int kv_find_slot(struct ummu_unit *u, u64 lo, u64 hi)
{
	u32 first = kv_hash(lo, hi) * UMMU_KV_BANKS;
	u32 i;

	for (i = 0; i < UMMU_KV_BANKS; i++)
		if (!kv_slot_used(u, first + i))
			return first + i;
	for (i = 0; i < UMMU_CAM_SLOTS; i++)
		if (!kv_slot_used(u, KV_SLOTS + i))
			return KV_SLOTS + i;
	return -ENOSPC;
}

static int kv_create(struct ummu_unit *u, struct ummu_entity *e)
{
	struct ummu_cmd cmd = ummu_cmd_op(UMMU_CMD_CREATE_KVTBL);
	int slot = kv_find_slot(u, e->eid_lo, e->eid_hi);

	if (slot < 0)
		return slot;
	e->kv_index[u->slot] = slot;
	cmd.w[0] |= FIELD_PREP(CMD_CREATE_KVTBL_W0_TECTE_TAG, UMMU_LOCAL_TAG) |
		    FIELD_PREP(CMD_CREATE_KVTBL_W0_KV_INDEX, slot);
	cmd.w[1] = virt_to_phys(u->dom->tect) & CMD_CREATE_KVTBL_W1_TECT_BASE;
	cmd.w[2] = e->eid_lo;
	cmd.w[3] = e->eid_hi;
	return ummu_unit_issue(u, &cmd, 1, true);
}

static int kv_delete(struct ummu_unit *u, struct ummu_entity *e)
{
	struct ummu_cmd cmd = ummu_cmd_op(UMMU_CMD_DELETE_KVTBL);

	cmd.w[0] |= FIELD_PREP(CMD_DELETE_KVTBL_W0_TECTE_TAG, UMMU_LOCAL_TAG) |
		    FIELD_PREP(CMD_DELETE_KVTBL_W0_KV_INDEX, e->kv_index[u->slot]);
	cmd.w[2] = e->eid_lo;
	cmd.w[3] = e->eid_hi;
	return ummu_unit_issue(u, &cmd, 1, true);
}

static int kv_all(struct ummu_domain *dom, struct ummu_entity *e,
		  int (*fn)(struct ummu_unit *u, struct ummu_entity *e))
{
	int i, idx, ret = 0;

	idx = srcu_read_lock(&ummu_srcu);
	for (i = 0; i < UMMU_MAX_UNITS; i++) {
		struct ummu_unit *u = srcu_dereference(dom->units[i], &ummu_srcu);
		int err = u ? fn(u, e) : 0;

		if (err && !ret)
			ret = err;
	}
	srcu_read_unlock(&ummu_srcu, idx);
	return ret;
}

/* A unit that arrives later learns the entities that exist */
void ummu_entities_replay(struct ummu_unit *u)
{
	struct ummu_domain *dom = u->dom;
	struct ummu_entity *e;

	mutex_lock(&dom->bind_lock);
	list_for_each_entry(e, &dom->entities, node)
		if (kv_create(u, e))
			dev_err(u->dev, "entity %#llx:%#llx not registered\n", e->eid_hi,
				e->eid_lo);
	mutex_unlock(&dom->bind_lock);
}

static struct ummu_entity *entity_find(struct ummu_domain *dom, u64 lo, u64 hi)
{
	struct ummu_entity *e;

	list_for_each_entry(e, &dom->entities, node)
		if (e->eid_lo == lo && e->eid_hi == hi)
			return e;
	return NULL;
}

/* The consumer must be unbound before any UMMU that serves it goes away */
static int entity_link(struct ummu_domain *dom, struct device *consumer)
{
	int i, idx, ret = 0;

	idx = srcu_read_lock(&ummu_srcu);
	for (i = 0; i < UMMU_MAX_UNITS && !ret; i++) {
		struct ummu_unit *u = srcu_dereference(dom->units[i], &ummu_srcu);

		if (u && !device_link_add(consumer, u->dev, DL_FLAG_AUTOREMOVE_CONSUMER))
			ret = -ENODEV;
	}
	srcu_read_unlock(&ummu_srcu, idx);
	return ret;
}

static int entity_insert(struct ummu_domain *dom, struct ummu_entity *e)
{
	bool first = list_empty(&dom->entities);
	int ret = 0;

	if (entity_find(dom, e->eid_lo, e->eid_hi))
		return -EEXIST;
	mutex_lock(&dom->cfg_lock);
	if (first)
		ret = ummu_tecte_local_on(dom);
	mutex_unlock(&dom->cfg_lock);
	if (!ret)
		ret = kv_all(dom, e, kv_create);
	if (ret) {
		kv_all(dom, e, kv_delete);
		mutex_lock(&dom->cfg_lock);
		if (first)
			ummu_tecte_local_off(dom);
		mutex_unlock(&dom->cfg_lock);
		return ret;
	}
	list_add_tail(&e->node, &dom->entities);
	return 0;
}

/**
 * ummu_entity_add() - let a device behind the UMMU use the local contexts
 * @consumer: the device; it is unbound before the UMMU is
 * @eid_lo: bits 63:0 of its EID
 * @eid_hi: bits 127:64
 *
 * Return: 0, -EPROBE_DEFER while there is no UMMU, -EEXIST for an EID in use.
 */
int ummu_entity_add(struct device *consumer, u64 eid_lo, u64 eid_hi)
{
	struct ummu_domain *dom = ummu_domain_get();
	struct ummu_entity *e;
	int ret;

	if (!dom)
		return -EPROBE_DEFER;
	e = kzalloc(sizeof(*e), GFP_KERNEL);
	if (!e) {
		ummu_domain_put(dom);
		return -ENOMEM;
	}
	e->consumer = consumer;
	e->eid_lo = eid_lo;
	e->eid_hi = eid_hi;

	ret = entity_link(dom, consumer);
	if (!ret) {
		mutex_lock(&dom->bind_lock);
		ret = entity_insert(dom, e);
		mutex_unlock(&dom->bind_lock);
	}
	if (ret)
		kfree(e);
	ummu_domain_put(dom);
	return ret;
}
EXPORT_SYMBOL_GPL(ummu_entity_add);

void ummu_entity_del(struct device *consumer, u64 eid_lo, u64 eid_hi)
{
	struct ummu_domain *dom = ummu_domain_get();
	struct ummu_entity *e;

	if (!dom)
		return;
	mutex_lock(&dom->bind_lock);
	e = entity_find(dom, eid_lo, eid_hi);
	if (e && e->consumer == consumer) {
		list_del(&e->node);
		kv_all(dom, e, kv_delete);
		if (list_empty(&dom->entities)) {
			mutex_lock(&dom->cfg_lock);
			ummu_tecte_local_off(dom);
			mutex_unlock(&dom->cfg_lock);
		}
		kfree(e);
	}
	mutex_unlock(&dom->bind_lock);
	ummu_domain_put(dom);
}
EXPORT_SYMBOL_GPL(ummu_entity_del);
