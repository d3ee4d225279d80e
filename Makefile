SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Where it is set, each of the many processes of a test run compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
N ?= 5000
# Three for two processors: a third of what tests take is waiting.
JOBS ?= 3

# How many packages pip has fetched: on a terminal in one line that is written anew, elsewhere now and then.
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

.PHONY: help venv jars rck spark servers catalog demo tour test coverage lint format simulate fuzz fuzz-readers faults bench bench-spark bench-audit soak lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: .venv/installed ## the virtual environment .venv, as deploy/requirements.lock pins it
	@:

# The lock has every package: a pip that looks for others by itself fails once one that is named with an extra has a newer
# version than the lock. What pip compiles it compiles on one processor; as with it, what can't be compiled is no failure.
.venv/installed: deploy/requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 "make: $(PYTHON) must be Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo >&2 "make: $(PYTHON) lacks ensurepip; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo >&2 "make: $$(grep -c == $<) Python packages into .venv, for the tests and the demo (some 510 MB): a few minutes where pip has none of them yet"
	@$(PYTHON) -m venv .venv
	@[[ -t 2 ]] && screen=1 || screen=0; \
	$(BIN)/pip install --progress-bar off --no-compile --require-hashes --no-deps -r $< | awk -v screen=$$screen "$$FETCHED" >&2
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@broken=$$($(BIN)/pip check) || { echo >&2 "$$broken"; exit 1; }
	@touch $@

jars: venv ## Iceberg's own REST catalog server and a Java to run it, in ~/.cache/iceberg-sfn
	@$(BIN)/python deploy/fetch/jars.py

rck: venv ## both of these, and Iceberg's REST compatibility kit, which the tests have a catalog tried by
	@$(BIN)/python deploy/fetch/jars.py --rck

spark: .venv/spark ## PySpark in .venv, and Iceberg's runtime for it, in ~/.cache/iceberg-sfn
	@$(BIN)/python deploy/fetch/jars.py --spark

# Apart from the other packages: the demo does without. PySpark is sources alone, and what it is built with is a package like
# the others, not a second, unpinned download. pip keeps what it built.
.venv/spark: deploy/spark.lock .venv/installed
	@echo >&2 "make: PySpark into .venv, for mypy and the tests of what runs in it (some 460 MB): half a minute more to build it where pip has not yet done so"
	@[[ -t 2 ]] && screen=1 || screen=0; \
	$(BIN)/pip install --progress-bar off --no-compile --require-hashes --no-deps --no-build-isolation --use-pep517 -r $< | awk -v screen=$$screen "$$FETCHED" >&2
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true
	@touch $@

servers: venv ## the servers that the tests of stores, of PostgreSQL and of NATS run against, in ~/.cache/iceberg-sfn
	@$(BIN)/python deploy/fetch/servers.py

catalog: jars ## Iceberg's own REST catalog with a table, on port 8181, for five minutes against it
	@$(BIN)/python deploy/rest-fixture/serve.py build/lake 8181

demo: venv ## a real catalog, the service and a table, end to end; without Java or a network on PyIceberg's SQL catalog
	@$(MAKE) jars || echo >&2 "make: no catalog server: the demo does without"
	@$(BIN)/sfn demo

tour: spark jars ## the life of a table in Spark SQL, step by step (some two minutes)
	@$(BIN)/python -m tests.spark.tour

# Not many more jobs than processors: some tests take times. A file's tests stay together since they share servers.
# xdist's own order has files of few tests last, however long they take: tests/conftest.py has the long ones first.
# A process that dies ends the run: one in its place would never be given the rest of its file, and all would wait for it.
test: lint ## lint, then every test, JOBS at a time; without a network those that need no server
	@$(MAKE) rck || { [[ "$${CI:-}" != true ]] && echo >&2 "make: no catalog server, or no compatibility kit: the tests that need it are skipped, and say so at the end"; }
	@$(MAKE) servers || { [[ "$${CI:-}" != true ]] && echo >&2 "make: a server is missing: the tests of stores, of PostgreSQL or of NATS that need it are skipped, and say so at the end"; }
	@$(MAKE) spark || { [[ "$${CI:-}" != true ]] && echo >&2 "make: no PySpark, or no runtime of Iceberg's for it: the tests that need them are skipped, and say so at the end"; }
	@$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(MEASURE)

