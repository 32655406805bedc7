SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# twice as many processes as a small machine has cores: waiting for Spark or a server leaves a core idle for a third to
# half of the time; a file's tests share fixtures
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

.PHONY: help setup cluster-env demo demo-ui services collect test test-services test-all test-soak first-hour bench-ingest bench-ingest-growth bench-partial bench-decode bench-deletes bench-lookup bench-idle bench-assess bench-catalog bench-govern bench-plan bench-week bench-past bench-page bench-parse bench-full-load bench-reconcile bench-transaction bench-resolve bench-spill bench-layout bench-uploads docs lint generate format lock wheel clean distclean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup:  ## make .venv from requirements.lock (needs only Python >= 3.11 and Java 17)
	@$(PYTHON) .ci/bootstrap.py

demo: setup  ## run the demo: changes of a Postgres flow into Iceberg tables, no Docker
	$(BIN)/python -m demo

demo-ui: setup  ## run the demo with Airflow's user interface
	$(BIN)/python -m demo --ui

# loading Spark's classes takes a quarter of a short Spark application; see the module
build/spark-classes.jsa: requirements.lock | setup
	$(BIN)/python -m local_services.spark_classes $@

# each process of a test run would rewrite the asserts of all tests for itself, which takes longer than importing them
collect: setup  ## import all tests once, so that they are compiled
	@mkdir -p build
	@$(BIN)/python -m pytest --collect-only -qq > build/collected.txt || { tail -50 build/collected.txt; false; }

test: setup build/spark-classes.jsa  ## run all tests that need no server except Postgres
	$(PYTEST) -m "not services and not soak" $(ARGS)

cluster-env: setup  ## pack the Python packages of executors into build/cluster-env.tar.gz (docs/operations/clusters.md)
	$(BIN)/python .ci/bootstrap.py --cluster-env

services: setup  ## install the servers of test-services
	$(PYTHON) .ci/bootstrap.py --services
	$(BIN)/python -m local_services.install

test-services: services cluster-env build/spark-classes.jsa  ## run the tests against real S3 and REST catalog servers, installing these first
	$(PYTEST) -m "services and not soak" $(ARGS)

test-all: services cluster-env build/spark-classes.jsa  ## run both in one go, as CI does: while one test waits for its server another computes
	$(PYTEST) -m "not soak" $(ARGS)

first-hour: setup  ## run the steps of docs/start/getting-started.md as a new user; steps and minutes as JSON
	$(BIN)/python -m pytest -q -s -m soak tests/demo/test_getting_started.py

test-soak: services cluster-env build/spark-classes.jsa  ## run tests that CI omits: soaks, and further formats, engines and failpoints of a case
	$(BIN)/python -m local_services.install --soak
	$(PYTEST) -n 2 -m soak $(ARGS)

bench-ingest: setup  ## measure ingest: ours, MERGE INTO and Flink on the same events; JSON on the last line
	$(BIN)/python -m benchmarks.ingest $(ARGS)

bench-ingest-growth: setup  ## measure the cost of a batch as its table grows to 50 M rows; JSON on the last line
	$(BIN)/python -m benchmarks.ingest_growth $(ARGS)

bench-partial: setup  ## measure batches of partial updates: ours and MERGE INTO with coalesce; JSON on the last line
	$(BIN)/python -m benchmarks.partial $(ARGS)

bench-decode: setup  ## measure a task's time for events of every kind, and msgspec alone; JSON on the last line
	$(BIN)/python -m benchmarks.decode $(ARGS)

bench-past: setup  ## measure an export of changes, and a restored moment, against reading everything; JSON on the last line
	$(BIN)/python -m benchmarks.past $(ARGS)

bench-full-load: setup  ## measure the full load of a Postgres table: ours, dlt and bare COPY; JSON on the last line
	$(BIN)/python -m benchmarks.full_load $(ARGS)

bench-reconcile: setup  ## measure the comparison of a table with Postgres: ours and a full outer join; JSON on the last line
	$(BIN)/python -m benchmarks.reconcile $(ARGS)

