# Everything is installed into the checkout: .venv and build/.
PYTHON ?= python3
VENV := .venv
HELM ?= build/bin/helm
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup debian demo test soak check bench kafka platform release helm manifests clean

help:  ## explain the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev  ## install everything for development into .venv

$(VENV)/.demo: requirements/demo.txt requirements/build.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

debian:  ## install the Debian packages that some tests need (root); see requirements/debian.txt
	@apt-get update -qq
	@DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 $$(grep -v '^#' requirements/debian.txt) > /dev/null

demo: $(VENV)/.demo  ## mock cluster, Sluice and four clients; ends by itself with verdicts and demo.svg
	@$(BIN)/sluice demo

test: $(VENV)/.dev  ## all tests; what a missing tool prevents is named
	@$(BIN)/python -m tests.run

soak: $(VENV)/.dev  ## all tests, RUNS times (10); ends with the first run that fails
	@for run in $$(seq $(or $(RUNS),10)); do echo "run $$run"; $(BIN)/python -m tests.run || exit 1; done

check: $(VENV)/.dev  ## ruff, mypy --strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/.dev  ## cost per request against a bare uvloop pump, the same by TLS, and the micro benches
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.tls

kafka: $(VENV)/.dev  ## a real Apache Kafka in the foreground (VERSION=4.3.1 or 3.9.1)
	@$(BIN)/python -m tests.support.kafka $(VERSION)

platform: $(VENV)/.dev $(HELM)  ## image, pip, pipx, uv, release, chart, Sluice on Spark 4.0 with Iceberg, Delta and Kafka, and with S3A, built and run; needs root, buildah, mmdebstrap, Go, Maven
	@PLATFORM=1 $(BIN)/python -m pytest tests/platform tests/contract/kubernetes/test_chart.py

build/release/.done: requirements/release.txt
	@$(PYTHON) -m venv build/release
	@build/release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	@touch $@

release: build/release/.done  ## wheel, sdist, notes, SBOM and checksums of HEAD into dist/ (TAG=vX.Y.Z, TO=folder)
	@build/release/bin/python -m release $(if $(TAG),--tag $(TAG)) $(if $(TO),--to $(TO))

build/bin/helm:
	@GOBIN=$(CURDIR)/build/bin go install helm.sh/helm/v3/cmd/helm@v3.22.0

helm: build/bin/helm  ## build Helm from source with Go, for the chart of deploy/kubernetes; some minutes

manifests: $(HELM)  ## render deploy/kubernetes/manifests from the chart, and lint it
	@for values in deploy/kubernetes/values/*.yaml; do \
	  $(HELM) lint --strict --quiet deploy/kubernetes/chart --values $$values || exit 1; \
	  $(HELM) template sluice deploy/kubernetes/chart --kube-version 1.37.0 --namespace kafka --values $$values \
	    > deploy/kubernetes/manifests/$${values##*/} || exit 1; \
	done

clean:  ## remove what setup and tests made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
