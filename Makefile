# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
#
# All set-up is done on the way: packages, the guests' kernel, our builds.
# What takes long is built by scripts/build, kept in $(shell scripts/cache) and found again.

CACHE := $(or $(shell scripts/cache),$(error there is no cache))
export CARGO_TARGET_DIR := $(CACHE)/target
CARGO := cargo --quiet
HOST := --manifest-path host/Cargo.toml
LAB := --manifest-path experiments/lab/Cargo.toml
LAW := --manifest-path experiments/law/Cargo.toml
PYTHON = PYTHONPATH=experiments $$(scripts/build venv)
LIBVIRT := apparmor libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-system libvirt-clients iproute2 man-db openssh-client prometheus systemd checkpolicy semodule-utils

QUICK ?=
TESTS ?=
FLOWS ?=
WEIGHTS ?=
SEED ?=
SEEDS ?=
export FLOWS WEIGHTS SEED SEEDS

.DEFAULT_GOAL := build
.PHONY: help
help: ## this list
	@awk -F '## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z].*:.*## / {split($$1, name, ":"); printf "  %-16s %s\n", name[1], $$2}' $(MAKEFILE_LIST)

##@ Builds
.PHONY: build install install-bpf packages ansible-collection deps kernel host lab module image qemu
build: host lab module ## everything that the laboratory needs, nothing run
deps: ## Debian packages that builds need, if they are missing
	@scripts/build deps
kernel: deps ## the laboratory's kernel
	@scripts/build kernel >/dev/null
module: deps ## the guest module for it
	@scripts/build module >/dev/null
# What is installed says of which commit it is.
install install-bpf: export CCC_VERSION ?= $(shell scripts/version)
install: host ## DESTDIR= PREFIX=/usr QEMU_GROUP=: the daemon, cccctl, units, hook, manuals, monitoring
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' QEMU_GROUP='$(QEMU_GROUP)' scripts/install
install-bpf: bpf ## DESTDIR= PREFIX=/usr: ccc-bpf, its units and manual
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' guest/bpf-ccc/install
ansible-collection: ## the Ansible collection as a tarball, in out/ansible
	@mkdir -p out/ansible
	@$$(scripts/build ansible)/ansible-galaxy collection build --force --output-path out/ansible ansible
packages: bpf ## Debian packages of all that a host and a guest need, in out/packages
	@scripts/packages
host: deps ## the daemon and cccctl
	@echo "host: building" >&2
	@$(CARGO) build --release $(HOST)
lab: deps ## the virtual-time laboratory
	@echo "lab: building" >&2
	@$(CARGO) build --release $(LAB)
qemu: deps ## QEMU with the device of qemu-patches/; CCC_QEMU=10.2 for another version
	@scripts/build qemu
image: deps ## the guest of the experiments on QEMU
	@scripts/build image

##@ Experiments in virtual time; SEEDS=3 or SEEDS=101..110: so many or these runs of each case
.PHONY: demo weights outside dynamics live figure figures attacks faults days docs-images speed same-data
demo: ## the papers' VM fairness test, coupled beside uncoupled; FLOWS=1:4 SEED=1 for one run
weights: ## VM weights, and three VMs; WEIGHTS=3:1
outside: ## the coupled aggregate beside an uncoupled outside flow
dynamics: ## limited, alternating, short, distant and joining flows
live: ## weights and priorities changed, daemon killed, while flows run
# What was asked for is checked before all that it needs is built.
.PHONY: asked figure-asked figures-asked
asked:
	@$(if $(FLOWS)$(WEIGHTS)$(SEED)$(SEEDS),$(PYTHON) -m ccc_experiments demo --out out/demo --check)
demo weights outside dynamics live: asked build
	@$(PYTHON) -m ccc_experiments $@ --out out/$@

FIG ?=
FROM_DATA ?=
FIGURES = $(PYTHON) -m figures --out out/figures \
	$(if $(QUICK),--quick) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM_DATA),--from-data)

figure-asked:
	@$(if $(FIG),$(FIGURES) --check $(FIG),echo "figure: invalid FIG: expected the name of a figure, got none:" \
		"try 'make figure FIG=vm-fairness'" >&2; exit 2)
figures-asked:
	@$(if $(SEEDS),$(FIGURES) --check)
figure: figure-asked build ## FIG=vm-fairness: one figure, 10 runs of each case
	@$(FIGURES) $(FIG)