bench-transaction: setup  ## measure the log of a large transaction, and the ceiling; JSON on the last line
	$(BIN)/python -m benchmarks.transaction $(ARGS)

bench-resolve: setup  ## measure batches whose deletes are resolved: ours, converted and MERGE INTO; JSON on the last line
	$(BIN)/python -m benchmarks.resolve $(ARGS)

bench-spill: setup  ## measure jobs on a table with more deleted keys than memory, and Iceberg's reader; JSON on the last line
	$(BIN)/python -m benchmarks.spill $(ARGS)

bench-layout: setup  ## measure compaction and sort of 2 GB: ours, Iceberg's and DuckDB alone; JSON on the last line
	$(BIN)/python -m benchmarks.layout $(ARGS)

bench-uploads: setup  ## measure files written into a distant S3: ours, Arrow's stream and one request; JSON on the last line
	$(BIN)/python -m benchmarks.uploads $(ARGS)

bench-deletes: setup  ## measure rewrite_delete_files: ours and Iceberg's procedures on one table; JSON on the last line
	$(BIN)/python -m benchmarks.deletes $(ARGS)

bench-lookup: setup  ## measure the files that a key look-up opens before and after the nightly DAG; JSON on the last line
	$(BIN)/python -m benchmarks.lookup $(ARGS)

bench-idle: setup  ## measure an hour without work, with and without Spark; JSON on the last line
	$(BIN)/python -m benchmarks.idle $(ARGS)

bench-assess: setup  ## measure assessing a catalog of 10,000 tables and planning; JSON on the last line
	$(BIN)/python -m benchmarks.assess $(ARGS)

bench-catalog: services  ## measure commits, listings and loads: an object store alone, SQLite, Postgres and REST; JSON on the last line
	$(BIN)/python -m benchmarks.catalog $(ARGS)

bench-govern: setup  ## measure the cost of one more table in an application of several steps; JSON on the last line
	$(BIN)/python -m benchmarks.govern $(ARGS)

bench-plan: setup  ## measure what a plan saves readers under a budget, and the error of predictions; JSON on the last line
	$(BIN)/python -m benchmarks.plan $(ARGS)

bench-week: setup  ## measure a week of 30 tables, hour by hour, under the governance DAGs (one to two hours); JSON on the last line
	$(BIN)/python -m benchmarks.week $(ARGS)

bench-page: setup  ## measure how long the page Lakehouse takes to list 200 tables; JSON on the last line
	$(BIN)/python -m benchmarks.page $(ARGS)

bench-parse: setup  ## measure the time to parse each DAG file; JSON on the last line
	$(BIN)/python -m benchmarks.parse $(ARGS)

docs: setup  ## build the pages of docs/ as a site with search into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

lint: setup  ## check style, types and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir build/import-linter

generate: setup  ## generate operators, tables of docs, the schema and the map from the code
	$(BIN)/python .ci/generate.py

format: setup  ## rewrite the files in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# mysqlclient must be compiled; only Airflow's MySqlHook needs it, which nothing here calls
lock: setup  ## resolve requirements.lock again
	@uv=$$(command -v uv || echo build/tools/uv-*/bin/uv); \
	$$uv pip compile setup.cfg --extra spark --extra postgres --extra mysql --extra kafka --extra openlineage --extra demo --extra test \
	  --no-emit-package mysqlclient --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-annotate --upgrade --custom-compile-command "make lock" -c .ci/pins.txt -o requirements.lock -q

wheel:  ## build the wheel into dist/ without .venv (seconds), and constraints.txt, the versions that the tests run with
	@rm -f dist/*.whl
	@$(PYTHON) .ci/bootstrap.py --wheel
	@sed -nE 's/^([a-zA-Z0-9][^ ]*==[^\]*[^ \]) *\\?$$/\1/p' requirements.lock > dist/constraints.txt

clean:  ## remove the output of builds and tests, but not .venv
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean  ## remove .venv too
	rm -rf .venv
