# One place for the commands that people type. `make` alone says what there is.
SHELL := /bin/sh
CARGO ?= cargo
# Programs of all crates at once: of one alone, dependencies would have other features, and be compiled once more.
BUILT = $(or $(CARGO_TARGET_DIR),target)/debug
.DEFAULT_GOAL := help
.PHONY: help demo up test test-s test-others check format bench matrix soak servers

help: ## Show this list
	@echo 'Oncely: consume Kafka so that each business event has its effect once.'
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'
	@echo
	@echo 'Debian or Ubuntu with Rust is enough: what else is missing is named, then installed.'

demo: ## See it work: repeats, kills, and the table at the end; flags: ARGS="--seed 7 --keep"
	@tests/install demo
	@tests/postgres/fetch
	$(CARGO) build --workspace --bin oncely
	@$(BUILT)/oncely demo $(ARGS)

up: servers ## Start a Kafka, a PostgreSQL and a provider to try things on, until Ctrl-C
	$(CARGO) build --workspace --bin servers
	@$(BUILT)/servers

# Tests of servers wait more than they compute, so two halves run side by side: targets whose names begin with
# an s (stories and soak), and all others. JOBS=1 runs one after the other.
test: servers ## Run all tests, on a real PostgreSQL and a real Kafka of their own
	$(CARGO) test --workspace --no-run
	@$(MAKE) --no-print-directory --keep-going --jobs=$(or $(JOBS),2) --output-sync=target test-s test-others

test-s:
	$(CARGO) test --workspace --no-fail-fast --test 's*'

test-others:
	$(CARGO) test --workspace --no-fail-fast --lib --bins --test '[!s]*'

check: ## What a change has to pass: format, lints, tests
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@$(MAKE) --no-print-directory test

format: ## Format the code
	$(CARGO) fmt --all

bench: servers ## Measure, on this machine; QUICK=1 for a short look
	$(CARGO) build --release -p oncely
	$(CARGO) run --release -p oncely-tests --bin bench -- $(if $(QUICK),--quick)

matrix: servers ## Kill a worker at every crash point, for every class of provider; ONLY=text for some
	$(CARGO) test -p oncely-tests --test matrix -- --all $(if $(ONLY),--only $(ONLY))

soak: servers ## Rounds of random faults until ROUNDS are done; SEED=n plays the rounds from that seed on
	$(CARGO) test -p oncely-tests --test soak -- --rounds $(or $(ROUNDS),20) --seed $(or $(SEED),$(shell date +%s))

servers: ## Install what is missing, and fetch PostgreSQL, PgBouncer and Kafka into the cache
	@tests/install
	@tests/postgres/fetch
	@tests/pgbouncer/fetch
	@tests/kafka/fetch
