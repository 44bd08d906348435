# `make` lists the targets. Each prepares what it needs: .ci/prepare costs nothing when .venv is up to date.

# What `make demo` passes on, e.g. make demo ARGS="--children 2"; `make test` hands it to pytest.
ARGS ?=

BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help build demo test check model soak bench bench-peers bench-growth bench-check bench-counts wheel clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1|/' | while IFS='|' read -r name text; do \
		printf '  make %-13s %s\n' "$$name" "$$text"; done

build: ## set .venv up and build the extension, where anything changed
	@.ci/prepare

demo: build ## process a real batch: the standard library, file by file
	@$(BIN)/dtq demo $(ARGS)

test: build ## the whole test suite (ARGS= goes to pytest)
	@$(BIN)/python -m pytest $(ARGS)

# Tests wait most of the time: a file each runs beside another one. TRACE= (empty) leaves out what they reach, half the time.
JOBS ?= 2
TRACE ?= -m coverage run

check: build ## every gate: formatters, linters, types, stubs, cargo test, test suite and what it reaches
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo clippy --locked --all-targets --features python -- -D warnings
	$(BIN)/mypy
	$(BIN)/pyright
	MYPYPATH=python $(BIN)/python -m mypy.stubtest dtq._core
	cargo test --locked --quiet
	@rm -rf target/coverage && mkdir -p target/coverage
	$(BIN)/python $(TRACE) -m pytest -n $(JOBS) --dist loadfile $(ARGS)
	@if [ -n "$(TRACE)" ]; then $(BIN)/python -m tests.uncovered; fi

model: build ## the storage protocol as a model: every scenario, a minute of processor time each at most (ARGS= names scenarios)
	@$(BIN)/python -m tests.protocol.check $(ARGS)

# Minutes of chaos, and its seed; e.g. make soak SOAK_S=300 CHAOS_SEED=7
SOAK_S ?= 1200
CHAOS_SEED ?= 1

soak: build ## 20 minutes of kills, stops and cut connections, and every test that needs its time
	CHAOS_SOAK_S=$(SOAK_S) CHAOS_SEED=$(CHAOS_SEED) $(BIN)/python -m pytest -s -m slow $(ARGS)

bench: build ## the benchmarks; one JSON per run in bench/results
	@mkdir -p bench/results
	$(BIN)/python -m pytest bench --benchmark-only --benchmark-max-time=0.2 --benchmark-json=bench/results/core.json
	@for run in throughput "throughput --retention 0" "throughput --handler spin" latency recovery concurrency queues; do \
		case "$$run" in *spin) name=spin ;; *) name=$$(echo "$$run" | tr -d -- '-' | tr ' ' '_') ;; esac; \
		echo "$(BIN)/python bench/$${run%% *}.py $${run#$${run%% *}} --json"; \
		$(BIN)/python bench/$${run%% *}.py $${run#$${run%% *}} --json >bench/results/$$name.json || exit 1; \
		cat bench/results/$$name.json; \
	done
	$(BIN)/python docs/generate.py

bench-peers: build ## dtq beside other task queues, under 40 minutes; ARGS="--quick --peers dtq,celery" narrows it
	$(BIN)/python -m bench.peers $(ARGS)
	$(BIN)/python docs/generate.py

bench-growth: build ## curves of growth, some minutes; ARGS="--full" for a backlog of ten million, "--quick" for a try
	$(BIN)/python bench/growth.py $(ARGS)

# What to compare with, and how, e.g. make bench-check BASE=main~3 ARGS="--quick"
BASE ?= HEAD

bench-check: build ## this tree beside another revision in turns: BASE=rev (ARGS= goes to bench/compare.py)
	@$(BIN)/python bench/compare.py $(BASE) $(ARGS)

bench-counts: build ## record anew the counts that `make check` compares: bench/counts.json
	$(BIN)/python bench/redis_counts.py --record
	$(BIN)/python bench/rust_instructions.py --record
	$(BIN)/python bench/instructions.py --record

wheel: build ## the wheel for this platform, in target/wheels
	$(BIN)/maturin build --release --locked

clean: ## remove everything that make made
	rm -rf .venv target .compare bench/peers/environments .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f python/dtq/_core*.so
	find bench -path 'bench/results/*' -type f ! -name 'peers.*' ! -name 'growth.*' ! -name 'throughput*.json' \
		! -name latency.json ! -name recovery.json \
		! -name spin.json ! -name concurrency.json ! -name queues.json -delete
	find python tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
