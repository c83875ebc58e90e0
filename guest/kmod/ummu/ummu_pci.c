// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PCI binding: where the registers and interrupts are, and a vendor-specific
 * capability that says what a UMMU's firmware node would say.
 */
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>

#include "ummu.h"

#define UMMU_PCI_VENDOR		0x1234
#define UMMU_PCI_DEVICE		0x554d
#define UMMU_BAR_REGS		0
#define UMMU_VECTORS		2
#define VSEC_TYPE		0x55
#define VSEC_LEN		0x18
#define VSEC_OFF_LEN		2
#define VSEC_OFF_TYPE		3
#define VSEC_OFF_MIN_TID	4
#define VSEC_OFF_MAX_TID	8
#define VSEC_OFF_VENDOR		12
#define VSEC_OFF_USER_QUEUES	16

static int read_firmware_cap(struct pci_dev *pdev, struct ummu_unit *u)
{
	u8 pos, type, len;

	for (pos = pci_find_capability(pdev, PCI_CAP_ID_VNDR); pos;
	     pos = pci_find_next_capability(pdev, pos, PCI_CAP_ID_VNDR)) {
		pci_read_config_byte(pdev, pos + VSEC_OFF_LEN, &len);
		pci_read_config_byte(pdev, pos + VSEC_OFF_TYPE, &type);
		if (type == VSEC_TYPE && len >= VSEC_LEN)
			break;
	}
	if (!pos) {
		dev_err(&pdev->dev, "no capability with the firmware description\n");
		return -ENODEV;
	}
	pci_read_config_dword(pdev, pos + VSEC_OFF_MIN_TID, &u->caps.min_tid);
	pci_read_config_dword(pdev, pos + VSEC_OFF_MAX_TID, &u->caps.max_tid);
	pci_read_config_word(pdev, pos + VSEC_OFF_VENDOR, &u->caps.vendor_id);
	pci_read_config_dword(pdev, pos + VSEC_OFF_USER_QUEUES, &u->ctrl_count);
	return 0;
}

static int map_registers(struct pci_dev *pdev, struct ummu_unit *u)
{
	resource_size_t size = pci_resource_len(pdev, UMMU_BAR_REGS);
	u64 room;
	int ret;

	/* smaller than the registers the driver uses directly */
	if (size < UCMDQ_CTRL_PAGE_BANK_BASE) {
		dev_err(&pdev->dev, "register BAR has only %pa bytes\n", &size);
		return -ENODEV;
	}
	ret = pcim_iomap_regions(pdev, BIT(UMMU_BAR_REGS), "ummu");
	if (ret)
		return ret;
	u->regs = pcim_iomap_table(pdev)[UMMU_BAR_REGS];

	/* a description that promises more pages than the BAR has is cut */
	room = (size - UCMDQ_CTRL_PAGE_BANK_BASE) >> PAGE_SHIFT;
	u->ctrl_count = min_t(u64, u->ctrl_count, min_t(u64, room, SZ_64K));
	u->ctrl_pages = u->ctrl_count ? u->regs + UCMDQ_CTRL_PAGE_BANK_BASE : NULL;
	u->ctrl_phys = pci_resource_start(pdev, UMMU_BAR_REGS) + UCMDQ_CTRL_PAGE_BANK_BASE;
	return 0;
}

/* Without interrupts there is no event handling, all else works */
static void request_irqs(struct pci_dev *pdev, struct ummu_unit *u)
{
	int n = pci_alloc_irq_vectors(pdev, UMMU_VECTORS, UMMU_VECTORS, PCI_IRQ_MSIX);
	int evtq, glb;

	if (n < UMMU_VECTORS) {
		dev_warn(&pdev->dev, "no interrupts (%d): events are not handled\n", n);
		u->caps.stall = false;
		return;
	}
	evtq = pci_irq_vector(pdev, 0);
	glb = pci_irq_vector(pdev, 1);
	if (request_threaded_irq(evtq, NULL, ummu_evtq_irq, IRQF_ONESHOT, "ummu-evtq", u)) {
		dev_warn(&pdev->dev, "event interrupt not available\n");
		u->caps.stall = false;
		return;
	}
	u->irq_evtq = evtq;
	if (request_threaded_irq(glb, NULL, ummu_glb_irq, IRQF_ONESHOT, "ummu-glb", u))
		dev_warn(&pdev->dev, "error interrupt not available\n");
	else
		u->irq_glb = glb;
}

static void free_irqs(struct pci_dev *pdev, struct ummu_unit *u)
{
	if (u->irq_evtq > 0)
		free_irq(u->irq_evtq, u);
	if (u->irq_glb > 0)
		free_irq(u->irq_glb, u);
	pci_free_irq_vectors(pdev);
}

static int pci_setup(struct pci_dev *pdev, struct ummu_unit *u)
{
	int ret;

	/* Tables hold physical addresses of process memory */
	if (device_iommu_mapped(&pdev->dev)) {
		dev_err(&pdev->dev, "behind another IOMMU, which is not supported\n");
		return -EOPNOTSUPP;
	}
	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(48));
	if (ret)
		return ret;
	ret = read_firmware_cap(pdev, u);
	if (!ret)
		ret = map_registers(pdev, u);
	if (!ret)
		ret = ummu_caps_read(u);
	return ret;
}

static int ummu_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct ummu_unit *u = devm_kzalloc(&pdev->dev, sizeof(*u), GFP_KERNEL);
	int ret;

	if (!u)
		return -ENOMEM;
	u->dev = &pdev->dev;
	ret = pci_setup(pdev, u);
	if (ret)
		return ret;
	pci_set_drvdata(pdev, u);
	pci_set_master(pdev);
	ret = ummu_unit_prepare(u);
	if (ret)
		return ret;
	request_irqs(pdev, u);
	ret = ummu_unit_start(u);
	if (ret) {
		dev_err(&pdev->dev, "not started: %d\n", ret);
		free_irqs(pdev, u);
		pci_clear_master(pdev);
	}
	return ret;
}

static void ummu_pci_remove(struct pci_dev *pdev)
{
	struct ummu_unit *u = pci_get_drvdata(pdev);
	struct ummu_domain *dom = u->dom;

	ummu_unit_stop(u);
	/* the event thread uses the domain */
	free_irqs(pdev, u);
	pci_clear_master(pdev);
	ummu_domain_put(dom);
}

static void ummu_pci_shutdown(struct pci_dev *pdev)
{
	ummu_unit_shutdown(pci_get_drvdata(pdev));
	pci_clear_master(pdev);
}

static const struct pci_device_id ummu_pci_ids[] = {
	{ PCI_DEVICE(UMMU_PCI_VENDOR, UMMU_PCI_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ummu_pci_ids);

static struct pci_driver ummu_pci_driver = {
	.name = "ummu",
	.id_table = ummu_pci_ids,
	.probe = ummu_pci_probe,
	.remove = ummu_pci_remove,
	.shutdown = ummu_pci_shutdown,
};

int ummu_pci_register(void)
{
	return pci_register_driver(&ummu_pci_driver);
}

void ummu_pci_unregister(void)
{
	pci_unregister_driver(&ummu_pci_driver);
}
