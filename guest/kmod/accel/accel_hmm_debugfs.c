// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /sys/kernel/debug/ummu_accel/<device>/hmm: the pool and every mirror, one
 * "name value" per line.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "accel_hmm.h"

const char * const accel_hmm_counter_names[HMM_COUNTERS] = {
	"faults_read", "faults_write", "faults_failed", "faults_denied", "cpu_faults", "retries",
	"invalidations", "pages_mapped", "blocks_mapped", "pages_to_device", "pages_to_system",
	"pages_zeroed", "cow_copied", "cow_migrated", "exclusive", "exclusive_revoked",
	"pingpong_held", "evictions", "ns_collect", "ns_copy", "ns_map", "ns_invalidate",
};

static struct dentry *root;

static int hmm_show(struct seq_file *s, void *unused)
{
	struct accel_dev *dev = s->private;
	struct accel_devmem *dm = dev->devmem;
	struct accel_hmm *h;
	unsigned int i;

	if (dm) {
		spin_lock(&dm->lock);
		seq_printf(s, "vram_pages %lu\nvram_free %lu\nevicted %llu\ndefrag_moved %llu\n",
			   dm->nblocks * VRAM_BLOCK_PAGES, dm->free_pages, dm->evicted,
			   dm->defrag_moved);
		seq_printf(s, "defrag_blocks %llu\ncopied_bytes %llu\n", dm->defrag_blocks,
			   dev->dma->bytes);
		spin_unlock(&dm->lock);
	}
	spin_lock(&dev->hmms_lock);
	list_for_each_entry(h, &dev->hmms, node) {
		seq_printf(s, "mirror %#x\npid %d\n", h->tid, h->pid);
		for (i = 0; i < HMM_COUNTERS; i++)
			seq_printf(s, "%s %lld\n", accel_hmm_counter_names[i],
				   atomic64_read(&h->n[i]));
	}
	spin_unlock(&dev->hmms_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(hmm);

void accel_hmm_debugfs_add(struct accel_dev *dev)
{
	dev->debugfs = debugfs_create_dir(dev->name, root);
	debugfs_create_file("hmm", 0400, dev->debugfs, dev, &hmm_fops);
}

void accel_hmm_debugfs_del(struct accel_dev *dev)
{
	debugfs_remove_recursive(dev->debugfs);
	dev->debugfs = NULL;
}

void accel_hmm_debugfs_init(void)
{
	root = debugfs_create_dir("ummu_accel", NULL);
}

void accel_hmm_debugfs_exit(void)
{
	debugfs_remove_recursive(root);
}