figures: figures-asked build ## all figures; QUICK=1 in a short form, FROM_DATA=1 from earlier runs
	@$(FIGURES)
attacks: build ## what one VM can do to others; ENFORCE=on, ONLY='deaf;reno 16', QUICK=1, SEEDS=3
	@$(PYTHON) -m attacks --out out/attacks $(if $(QUICK),--quick) \
		$(if $(ENFORCE),--enforce $(ENFORCE)) $(if $(ONLY),--only '$(ONLY)') $(if $(SEEDS),--seeds $(SEEDS))
faults: build ## programs killed and stopped while flows run; KILLS=1000 HOURS=1 simulated, SEED=101, QUICK=1
	@QUICK='$(QUICK)' $(PYTHON) -m faults --out out/faults --seed $(or $(SEED),101) \
		--kills $(or $(KILLS),$(if $(QUICK),80,1000)) --hours $(or $(HOURS),$(if $(QUICK),0.1,1))
days: deps ## DAYS=7 of the daemon's virtual time: VMs, flows and daemons come and go; SEED=101
	@DAYS='$(or $(DAYS),7)' SEED='$(or $(SEED),101)' $(CARGO) test --release $(HOST) -p ccc-vhost --test days -- --nocapture
docs-images: ## the documents' plots, from out/
	@scripts/docs-images
speed: build ## how fast the laboratory is on this machine
	@$(PYTHON) -m pytest -p no:cacheprovider -q -m speed experiments/tests
BASE ?=
RECORD ?=
same-data: ## BASE=commit: whether its seeded runs give the same data as this tree's
	@scripts/same-data $(BASE)

##@ The law under conditions drawn at random
.PHONY: law law-check law-days law-model law-mutants law-replay law-speed attack-search
ATTACKS ?= 1000
LAW_SEED = $(or $(SEED),1)
law-model: deps
	@echo "law: building" >&2
	@$(CARGO) build --release $(LAW)
law: law-model ## RUNS=100000 conditions in a fast model, coupled beside uncoupled; SEED=1
	@$(CARGO_TARGET_DIR)/release/ccc-law fuzz --runs $(or $(RUNS),2000) --seed $(LAW_SEED) \
		--known experiments/law/known.json --out out/law
attack-search: build law-model ## ATTACKS=1000 lies composed in that model, the worst done to real kernels
	@$(CARGO_TARGET_DIR)/release/ccc-law attack --runs $(ATTACKS) --seed $(LAW_SEED) --out out/attack-search/model
	@$(PYTHON) -m attacks --out out/attack-search --found out/attack-search/model $(if $(SEEDS),--seeds $(SEEDS))
law-check: build law-model ## that model beside the laboratory
	@$(PYTHON) -m ccc_experiments law-check --out out/law-check
law-replay: build law-model ## what `make law` found of INVARIANT=sum, on real kernels; SEEDS=7651,7652
	@$(PYTHON) -m ccc_experiments law-replay --out out/law-replay
law-days: law-model ## DAYS=7 of one group in that model: flows, weights and daemons come and go; SEED=101
	@$(CARGO_TARGET_DIR)/release/ccc-law days --days $(or $(DAYS),7) --seed $(or $(SEED),101)
law-mutants: deps ## whether the search finds faults that are planted into the engine
	@$(PYTHON) -m ccc_experiments law-mutants --out out/law-mutants
law-speed: law-model ## 10 and 100 Gbit/s in that model; SEEDS=101..110
	@$(PYTHON) -m ccc_experiments law-speed --out out/law-speed

##@ Speed
.PHONY: bench bench-ack bench-enforce bench-isolation
bench: host ## how fast engine and daemon are; QUICK=1 instructions alone, RECORD=1 as baseline, BASE=another daemon
	@scripts/build deps valgrind
	@QUICK='$(QUICK)' RECORD='$(RECORD)' BASE='$(BASE)' $(PYTHON) -m ccc_experiments bench --out out/bench
bench-ack: build ## instructions of an acknowledgement in a guest, beside plain Reno and CUBIC; SEEDS=101..103
	@scripts/build deps gdb
	@$(PYTHON) -m ccc_experiments bench-ack --out out/bench-ack
bench-enforce: host ## instructions a packet of a VM that is held at its tap, beside HTB and a FIFO, and of looks at taps
	@mkdir -p out/bench-enforce
	@$(PYTHON) -m ccc_experiments enforce-cost --out out/bench-enforce
