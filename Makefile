# `make demo` and `make test` need Python and a C++ compiler; they install everything else in .venv.
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
# `regmax.compat` must pass this archive's tests.
PAPERS_CODE := $(VENV)/torchsparseattn-0.2.tar.gz
FRAMEWORKS := $(VENV)/.frameworks
SOURCES := $(shell find csrc -name '*.h' -o -name '*.hpp' -o -name '*.cpp')
CORE := CMakeLists.txt $(SOURCES)
# The editable install records the packages: a new one requires a new install.
PACKAGES := $(shell find src -name __init__.py)

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Raise instead of falling back to tensor operations, which would leave the core untested.
export REGMAX_REQUIRE_NATIVE := 1
# pytest runs one process per core, so each uses one thread, which does not spin while it waits.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE

.DELETE_ON_ERROR:
.PHONY: help demo test test-frameworks test-gpu lint format bench docs site coverage sanitize arm clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(INSTALLED) ## one sentence under every mapping, then a model trained with each: tables and a report page
	regmax demo

test: lint $(PAPERS_CODE) site ## all checks, all tests, all doctests
	pytest -q -n 2 --ignore=tests/frameworks

test-frameworks: $(FRAMEWORKS) ## the tests of JAX, ONNX and Triton, which it installs
	pytest -q -n 2 tests/frameworks --ignore=tests/frameworks/triton
	TRITON_INTERPRET=1 pytest -q -n 2 tests/frameworks/triton

test-gpu: $(INSTALLED) ## the Triton kernels on this machine's GPU, against the CPU in float64
	pytest -q tests/gpu

lint: $(INSTALLED) ## formatting, lint, types and the direction of imports and includes
	ruff format --check --output-format concise .
	clang-format --dry-run --Werror $(SOURCES)
	ruff check --output-format concise .
	mypy
	lint-imports
	python tools/check_includes.py

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
site: $(INSTALLED)
	rm -rf build/docs docs/api/generated docs/gallery
	sphinx-build --quiet --fail-on-warning docs build/docs

# The instances of a template are merged: a line counts as covered if any instruction set or type reaches it.
COVERAGE := build/coverage
WITH_COUNTERS := REGMAX_LIBRARY=$(CURDIR)/$(COVERAGE)/core/_core.so
# Deselected, because coverage slows down the import that it times.
TIMED := tests/kernels/test_threads.py::test_importing_regmax_is_quick
coverage: $(INSTALLED) ## which lines of Python and of the core the tests reach; `make coverage TESTS="tests/laws ..."` runs some of them
	cmake -G Ninja -S . -B $(COVERAGE)/core -DCMAKE_CXX_COMPILER=$(CXX) -DCMAKE_CXX_FLAGS="--coverage -fprofile-update=atomic" --log-level=WARNING
	cmake --build $(COVERAGE)/core
	mkdir -p $(COVERAGE)/html
	find $(COVERAGE) -name '*.gcda' -delete
	coverage erase
	$(WITH_COUNTERS) pytest -q -n 2 --cov --cov-report= --deselect $(TIMED) $(TESTS)
	$(WITH_COUNTERS) python tests/support/adversarial.py --rows 400000
	coverage xml -q -o $(COVERAGE)/python.xml
	gcovr --root . --filter csrc/ --json $(COVERAGE)/core.json $(COVERAGE)/core
	gcovr --root . --merge-lines --add-tracefile $(COVERAGE)/core.json --cobertura-add-tracefile $(COVERAGE)/python.xml \
	  --txt $(COVERAGE)/summary.txt --html-details $(COVERAGE)/html/index.html
	cut -c 1-140 $(COVERAGE)/summary.txt

# The sanitizers' runtimes must be loaded before Python. Leaks are not checked: Python itself does not free everything.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
RUNTIMES = $(foreach lib,libasan.so libubsan.so libstdc++.so,$(shell $(CXX) -print-file-name=$(lib)))
sanitize: $(INSTALLED) ## run adversarial rows through a core built with ASan and UBSan
	cmake -G Ninja -S . -B build/sanitize -DCMAKE_CXX_COMPILER=$(CXX) -DCMAKE_CXX_FLAGS="$(SANITIZE)" --log-level=WARNING
	cmake --build build/sanitize
	LD_PRELOAD="$(RUNTIMES)" ASAN_OPTIONS=detect_leaks=0 \
	  REGMAX_LIBRARY=$(CURDIR)/build/sanitize/_core.so python tests/support/adversarial.py --rows 200000

ARM := aarch64-linux-gnu-g++
arm: $(INSTALLED) ## run adversarial rows through the core as compiled for ARM, in an emulator (g++-aarch64-linux-gnu, qemu-user)
	mkdir -p build
	$(ARM) -std=c++17 -O3 -Wall -Wextra -ffp-contract=off -static -pthread -DREGMAX_ISA=baseline \
	  $(filter-out %/python.cpp,$(filter %.cpp,$(SOURCES))) tests/support/arm/rows.cpp -o build/arm-rows
	python tests/support/arm/judge.py qemu-aarch64 build/arm-rows

# torch is installed first and separately, so that no other requirement determines its version.
$(INSTALLED): pyproject.toml constraints.txt $(CORE) $(PACKAGES)
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	python -m pip install --quiet -c constraints.txt torch==2.13.0
	python -m pip install --quiet -c constraints.txt scikit-build-core cmake ninja
	python -m pip install --quiet -c constraints.txt --no-build-isolation --editable '.[dev]'
	python -c 'from regmax.kernels import native; native.available() or exit("regmax: the native core was not built")'
	touch $@

$(FRAMEWORKS): $(INSTALLED)
	python -m pip install --quiet -c constraints.txt --no-build-isolation --editable '.[frameworks]'
	touch $@

# pip builds the archive's metadata, for which this one needs Cython.
$(PAPERS_CODE): | $(INSTALLED)
	python -m pip download --quiet --no-deps --no-build-isolation --no-binary torchsparseattn --dest $(@D) torchsparseattn==0.2

clean: ## remove build products, but not .venv
	rm -rf build dist docs/api/generated docs/gallery regmax-bench regmax-demo $(INSTALLED)
