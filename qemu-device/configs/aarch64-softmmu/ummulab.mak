# SPDX-License-Identifier: GPL-2.0-or-later
#
# The only machine is "virt"; it brings GICv3 with ITS, PL011 and the generic
# PCIe host by itself.
CONFIG_ARM_VIRT=y
CONFIG_PCIE_PORT=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VIRTIO_9P=y
CONFIG_PCI_TESTDEV=y
CONFIG_EDU=y
CONFIG_UMMU=y
