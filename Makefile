SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# With this variable, each of the many processes of a test run would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PYTHON ?= python3
BIN := .venv/bin
N ?= 5000
# Three jobs for two processors: tests wait for a third of their time.
JOBS ?= 3

# Prints how many packages pip has downloaded: on a terminal in one line, elsewhere every 25 packages.
define FETCHED
/^ *(Downloading|Using cached) / && !/\.metadata/ {
  sub(/^ *(Downloading|Using cached) (.*\/)?/, ""); sub(/-[^ ]*/, "")
  if (screen) printf "\033[K  package %d: %s\r", ++fetched, $$0
  else if (++fetched % 25 == 0) print "  " fetched " packages so far"
  fflush()
}
/^Installing / {printf "%s  … and installing them\n", screen ? "\033[K" : ""; fflush()}
endef
export FETCHED

define CHECK_PYTHON
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 "make: $(PYTHON) must be Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }; \
$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo >&2 "make: $(PYTHON) lacks ensurepip; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
endef

# Installs the packages of a lock: $(1) is the environment, $(2) are pip's arguments. pip compiles modules with one processor, so
# COMPILE does that. As in pip, a module that cannot be compiled is no failure.
define INSTALL
[[ -t 2 ]] && screen=1 || screen=0; \
$(1)/bin/pip install --progress-bar off --no-compile --require-hashes --no-deps $(2) | awk -v screen=$$screen "$$FETCHED" >&2
endef
COMPILE = $(1)/bin/python -m compileall -qq -j 0 $(1)/lib || true

.PHONY: help venv demo-venv tools jars rck spark servers catalog demo tour dist dist-test test check coverage shape lint format simulate fuzz fuzz-readers faults bench bench-spark bench-audit soak pictures docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: .venv/installed ## create the virtual environment .venv from deploy/requirements.lock
	@:

# The lock has every package, so pip must not resolve dependencies: it fails if a package with an extra has a newer version
# than the lock.
.venv/installed: deploy/requirements.lock pyproject.toml
	@$(CHECK_PYTHON)
	@echo >&2 "make: $$(grep -c == $<) Python packages into .venv, for the tests (some 610 MB): this takes a few minutes if pip has none of them yet"
	@$(PYTHON) -m venv .venv
	@$(call INSTALL,.venv,-r $<)
	@$(call COMPILE,.venv)
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@broken=$$($(BIN)/pip check) || { echo >&2 "$$broken"; exit 1; }
	@touch $@

# The demo has an environment of its own, so that it need not wait for the packages of the tests. It runs once or twice, so modules
# are compiled when they are imported.
demo-venv: .venv-demo/installed
	@:

.venv-demo/installed: deploy/demo.lock deploy/build.lock pyproject.toml
	@$(CHECK_PYTHON)
	@echo >&2 "make: $$(grep -c == $<) Python packages into .venv-demo (some 72 MB)"
	@$(PYTHON) -m venv .venv-demo
	@$(call INSTALL,.venv-demo,-r $<)
	@.venv-demo/bin/pip install --quiet --no-deps --require-hashes -r deploy/build.lock
	@.venv-demo/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

jars: venv ## download Iceberg's own REST catalog server, and a Java to run it, to ~/.cache/iceberg-sfn
	@$(BIN)/python deploy/fetch/jars.py

rck: venv ## the same, with Iceberg's REST compatibility kit, which a test runs against the facade and gateway
	@$(BIN)/python deploy/fetch/jars.py --rck

spark: .venv/spark ## install PySpark in .venv, and download Iceberg's runtime for it to ~/.cache/iceberg-sfn
	@$(BIN)/python deploy/fetch/jars.py --spark

# PySpark is separate, because the demo does not need it. PyPI has only its sources. Build isolation is off, so that the
# build uses pinned packages and no second download. pip caches the build.
.venv/spark: deploy/spark.lock .venv/installed
	@echo >&2 "make: PySpark into .venv, for mypy and the tests on Spark (some 460 MB): the first build takes half a minute more"
	@$(call INSTALL,.venv,--no-build-isolation --use-pep517 -r $<)
	@$(call COMPILE,.venv)
	@touch $@

servers: venv ## download the servers for the tests of stores, PostgreSQL and NATS to ~/.cache/iceberg-sfn
	@$(BIN)/python deploy/fetch/servers.py

tools: venv ## download the tools that check the files for Kubernetes, Prometheus, Compose and continuous integration
	@$(BIN)/python deploy/fetch/tools.py

