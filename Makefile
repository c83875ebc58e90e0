# SPDX-License-Identifier: GPL-2.0-or-later
#
# Thin: each target calls one entry point of scripts/ummulab, which installs
# what is missing.  GUEST_ARCH=aarch64|x86_64 is passed on to everything.

U := scripts/ummulab
GUEST_ARCH ?= aarch64
export GUEST_ARCH
T ?=
# One worker per core; a file stays with one worker, which starts its QEMU once.  T=-n0 turns it off.
SPREAD := -n auto --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help run-vm test test-unit test-device test-guest test-device-asan soak fuzz-device \
	qemu qemu-asan kernel image images packages lint format clean

help: ## This table
	@printf '%-17s%s\n' target 'what it does' '------' '------------'
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)$$/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r name text; do printf '%-17s%s\n' "$$name" "$$text"; done
	@printf '\n%s\n' 'GUEST_ARCH=aarch64 (default) or x86_64; T="-k name" passes options to pytest.'

run-vm: ## Build what is missing, boot a VM, give its prompt
	@$(U) run

test: ## Run all tests
	@$(U) build all
	@$(U) pytest $(SPREAD) tests $(T)

test-unit: ## Tests of the Python parts, and the linters
	@$(U) pytest $(SPREAD) tests/unit $(T)

test-device: ## Tests of the device models, without a guest
	@$(U) build qemu
	@$(U) pytest $(SPREAD) tests/device $(T)

test-guest: ## Tests in a booted guest
	@$(U) build all
	@$(U) pytest $(SPREAD) tests/guest $(T)

test-device-asan: ## Device tests under the address and undefined-behaviour sanitizers
	@UMMULAB_QEMU_ASAN=1 $(U) pytest $(SPREAD) tests/device $(T)

soak: ## The device tests in full length
	@UMMULAB_SOAK=1 $(U) pytest $(SPREAD) tests/device $(T)

fuzz-device: ## Fuzz both devices for MINUTES=10
	@$(U) fuzz device --minutes $(or $(MINUTES),10)

qemu: ## Build QEMU with the device models
	@$(U) build qemu

qemu-asan: ## The same with address and undefined-behaviour sanitizers
	@$(U) build qemu --asan

kernel: ## Build the guest kernel
	@$(U) build kernel

image: ## Build the guest's modules, libraries, tools and root file system
	@$(U) build image

images: ## Pack all of it for UMMULAB_IMAGES=DIR (into build/images)
	@$(U) images make

packages: ## libummu as Debian packages and RPMs (into build/packages)
	@$(U) packages

lint: ## Run the linters of all languages
	@$(U) ruff check harness tests scripts
	@$(U) ruff format --check harness tests scripts
	@$(U) mypy
	@$(U) pytest tests/unit -k lint

format: ## Bring Python code into the common format
	@$(U) ruff format harness tests scripts

clean: ## Remove everything built (downloads stay)
	@$(U) images gc --all
	@rm -rf build