bench-isolation: deps ## what one VM waits while another attacks; ATTACK=T1 for some
	@$(CARGO) bench $(HOST) -p ccc-vhost --bench isolation

.PHONY: bench-scale
bench-scale: host ## what operators wait for with 1,000 VMs and 100,000 flows, and what that costs VMs; VMS= FLOWS_EACH= LOOKS=
	@ulimit -n "$$(ulimit -Hn)" && $(CARGO) bench $(HOST) -p ccc-vhost --bench scale -- \
		vms=$(or $(VMS),1000) flows=$(or $(FLOWS_EACH),100) looks=$(or $(LOOKS),5)

##@ Experiments in real time
.PHONY: bpf bpf-check demo-bpf demo-migration demo-agent test-bpf newest-bpf bench-bpf
bpf: host ## the loader of the BPF program, and what measures it
	@scripts/build deps clang libelf-dev libbpf-dev bpftool pkg-config
	@guest/bpf-ccc/build
bpf-check: bpf ## its format, lints and tests without root
	@$(CARGO) fmt --manifest-path guest/bpf-ccc/Cargo.toml --check
	@$(CARGO) clippy --manifest-path guest/bpf-ccc/Cargo.toml --all-targets -- -D warnings
	@scripts/cargo-test --manifest-path guest/bpf-ccc/Cargo.toml
demo-bpf: bpf ## the fairness test with namespaces and cgroups of this machine as tenants; QUICK=1
	@QUICK='$(QUICK)' $(PYTHON) -m host_tenants demo --out out/$@
	@$(PYTHON) -m host_tenants yields --out out/$@/yields
demo-migration: bpf ## virsh migrate as a tenant beside another
	@scripts/build deps $(LIBVIRT)
	@scripts/build qemu >/dev/null
	@$(PYTHON) -m host_tenants migrates --out out/$@
demo-agent: bpf ## the same with Debian 12 and 13 guests that have the agent, and no module; QUICK=1, RUNS=5
	@scripts/build qemu vsock machine-bookworm machine-trixie >/dev/null
	@QUICK='$(QUICK)' RUNS='$(RUNS)' $(PYTHON) -m host_tenants agents --out out/$@
test-bpf: bpf ## daemon and loader killed, cgroups that come and go; KILLS=100 CGROUPS=1000
	@QUICK='$(QUICK)' KILLS='$(KILLS)' CGROUPS='$(CGROUPS)' $(PYTHON) -m host_tenants test --out out/$@
newest-bpf: bpf ## the program on the newest kernel of Debian's backports, in QEMU
	@guest/bpf-ccc/tests/run-on-newest $(CARGO_TARGET_DIR)
bench-bpf: bpf ## what an acknowledgement costs beside BPF Reno
	@$(PYTHON) -m host_tenants cost --out out/$@

.PHONY: dashboard
dashboard: bpf ## the panels of monitoring/ with namespaces as tenants and a real Prometheus
	@scripts/build deps prometheus
	@$(PYTHON) -m host_tenants dashboard --out out/$@

.PHONY: demo-qemu variants-qemu attacks-qemu
demo-qemu: ## the fairness test on libvirt's domains; QUICK=1 without what is only compared
variants-qemu: ## the same with TSO in the guests, and with two processors
attacks-qemu: ## an attacker beside two honest domains, held at its tap: reno 16, deaf, UDP
demo-qemu variants-qemu attacks-qemu: build
	@scripts/build deps $(LIBVIRT)
	@scripts/build qemu image >/dev/null
	@mkdir -p out/$@
	@CCC_LIBVIRT_LOG=$(CURDIR)/out/$@/libvirtd.log experiments/testbed/private-libvirt \
		env $(PYTHON) -m realtime $@ --out out/$@ $(if $(QUICK),--quick)

##@ Tests; QUICK=1 is a short form, TESTS='boots or migrations' some of them
.PHONY: freebsd-check test-freebsd
freebsd-check: ## the FreeBSD modules with the headers of 14 and 15: warnings are errors, symbols known
	@scripts/build freebsd-14 freebsd-15 >/dev/null
	@make --silent -C guest/freebsd-ccc/tests -f user.mk test
test-freebsd: host ## FREEBSD_KERNEL=file: the modules on a kernel of FreeBSD 15, in QEMU
	@scripts/build deps xorriso
	@$(PYTHON) $(SUITE) guest/freebsd-ccc/tests