coverage: ## test, with branch coverage: it takes half as long again
	@$(MAKE) test MEASURE="--cov --cov-report=term --cov-report=xml:build/coverage/coverage.xml"

lint: venv ## ruff, mypy, import-linter, hadolint, and the Compose Specification's schema
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(MAKE) .venv/spark || { [[ "$${CI:-}" != true ]] && echo >&2 "make: no PySpark: mypy leaves out what imports it"; }
	@$(BIN)/mypy $$([[ -e .venv/spark ]] || echo '--exclude=/(pyspark_sfn|spark)(/|\.py$$)')
	@$(BIN)/lint-imports --config .ci/importlinter.toml --no-logo
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec docker-compose.yml

format: venv ## sort the imports and format
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

simulate: venv ## N random histories of the simulator (make simulate N=200)
	@$(BIN)/python -m tests.simulation $(N)

fuzz: venv ## inputs that a fuzzer makes up, ten minutes for each target (SFN_FUZZ_SECONDS for less)
	@$(BIN)/python -m tests.fuzz --seconds "$${SFN_FUZZ_SECONDS:-600}"

fuzz-readers: jars spark ## N odd tables, read in every way and compared with Iceberg's own library (make fuzz-readers N='2000 --from 5000')
	@$(BIN)/python -m tests.spark.differential $(N)

faults: jars servers ## the tests that kill, pause, starve and cut off real processes: twenty minutes (SFN_FAULT_ROUNDS for less)
	@SFN_FAULT_ROUNDS=$${SFN_FAULT_ROUNDS:-60} $(BIN)/pytest -rP tests/faults

# Alone on the machine, or the figures are of something else.
bench: servers ## measure against the goals, into build/bench.json (parts of it: make bench BENCH='accept --runs 1')
	@$(BIN)/python -m tests.bench $(BENCH)

bench-spark: spark ## measure reads on Spark against the goals, into the same file (less of it: make bench-spark BENCH='--rows 100000 --runs 1')
	@$(BIN)/python -m tests.bench.spark $(BENCH)

bench-audit: spark ## measure audits of 100,000 tables against the goals, into the same file: twelve minutes (less: make bench-audit BENCH='--tables 5000 --runs 1')
	@$(BIN)/python -m tests.bench.audit $(BENCH)

soak: venv ## ten minutes of load: memory and files stay bounded (SFN_SOAK_SECONDS for less)
	@$(BIN)/python -m tests.bench soak --soak-seconds "$${SFN_SOAK_SECONDS:-600}"

# uv alone resolves for every platform at once, and it reads none of pip's settings. An image has what was tested: its own
# locks have the versions of the first one. PySpark, half a gigabyte, has one beside it: what the demo fetches is without.
lock: ## pin the dependencies anew; make lock UPGRADE=--upgrade for newer versions
	@tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	$(PYTHON) -m venv "$$tools"; \
	"$$tools/bin/pip" install --quiet uv==0.13.9; \
	index=$$("$$tools/bin/pip" config get global.index-url 2>/dev/null || true); \
	index=$${PIP_INDEX_URL:-$$index}; \
	pin() { \
	  $${index:+env UV_DEFAULT_INDEX="$$index"} "$$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' $(UPGRADE) "$$@"; \
	}; \
	told() { \
	  "$$tools/bin/python" -c 'import tomllib; own = tomllib.load(open("pyproject.toml", "rb")); project, build = own["project"], own["build-system"]; '"print(*$$1, sep='\n')"; \
	}; \
	pin $$(told '("--extra=" + extra for extra in project["optional-dependencies"] if extra != "spark")') -o deploy/requirements.lock pyproject.toml; \
	told '(one for one in project["optional-dependencies"]["spark"] if one.startswith("pyspark"))' | \
	  pin --constraint deploy/requirements.lock -o deploy/spark.lock -; \
	pin --extra pyiceberg --extra s3 --extra azure --extra gcs --extra postgres --extra nats --constraint deploy/requirements.lock -o deploy/image.lock pyproject.toml; \
	told 'build["requires"]' | \
	  pin --constraint deploy/requirements.lock -o deploy/build.lock -

clean: ## remove what the targets above made here
	rm -rf .venv build dist .grimp_cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find deploy service tests -name __pycache__ -type d -prune -exec rm -rf {} +
