# `make demo` audits and measures a sample model; `make test` checks and tests everything; `make docs` builds the site in build/site.
# Each creates the environment that it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test checked tests docs package trainers cluster mcp check gate mutants install clean

demo: $(STAMP)
	$(BIN)/perfaudit scan sample_models/digits_cnn.py --measure --exit-zero

# What checks and gates runs beside the tests: these wait for a fifth of their time, and what they time is hardly disturbed.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j2 checked tests

checked: $(STAMP)
	@nice $(MAKE) --no-print-directory --output-sync=target check gate

# Files with slow tests come first (tests/conftest.py), so that both workers end at about the same time.
tests: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cases-together

# Sample programs that train with Hugging Face, Lightning and Accelerate, in an environment that has these.
trainers: pyproject.toml constraints.txt
	test -d $(VENV)-trainers || $(PYTHON) -m venv $(VENV)-trainers
	$(VENV)-trainers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,samples,trainers,dev]'
	$(VENV)-trainers/bin/python -m pytest tests/training/test_trainers.py tests/callbacks/test_in_trainers.py

# `--on ray` and `--on slurm`: Ray's own test cluster and submitit's executor for one machine, in an environment that has both.
cluster: pyproject.toml constraints.txt
	test -d $(VENV)-cluster || $(PYTHON) -m venv $(VENV)-cluster
	$(VENV)-cluster/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,samples,ray,slurm,dev]'
	$(VENV)-cluster/bin/python -m pytest tests/cluster

# The site, from docs/, with every warning an error; an environment of its own, without torch, in ten seconds.
docs: pyproject.toml constraints.txt
	test -d $(VENV)-docs || $(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(VENV)-docs/bin/python -m sphinx --quiet --fail-on-warning --keep-going -b html -c docs . build/site
	@echo "the site is in build/site: open build/site/index.html"

# Wheel and source distribution in dist/, with the metadata that a package index asks for.
package: pyproject.toml constraints.txt
	test -d $(VENV)-package || $(PYTHON) -m venv $(VENV)-package
	$(VENV)-package/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	rm -rf dist
	$(VENV)-package/bin/python -m build --outdir dist .
	$(VENV)-package/bin/python -m twine check --strict dist/*

# Tools for coding agents, with the SDK of their protocol.
mcp: pyproject.toml constraints.txt
	test -d $(VENV)-mcp || $(PYTHON) -m venv $(VENV)-mcp
	$(VENV)-mcp/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,samples,mcp,dev]'
	$(VENV)-mcp/bin/python -m pytest tests/mcp_server

# The sample models against the previous commit: what its step counts, and what the scanner says of it. Both sides are counted by
# the perfaudit that is here: where no model has changed, one of them is enough to see that the gate works.
gate: $(STAMP)
	@if ! git rev-parse --quiet --verify HEAD~1 >/dev/null 2>&1; then echo "no previous commit here: the gate is left out"; else models=; \
	if git diff --quiet HEAD~1 -- sample_models; then models=sample_models/digits_cnn.py; fi; \
	$(BIN)/perfaudit gate $$models --against HEAD~1 --layers findings,counters --no-history; fi

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Which changes of these modules no test notices: make mutants MODULES=perfaudit/measure/judge.py SAMPLE=50
MODULES ?= perfaudit/measure perfaudit/tune perfaudit/gate perfaudit/static/edit.py perfaudit/render
SAMPLE ?= 0
SEED ?= 1
mutants: $(STAMP)
	$(BIN)/python benchmarks/mutants.py $(MODULES) --sample $(SAMPLE) --seed $(SEED)

install: $(STAMP)

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
LARGE := numpy scipy pandas scikit-learn sympy networkx pillow mypy hypothesis ruff

# Made anew when what is installed changes, or when the interpreter it was made with is gone.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "perfaudit needs Python 3.11 or newer; name one: make PYTHON=python3.12"; exit 1; }
	$(BIN)/python -c '' 2>/dev/null || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	# torch is two thirds of all bytes: it is unpacked beside the other large ones. What these need comes with the rest.
	$(INSTALL) --no-deps torch & $(INSTALL) --no-deps $(LARGE) && wait $$!
	$(INSTALL) -e '.[torch,samples,dev]'
	# As pip does, but on all cores, and without what no test imports, such as the packages' own tests. What cannot be compiled is a template.
	$(BIN)/python -m compileall -qq -j 0 -x '/(tests|testing/_internal|pip|setuptools|mypyc?|fsspec|sympy/(physics|combinatorics)|scipy/signal|sklearn/linear_model)/|_builtins\.py$$' $(VENV)/lib/python*/site-packages perfaudit || true
	touch $(STAMP)

clean:
	rm -rf $(VENV) $(VENV)-trainers $(VENV)-cluster $(VENV)-mcp $(VENV)-docs $(VENV)-package build dist