.PHONY: advisories miri oldest-compiler proofs shuttle
# Each seed is another order of what two threads see of each other's writes.
miri: deps ## the wire format's reads and writes of shared memory under Miri; needs a nightly compiler
	@cargo +nightly miri --version >/dev/null 2>&1 || \
		rustup toolchain install --profile minimal --component miri,rust-src nightly
	@MIRIFLAGS=-Zmiri-many-seeds=0..16 cargo +nightly miri test --quiet $(HOST) --target-dir $(CACHE)/miri -p ccc-proto --lib
shuttle: deps ## what the daemon's threads hand each other, in 1,000 orders in which they may run
	@cargo test --quiet $(HOST) -p ccc-vhost --features shuttle --lib -- interleavings
proofs: deps ## lemmas of the engine's arithmetic, and their model beside the engine
	@$$(scripts/build tools)/python host/ccc-core/proofs
advisories: ## known vulnerabilities of the crates we use; fetches RustSec's database
	@for where in host host/fuzz experiments/lab experiments/law guest/bpf-ccc; do \
		$$(scripts/build tools)/cargo-deny --locked --manifest-path $$where/Cargo.toml --config deny.toml \
			check advisories || exit 1; \
	done
# What Cargo.toml promises as `rust-version`; the BPF loader needs clang, and the same crates.
OLDEST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' host/Cargo.toml)
oldest-compiler: deps ## that all builds with the oldest compiler that is promised
	@rustup toolchain install --profile minimal $(OLDEST) >/dev/null 2>&1
	@for where in host experiments/lab experiments/law; do \
		cargo +$(OLDEST) check --quiet --locked --manifest-path $$where/Cargo.toml --target-dir $(CACHE)/oldest || exit 1; \
	done
.PHONY: check test test-qemu test-libvirt test-packages ansible-test test-sanitized test-races kernels coverage fuzz
SUITE = -m pytest -p no:cacheprovider -q --reruns 1 -p testbed.again -rfER $(if $(QUICK),-m 'not slow') $(if $(TESTS),-k '$(TESTS)')
check: ## format, lints, documents, tests without root or kernel, in a minute; PARTS=lints
	@scripts/check $(PARTS)
test: build ## every test that needs no QEMU, one line of counts at the end
	@scripts/test
test-qemu: host ## QEMU's device with real guests
	@scripts/build deps
	@$(PYTHON) $(SUITE) qemu-patches/tests
test-libvirt: host ## cccctl and the hook against a real libvirtd
	@scripts/build deps $(LIBVIRT)
	@scripts/build qemu image >/dev/null
	@experiments/testbed/private-libvirt env $(PYTHON) $(SUITE) libvirt/tests
test-packages: host ## the packages on fresh Debian 12 and 13 hosts, under their systemd
	@scripts/build deps systemd-container
	@$(PYTHON) $(SUITE) packaging/tests
ansible-test: ## the Ansible collection on fresh machines; RELEASE=trixie, ANSIBLE=ansible-2.14
	@scripts/build deps systemd-container openssh-client
	@$(PYTHON) $(SUITE) -n 2 --dist worksteal ansible/tests
test-sanitized: host ## the guest module on a kernel with KASAN, lockdep and the like
	@$(PYTHON) $(SUITE) $(if $(QUICK),--seconds 10) guest/tests/sanitized/test_sanitized.py
# Found by chance: one that is seen once is there.
test-races: host ## the guest module on a kernel with KCSAN; SECONDS=600 of each test
	@$(PYTHON) $(SUITE) --reruns 0 --processors 2 --seconds $(or $(SECONDS),$(if $(QUICK),10,30)) guest/tests/sanitized/test_races.py
kernels: deps ## the guest module against Debian's kernels, and run on 6.1
	@guest/tests/compile-kernels
	@guest/tests/run-on-6.1
coverage: deps ## line coverage of the host crates
	@scripts/coverage

TARGET ?= doorbell
TIME ?= 60
fuzz: deps ## TARGET=table|doorbell|config|control TIME=60
	@scripts/fuzz $(TARGET) $(TIME)

EXAMPLES ?= 100
.PHONY: fuzz-api
fuzz-api: host ## EXAMPLES=100 SEED=1: the control socket's API by its description, for each of its operations
	@scripts/fuzz-api --daemon $(CARGO_TARGET_DIR)/release/ccc-vhost --examples $(EXAMPLES) \
		--seed $(or $(SEED),1) --schemathesis $$(scripts/build schemathesis)

.PHONY: clean
clean: ## removes out/; what is in the cache stays
	rm -rf out