catalog: jars ## run Iceberg's own REST catalog with a table on port 8181, to try the listener with (without Java: sfn demo-catalog)
	@$(BIN)/python deploy/rest-fixture/serve.py build/lake 8181

demo: demo-venv ## show a catalog, the listener and a table, end to end (after make jars: with Iceberg's own REST catalog)
	@.venv-demo/bin/sfn demo

tour: spark jars ## show the life of a table in Spark SQL, step by step (about two minutes)
	@$(BIN)/python -m tests.spark.tour

# Use few more jobs than processors, because some tests measure times. The tests of a file stay together: they share servers.
# xdist would start files with few tests last, even slow ones, so tests/conftest.py starts the slow files first.
# A worker that dies ends the run: its replacement would not get the rest of its file, and the run would wait forever.
PARALLEL := --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
test: lint ## lint, then run every test, JOBS at a time; tests are skipped if their server is missing
	@$(MAKE) rck || { [[ "$${CI:-}" != true ]] && echo >&2 "make: no catalog server, or no compatibility kit: the tests that need it are skipped, and listed at the end"; }
	@$(MAKE) servers || { [[ "$${CI:-}" != true ]] && echo >&2 "make: a server is missing: the tests of stores, of PostgreSQL or of NATS that need it are skipped, and listed at the end"; }
	@$(MAKE) tools || { [[ "$${CI:-}" != true ]] && echo >&2 "make: a tool for deployment files is missing: the tests that need it are skipped, and listed at the end"; }
	@$(MAKE) spark || { [[ "$${CI:-}" != true ]] && echo >&2 "make: no PySpark, or no runtime of Iceberg's for it: the tests that need them are skipped, and listed at the end"; }
	@$(MAKE) build/docs-venv/installed || { [[ "$${CI:-}" != true ]] && echo >&2 "make: no generator for the documentation site: its tests are skipped, and listed at the end"; }
	@$(BIN)/pytest $(PARALLEL) $(MEASURE)

dist: venv ## build wheel and sdist into dist, twice and equal, check them, and test the wheel in an empty environment
	@$(BIN)/python deploy/release/dist.py
	@$(MAKE) dist-test

dist-test: venv ## run the acceptance tests against the wheel in dist, in an empty environment
	@$(BIN)/python deploy/release/acceptance.py

# For everyday work, in two minutes: left out are tests that are slow, suites that need a server, and adapters of contract
# tests that need one. Two processes, because each of them collects all tests.
QUICK := --numprocesses 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --hypothesis-profile quick
check: lint ## lint, then the unit tests and the contract tests that need no server, without the slow ones
	@$(BIN)/pytest $(QUICK) -m 'not slow' --ignore-glob='tests/unit/*_server.py' tests/unit tests/dialects
	@$(BIN)/pytest $(QUICK) -m 'not slow' --ignore-glob='tests/promises/test_*quirks.py' --ignore=tests/promises/test_catalog.py --ignore=tests/promises/test_inbox_alike.py \
	  -k 'not (asyncio-S3 or asyncio-Azure or asyncio-GCS or asyncio-PostgreSQL)' tests/promises

shape: venv ## print sizes, names and wording of the code base beside their limits
	@$(BIN)/python -m tests.shape

coverage: ## test with branch coverage, which takes 1.5 times as long
	@$(MAKE) test MEASURE="--cov --cov-report=term --cov-report=xml:build/coverage/coverage.xml"

lint: venv ## run ruff, mypy, import-linter and hadolint, and check docker-compose.yml
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(MAKE) .venv/spark || { [[ "$${CI:-}" != true ]] && echo >&2 "make: no PySpark: mypy skips modules that import it"; }
	@$(BIN)/mypy $$([[ -e .venv/spark ]] || echo '--exclude=/(pyspark_sfn|spark)(/|\.py$$)')
	@$(BIN)/lint-imports --config .ci/importlinter.toml --no-logo
	@$(BIN)/hadolint Dockerfile deploy/compose/engine/Dockerfile
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec docker-compose.yml

format: venv ## sort imports and format the code
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

simulate: venv ## run N random histories in the simulator (make simulate N=200)
	@$(BIN)/python -m tests.simulation $(N)

fuzz: venv ## fuzz each target for ten minutes (set SFN_FUZZ_SECONDS for less)
	@$(BIN)/python -m tests.fuzz --seconds "$${SFN_FUZZ_SECONDS:-600}"

