// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Each TID is a platform device ummu_vdev.N below ummu_tid_root, as the
 * published driver has it.
 */
#include <linux/device.h>
#include <linux/err.h>
#include <linux/platform_device.h>

#include "ummu.h"

struct vdev_data {
	u32 tid;
	u32 mode;
};

static struct platform_device *tid_root;

static ssize_t tid_val_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct vdev_data *d = dev_get_platdata(dev);

	return sysfs_emit(buf, "%u\n", d->tid);
}
static DEVICE_ATTR_RO(tid_val);

static ssize_t tid_mode_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct vdev_data *d = dev_get_platdata(dev);

	return sysfs_emit(buf, "%u\n", d->mode);
}
static DEVICE_ATTR_RO(tid_mode);

static struct attribute *vdev_attrs[] = {
	&dev_attr_tid_val.attr,
	&dev_attr_tid_mode.attr,
	NULL
};

static const struct attribute_group vdev_group = {
	.name = "ummu-vdev-attr",
	.attrs = vdev_attrs,
};

static const struct attribute_group *vdev_groups[] = {
	&vdev_group,
	NULL
};

/* Information only: a TID works without its device, NULL is no failure */
struct platform_device *ummu_vdev_add(u32 tid, u32 mode)
{
	struct vdev_data data = { .tid = tid, .mode = mode };
	struct platform_device *pdev;

	pdev = platform_device_alloc("ummu_vdev", PLATFORM_DEVID_AUTO);
	if (!pdev)
		return NULL;
	pdev->dev.parent = &tid_root->dev;
	pdev->dev.groups = vdev_groups;
	if (platform_device_add_data(pdev, &data, sizeof(data)) || platform_device_add(pdev)) {
		platform_device_put(pdev);
		return NULL;
	}
	return pdev;
}

void ummu_vdev_del(struct platform_device *pdev)
{
	platform_device_unregister(pdev);
}

int ummu_sysfs_init(void)
{
	tid_root = platform_device_register_simple("ummu_tid_root", PLATFORM_DEVID_NONE, NULL, 0);
	return PTR_ERR_OR_ZERO(tid_root);
}

void ummu_sysfs_exit(void)
{
	platform_device_unregister(tid_root);
}
