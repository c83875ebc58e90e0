// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ummu_accel.ko: the laboratory's accelerator as a PCI function.
 */
#include <linux/bitfield.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "accel_hmm.h"

#define ACCEL_PCI_VENDOR	0x1234
#define ACCEL_PCI_DEVICE	0x5541
#define ACCEL_BAR_REGS		0
#define ACCEL_MAGIC		0x43434155
#define ACCEL_MAJOR		1

static DEFINE_IDA(accel_instances);

static void accel_dev_release(struct kref *ref)
{
	struct accel_dev *dev = container_of(ref, struct accel_dev, ref);

	ida_free(&accel_instances, dev->instance);
	ida_destroy(&dev->qids);
	mutex_destroy(&dev->files_lock);
	kfree(dev);
}

void accel_dev_put(struct accel_dev *dev)
{
	kref_put(&dev->ref, accel_dev_release);
}

static irqreturn_t accel_irq(int irq, void *data)
{
	struct accel_vector *v = data;
	struct accel_dev *dev = v->dev;

	/* a message of a queue that has ended finds nobody */
	spin_lock(&dev->irq_lock);
	if (dev->slots[v->qid])
		accel_queue_notify(dev->slots[v->qid]);
	spin_unlock(&dev->irq_lock);
	return IRQ_HANDLED;
}

static void free_irqs(struct accel_dev *dev, unsigned int n)
{
	while (n--)
		free_irq(dev->vectors[n].irq, &dev->vectors[n]);
	pci_free_irq_vectors(dev->pdev);
}

static int request_irqs(struct accel_dev *dev)
{
	unsigned int i;
	int ret;

	ret = pci_alloc_irq_vectors(dev->pdev, dev->queues, dev->queues, PCI_IRQ_MSIX);
	if (ret < 0)
		return ret;
	for (i = 0; i < dev->queues; i++) {
		struct accel_vector *v = &dev->vectors[i];

		v->dev = dev;
		v->qid = i;
		v->irq = pci_irq_vector(dev->pdev, i);
		ret = request_irq(v->irq, accel_irq, 0, dev->name, v);
		if (ret) {
			free_irqs(dev, i);
			return ret;
		}
	}
	return 0;
}

static int read_identity(struct accel_dev *dev)
{
	u32 id = readl(dev->regs + ACCEL_ID);
	u32 version = readl(dev->regs + ACCEL_VERSION);
	u32 cap = readl(dev->regs + ACCEL_CAP0);
	resource_size_t size = pci_resource_len(dev->pdev, ACCEL_BAR_REGS);

	if (id != ACCEL_MAGIC || FIELD_GET(ACCEL_VERSION_MAJOR, version) != ACCEL_MAJOR) {
		dev_err(&dev->pdev->dev, "not an accelerator this driver knows (id %#x, version %#x)\n",
			id, version);
		return -ENODEV;
	}
	dev->queues = min_t(u32, FIELD_GET(ACCEL_CAP0_QUEUES, cap), ACCEL_MAX_QUEUES);
	dev->max_log2 = min_t(u32, FIELD_GET(ACCEL_CAP0_MAX_LOG2SIZE, cap), 31);
	dev->max_tids = FIELD_GET(ACCEL_CAP0_MAX_TIDS, cap);
	dev->eid_lo = readq(dev->regs + ACCEL_EID_LO);
	dev->eid_hi = readq(dev->regs + ACCEL_EID_HI);
	if (!dev->queues || size < ACCEL_DOORBELL_BANK_BASE +
				   dev->queues * ACCEL_DOORBELL_BANK_STRIDE) {
		dev_err(&dev->pdev->dev, "%u queues do not fit the register BAR of %pa bytes\n",
			dev->queues, &size);
		return -ENODEV;
	}
	return 0;
}

static struct accel_dev *accel_alloc(struct pci_dev *pdev)
{
	struct accel_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	dev->instance = ida_alloc(&accel_instances, GFP_KERNEL);
	if (dev->instance < 0) {
		kfree(dev);
		return NULL;
	}
	kref_init(&dev->ref);
	dev->pdev = pdev;
	ida_init(&dev->qids);
	mutex_init(&dev->files_lock);
	INIT_LIST_HEAD(&dev->files);
	spin_lock_init(&dev->hw_lock);
	spin_lock_init(&dev->irq_lock);
	spin_lock_init(&dev->hmms_lock);
	INIT_LIST_HEAD(&dev->hmms);
	snprintf(dev->name, sizeof(dev->name), "ummu_accel%d", dev->instance);
	dev->misc.minor = MISC_DYNAMIC_MINOR;
	dev->misc.name = dev->name;
	dev->misc.fops = &accel_fops;
	dev->misc.mode = 0666;
	dev->misc.parent = &pdev->dev;
	return dev;
}

