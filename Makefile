# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
#
# make demo       the papers' VM fairness test, coupled beside uncoupled
# make weights    VM weights, and three VMs
# make outside    the coupled aggregate beside an uncoupled outside flow
# make dynamics   limited, alternating, short, distant and joining flows
# make live       weights and priorities changed, daemon killed, while flows run
# make figure     FIG=vm-fairness: one figure, SEEDS=3 runs of each case in place of 10
# make figures    all figures; QUICK=1 in a short form, FROM_DATA=1 from earlier runs
# make image      the guest of the experiments on QEMU
# make demo-qemu  the fairness test on libvirt's QEMU domains, beside virtual time;
#                 QUICK=1 without the uncoupled run and the change of weights
# make variants-qemu  the same with TSO in the guests, and with two processors
# make test-libvirt  cccctl and the hook against a real libvirtd; QUICK=1 without what
#                 takes minutes, TESTS='f1 or migrates' for some
# make coverage   line coverage of the host crates
# make bench-isolation  what one VM waits while another attacks the daemon; ATTACK=T1 for some
# make kernels    the guest module against Debian's kernels, and run on 6.1
# make fuzz       TARGET=table|doorbell|config|control TIME=60
# make qemu       QEMU with the device of qemu-patches/
# make test-qemu  that device with real guests; TESTS='boots migrations' for some,
#                 QUICK=1 for a few
# make test-sanitized  the guest module on a kernel with KASAN, lockdep and the like;
#                 QUICK=1 for a short form, TESTS='f5_switches_while_read' for some
# make test       every test that needs no QEMU, one line of counts at the end
# make speed      how fast the laboratory is on this machine
# make build      everything that is built, nothing run
#
# All set-up is done on the way: packages, the guests' kernel, our builds.
# What takes long is kept in $(shell scripts/cache) and found again.

CACHE := $(shell scripts/cache)
export CARGO_TARGET_DIR := $(CACHE)/target
CARGO := cargo --quiet
HOST := --manifest-path host/Cargo.toml
LAB := --manifest-path experiments/lab/Cargo.toml

# The case of `make demo`; empty: all flow counts of the papers.
FLOWS ?=
WEIGHTS ?=
SEED ?=
export FLOWS WEIGHTS SEED

.PHONY: build packages kernel host lab module demo weights outside dynamics live figure figures image demo-qemu variants-qemu test-libvirt test speed coverage bench-isolation kernels fuzz qemu test-qemu test-sanitized clean

build: host lab module

packages:
	@scripts/packages

kernel: packages
	@experiments/kernel/build >/dev/null

host: packages
	@echo "host: building" >&2
	@$(CARGO) build --release $(HOST)

lab: packages
	@echo "lab: building" >&2
	@$(CARGO) build --release $(LAB)

module: kernel
	@scripts/module >/dev/null

demo weights outside dynamics live: build
	@PYTHONPATH=experiments $$(scripts/venv) -m ccc_experiments $@ --out out/$@

FIG ?=
QUICK ?=
SEEDS ?=
FROM_DATA ?=
FIGURES = PYTHONPATH=experiments $$(scripts/venv) -m figures --out out/figures \
	$(if $(QUICK),--quick) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM_DATA),--from-data)

figure: build
	@$(if $(FIG),,echo "figure: which one? FIG=vm-fairness" >&2; exit 2;) $(FIGURES) $(FIG)

figures: build
	@$(FIGURES)

image: packages
	@scripts/packages mmdebstrap squashfs-tools cpio
	@experiments/qemu/image

LIBVIRT := libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-system libvirt-clients iproute2 openssh-client systemd

demo-qemu variants-qemu: build
	@scripts/packages mmdebstrap squashfs-tools cpio $(LIBVIRT)
	@experiments/qemu/run $@ out/$@ $(if $(QUICK),--quick)

test-libvirt: host
	@scripts/packages mmdebstrap squashfs-tools cpio iperf3 $(LIBVIRT)
	@libvirt/test $(if $(QUICK),-m 'not slow') $(if $(TESTS),-k '$(TESTS)')

test: build
	@scripts/test

speed: build
	@PYTHONPATH=experiments $$(scripts/venv) -m pytest -p no:cacheprovider -q -m speed experiments/tests

coverage: packages
	@scripts/coverage

bench-isolation: packages
	@$(CARGO) bench $(HOST) -p ccc-vhost --bench isolation

kernels: packages
	@guest/tests/compile-kernels
	@guest/tests/run-on-6.1

qemu: packages
	@scripts/qemu

test-qemu: host
	@scripts/packages cpio
	@qemu-patches/tests/run $(or $(TESTS),$(if $(QUICK),boots restarts))

test-sanitized: host
	@guest/tests/sanitized/run $(if $(QUICK),--quick --seconds 10) $(TESTS)

TARGET ?= doorbell
TIME ?= 60
fuzz: packages
	@scripts/fuzz $(TARGET) $(TIME)

clean:
	rm -rf out
