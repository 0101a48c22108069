# What people type. `make run` and `make test` install what is missing by themselves.

CARGO ?= cargo
# Further arguments of `tollgate up` or the bench, such as: make run ARGS="--listen 127.0.0.1:9000 --test-clock"
ARGS ?=
# How many tests run at once: more than there are cores, because many of them wait for something most of the time.
THREADS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) * 3 / 2)))
# How many faults of each kind a storm has; outages last as long as they are promised to be survived.
ROUNDS ?= 20
# How many seconds Redis is away while each failure policy answers.
OUTAGE ?= 10
# How many random sequences the behaviour suite tries.
CASES ?= 200
# How many random bills are counted a second way.
CARTS ?= 1000000
# How many pairs of tenants are billed, of which one is corrected.
BILLS ?= 1000
# How many random histories of a token bucket are played.
GIVE_BACKS ?= 1000000
# How many operations the simulated year has.
YEAR ?= 1000000
# How many uses a supplier's bill is compared with.
BILL ?= 1000000
# A recorded trace of model calls to bill; without one, the small example.
TRACE ?=
# How many anonymous subjects are made up; a fifth as many named ones, and a tenth whose use is booked.
FLOOD ?= 5000000

# rustup puts cargo here, but only new shells know.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help run test bench storm outage behaviour carts bills give-backs year bill trace flood lint fmt clean setup
.DEFAULT_GOAL := help

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

run: setup ## Build and start Tollgate with private servers under .tollgate/ (ARGS="…")
	@$(CARGO) build --release --locked --bin tollgate
	@exec "$${CARGO_TARGET_DIR:-target}/release/tollgate" up $(ARGS)

test: setup ## Run every test (THREADS="4")
	RUST_TEST_THREADS=$(THREADS) $(CARGO) test --locked

bench: setup ## Measure the parts and the whole on this machine; writes docs/benchmarks.md (ARGS="--seconds 10 …")
	$(CARGO) bench --locked --bench bench -- $(ARGS)

storm: setup ## Kill, empty, freeze and swap the servers under load, at full size (ROUNDS="20")
	TOLLGATE_STORM_ROUNDS=$(ROUNDS) $(CARGO) test --locked --release --test suite -- --nocapture --test-threads 1 faults::storm

outage: setup ## Stop, freeze, slow and restart Redis under half of the peak, and print how each policy answers (OUTAGE="10")
	TOLLGATE_OUTAGE_SECONDS=$(OUTAGE) $(CARGO) test --locked --release --test suite -- --nocapture --test-threads 1 faults::failure_policies

behaviour: setup ## Hold the gate and the whole service against their models through random calls and kills (CASES="200")
	TOLLGATE_BEHAVIOUR_CASES=$(CASES) $(CARGO) test --locked --test suite -- --nocapture properties::service properties::gate gate::concurrency

carts: ## Count a million random bills a second way (CARTS="1000000")
	TOLLGATE_CARTS=$(CARTS) $(CARGO) test --locked --test suite -- --nocapture properties::rating

bills: setup ## Bill a thousand pairs of tenants, of which one is right in time and one is corrected (BILLS="1000")
	TOLLGATE_BILLS=$(BILLS) $(CARGO) test --locked --release --test suite -- --nocapture properties::bills

give-backs: ## Hold what token buckets give back against exact ones in a million random histories (GIVE_BACKS="1000000")
	TOLLGATE_GIVE_BACKS=$(GIVE_BACKS) $(CARGO) test --locked --release --test suite -- --nocapture properties::give_backs

year: setup ## Simulate a year of a million operations, with and without disturbed jobs (YEAR="1000000")
	TOLLGATE_YEAR_OPERATIONS=$(YEAR) $(CARGO) test --locked --release --test suite -- --nocapture properties::year

bill: setup ## Compare a supplier's bill of a million rows with the books (BILL="1000000")
	TOLLGATE_BILL_ROWS=$(BILL) $(CARGO) test --locked --release --test suite -- --nocapture http::supplier_bills::large

trace: setup ## Bill a recorded trace for fifty tenants on graduated prices (TRACE="calls.csv")
	TOLLGATE_TRACE=$(abspath $(TRACE)) $(CARGO) test --locked --test suite -- --nocapture jobs::billed_trace

flood: setup ## Make up five million anonymous subjects, a million named ones, and half a million that are booked (FLOOD="5000000")
	TOLLGATE_FLOOD_SUBJECTS=$(FLOOD) $(CARGO) test --locked --release --test suite -- --nocapture http::flood

lint: ## Check formatting and lints, and dependencies where cargo-deny is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --locked check bans licenses sources; \
	else echo "cargo-deny is not installed: dependencies were not checked"; fi

fmt: ## Format the code
	$(CARGO) fmt --all

clean: ## Remove what was built; data under .tollgate/ stay
	$(CARGO) clean

setup:
	@sh deploy/install-servers.sh