static int accel_setup(struct pci_dev *pdev, struct accel_dev *dev)
{
	int ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = pcim_iomap_regions(pdev, BIT(ACCEL_BAR_REGS), "ummu_accel");
	if (ret)
		return ret;
	dev->regs = pcim_iomap_table(pdev)[ACCEL_BAR_REGS];
	dev->doorbells = pci_resource_start(pdev, ACCEL_BAR_REGS) + ACCEL_DOORBELL_BANK_BASE;
	ret = read_identity(dev);
	if (ret)
		return ret;
	/* everything a kernel before this one left running ends here */
	writel(0, dev->regs + ACCEL_CTRL);
	pci_set_master(pdev);
	return 0;
}

static int accel_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct accel_dev *dev = accel_alloc(pdev);
	int ret;

	if (!dev)
		return -ENOMEM;
	ret = accel_setup(pdev, dev);
	if (ret)
		goto fail;
	ret = ummu_entity_add(&pdev->dev, dev->eid_lo, dev->eid_hi);
	if (ret) {
		dev_err_probe(&pdev->dev, ret, "EID %#llx:%#llx not registered with the UMMU\n",
			      dev->eid_hi, dev->eid_lo);
		goto fail;
	}
	ret = request_irqs(dev);
	if (ret)
		goto fail_entity;
	writel(ACCEL_CTRL_EN, dev->regs + ACCEL_CTRL);
	accel_hmm_init(dev);
	ret = misc_register(&dev->misc);
	if (ret)
		goto fail_irqs;
	pci_set_drvdata(pdev, dev);
	dev_info(&pdev->dev, "%s: %u queues, rings up to 2^%u, EID %#llx:%#llx\n", dev->name,
		 dev->queues, dev->max_log2, dev->eid_hi, dev->eid_lo);
	return 0;

fail_irqs:
	accel_hmm_exit(dev);
	writel(0, dev->regs + ACCEL_CTRL);
	free_irqs(dev, dev->queues);
fail_entity:
	ummu_entity_del(&pdev->dev, dev->eid_lo, dev->eid_hi);
fail:
	accel_dev_put(dev);
	return ret;
}

/* Stop the device, then take it away from everybody who has it open */
static void accel_stop(struct accel_dev *dev)
{
	spin_lock(&dev->hw_lock);
	writel(0, dev->regs + ACCEL_CTRL);
	dev->gone = true;
	spin_unlock(&dev->hw_lock);
}

static void accel_remove(struct pci_dev *pdev)
{
	struct accel_dev *dev = pci_get_drvdata(pdev);

	misc_deregister(&dev->misc);
	accel_hmm_exit(dev);
	accel_stop(dev);
	accel_files_shutdown(dev);
	free_irqs(dev, dev->queues);
	ummu_entity_del(&pdev->dev, dev->eid_lo, dev->eid_hi);
	pci_clear_master(pdev);
	accel_dev_put(dev);
}

static void accel_shutdown(struct pci_dev *pdev)
{
	struct accel_dev *dev = pci_get_drvdata(pdev);

	accel_stop(dev);
	pci_clear_master(pdev);
}

static const struct pci_device_id accel_ids[] = {
	{ PCI_DEVICE(ACCEL_PCI_VENDOR, ACCEL_PCI_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, accel_ids);

static struct pci_driver accel_driver = {
	.name = "ummu_accel",
	.id_table = accel_ids,
	.probe = accel_probe,
	.remove = accel_remove,
	.shutdown = accel_shutdown,
};

static int __init accel_init(void)
{
	int ret;

	accel_hmm_debugfs_init();
	ret = pci_register_driver(&accel_driver);
	if (ret)
		accel_hmm_debugfs_exit();
	return ret;
}
module_init(accel_init);

static void __exit accel_exit(void)
{
	pci_unregister_driver(&accel_driver);
	accel_hmm_debugfs_exit();
}
module_exit(accel_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("ummulab");
MODULE_DESCRIPTION("ummulab accelerator behind a UMMU");
