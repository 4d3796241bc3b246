# Everything starts here: each target brings in what it needs first. `make help` lists them.
# A Debian 12 machine needs nothing but make, git and Python 3 beforehand.

JOBS ?= $(shell nproc)
AOT ?= yes
BUILD := build

# Two makes in one folder take turns: ninja and ctest do not guard their own files.
LOCKED := flock .deps/make.lock
CONFIGURE = test -f $(BUILD)/build.ninja || cmake --preset release
NINJA = cmake --build $(BUILD) --parallel $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-asan test-tsan bench format check-format tidy clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup:  ## install Debian packages and pinned wheels that are missing
	@tools/setup core

build: setup  ## leave the binary at build/ulmus
	@$(LOCKED) sh -c '$(CONFIGURE)'
	@$(LOCKED) $(NINJA) --target programs

demo: build  ## train a small OLMo 3 on real text, kill it, go on; the run is left in runs/demo
	@demo/run

test:  ## build everything, check every header on its own, run all tests
	@tools/setup core test
	@tools/setup $(if $(filter no,$(AOT)),--decline,--optional) aot
	@$(LOCKED) sh -c '$(CONFIGURE)'
	@$(LOCKED) $(NINJA) --target all check_headers
	@$(LOCKED) ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)

test-asan: setup  ## unit tests under the address and undefined-behaviour sanitizers
	@$(LOCKED) cmake --workflow --preset asan

test-tsan: setup  ## tests that need no plugin, under the thread sanitizer
	@$(LOCKED) cmake --workflow --preset tsan

bench: setup  ## run every benchmark
	@$(LOCKED) sh -c '$(CONFIGURE)'
	@$(LOCKED) $(NINJA)
	@find $(BUILD) -name '*_bench' -type f -executable | sort | while read -r bench; do echo "== $$bench"; "$$bench" || exit 1; done

CLANG_FORMAT := .deps/wheels/clang-format/clang_format/data/bin/clang-format
SOURCES = git ls-files --cached --others --exclude-standard '*.cc' '*.h'

format:  ## rewrite all sources with the pinned clang-format
	@tools/setup format
	@$(SOURCES) | xargs $(CLANG_FORMAT) -i

check-format:  ## fail if `make format` would change anything
	@tools/setup format
	@$(SOURCES) | xargs $(CLANG_FORMAT) --dry-run --Werror

tidy:  ## build with the pinned clang-tidy watching
	@tools/setup core tidy
	@$(LOCKED) cmake --workflow --preset tidy

clean:  ## delete all build trees
	rm -rf build build-*

distclean: clean  ## also delete fetched wheels and runs; the cache of wheels stays
	rm -rf .deps runs