fuzz-readers: jars spark ## read N unusual tables in every way, and compare with Iceberg's own library (make fuzz-readers N='2000 --from 5000')
	@$(BIN)/python -m tests.spark.differential $(N)

faults: jars servers ## run the tests that kill, pause, starve and cut off processes: twenty minutes (SFN_FAULT_ROUNDS for less)
	@SFN_FAULT_ROUNDS=$${SFN_FAULT_ROUNDS:-60} $(BIN)/pytest -rP tests/faults

# Run nothing else on the machine meanwhile: it would distort the figures.
bench: servers ## measure against the goals, into build/bench.json (a part: make bench BENCH='accept --runs 1')
	@$(BIN)/python -m tests.bench $(BENCH)

bench-spark: spark ## measure reads on Spark against the goals, into the same file (less of it: make bench-spark BENCH='--rows 100000 --runs 1')
	@$(BIN)/python -m tests.bench.spark $(BENCH)

bench-audit: spark ## measure audits of 100,000 tables against the goals, into the same file: twelve minutes (less: make bench-audit BENCH='--tables 5000 --runs 1')
	@$(BIN)/python -m tests.bench.audit $(BENCH)

soak: venv ## run under load for ten minutes: memory and files must stay bounded (SFN_SOAK_SECONDS for less)
	@$(BIN)/python -m tests.bench soak --soak-seconds "$${SFN_SOAK_SECONDS:-600}"

pictures: servers ## make the pictures of the page for operators in docs/images (needs Chromium)
	@SFN_PICTURES=docs/images $(BIN)/pytest -q tests/browser -k pictures

# An environment of its own: the generator of the site is no part of the tests.
docs: build/docs-venv/installed ## build the documentation site into build/site, and check its links (SITE_URL: where it will be)
	@build/docs-venv/bin/python deploy/site/build.py $(if $(SITE_URL),--address='$(SITE_URL)')

build/docs-venv/installed: deploy/docs.lock
	@echo >&2 "make: $$(grep -c == $<) Python packages into build/docs-venv, for the documentation site (some 140 MB)"
	@$(PYTHON) -m venv build/docs-venv
	@build/docs-venv/bin/pip install --quiet --require-hashes --no-deps -r $<
	@touch $@

# Only uv resolves for all platforms at once; it does not read pip's settings, so the index is passed. The locks of the image
# have the versions of the first lock, so an image has the tested versions. PySpark (half a gigabyte) has a lock of its own,
# because the demo does not need it.
lock: ## resolve and pin the dependencies again (newer versions: make lock UPGRADE=--upgrade)
	@tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	$(PYTHON) -m venv "$$tools"; \
	"$$tools/bin/pip" install --quiet uv==0.13.9; \
	index=$$("$$tools/bin/pip" config get global.index-url 2>/dev/null || true); \
	index=$${PIP_INDEX_URL:-$$index}; \
	pin() { \
	  $${index:+env UV_DEFAULT_INDEX="$$index"} "$$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' $(UPGRADE) "$$@"; \
	}; \
	read_project() { \
	  "$$tools/bin/python" -c 'import tomllib; own = tomllib.load(open("pyproject.toml", "rb")); project, build = own["project"], own["build-system"]; '"print(*$$1, sep='\n')"; \
	}; \
	pin $$(read_project '("--extra=" + extra for extra in project["optional-dependencies"] if extra != "spark")') -o deploy/requirements.lock pyproject.toml; \
	read_project '(one for one in project["optional-dependencies"]["spark"] if one.startswith("pyspark"))' | \
	  pin --constraint deploy/requirements.lock -o deploy/spark.lock -; \
	pin --extra demo --constraint deploy/requirements.lock -o deploy/demo.lock pyproject.toml; \
	pin --extra pyiceberg --extra s3 --extra azure --extra gcs --extra postgres --extra nats --extra otel --constraint deploy/requirements.lock -o deploy/image.lock pyproject.toml; \
	read_project '(one for extra in ("demo", "dev", "read") for one in project["optional-dependencies"][extra] if extra == "read" or one.startswith("duckdb"))' | \
	  pin --constraint deploy/requirements.lock -o deploy/compose/engine/engine.lock -; \
	read_project 'build["requires"]' | \
	  pin --constraint deploy/requirements.lock -o deploy/build.lock -; \
	pin -o deploy/docs.lock deploy/site/requirements.txt

clean: ## remove everything that these targets created in this folder
	rm -rf .venv .venv-demo build dist .grimp_cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find deploy service tests -name __pycache__ -type d -prune -exec rm -rf {} +
