# Two commands on a fresh machine: make run, make test. Everything lives in .venv, data/ and outputs/.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup run movie seeds sensitivity table1 table2 table3 paper atlas choices judges test test-slow test-compare coverage lint format docs bench compare wheel clean

help: ## list the targets
	@grep -E '^[a-z0-9 -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

# A stamp is renewed when the dependencies change.
.venv/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[all]'
	@touch $@

.venv/.dev: .venv/.run
	$(PIP) --editable '.[dev]'
	@touch $@

setup: .venv/.dev ## make .venv with everything that running and testing need

run: .venv/.run ## the main job: Adults from end to end, all six explainers (ARGS="k=2 seed=1" adds settings)
	$(BIN)/cfeval run dataset=adults search=discrete $(ARGS)

movie: .venv/.run ## Movie Reviews from end to end, with the continuous search
	$(BIN)/cfeval run dataset=movie_reviews search=continuous $(ARGS)

seeds: .venv/.run ## Adults with five seeds, gathered into one table (ARGS="dataset=movie_reviews" for the other)
	$(BIN)/cfeval run --multirun 'seed=range(5)' $(ARGS)

sensitivity: .venv/.run ## does the ranking of explainers hold under choices that should not matter? 72 runs of Adults
	$(BIN)/cfeval run --multirun distance=euclidean,cosine,mahalanobis search.pick=first,nearest,largest_drop k=1,2 \
		truth=signed,contrast explainer.omission.removal=marginal,zero figures=[] report=false bounds=0 $(ARGS)

# The folders are named after the settings, so that a run with the same inputs is not computed again.
PAPER := outputs/paper
SEEDS ?= 0,1,2,3,4
TRUTHS ?= signed,shapley,contrast,absolute
EXPERIMENTS = $(BIN)/cfeval run --multirun seed=$(SEEDS) bounds=0 figures=[] report=false hydra.sweep.dir=$(PAPER)/runs \
	'hydra.sweep.subdir=$${hydra:runtime.choices.experiment}/$${hydra:runtime.choices.truth}-$${seed}' $(ARGS)

table1 table2: .venv/.run ## the paper's Table 1 or 2 and cfeval, over five seeds
	$(EXPERIMENTS) 'experiment=glob(table1*)' truth=signed
	$(BIN)/cfeval paper compare $(PAPER)/runs --into $(PAPER)/$@ --tables $(subst table,,$@)

table3: .venv/.run ## the paper's Table 3 and cfeval, over five seeds
	$(EXPERIMENTS) experiment=table3 truth=signed
	$(BIN)/cfeval paper compare $(PAPER)/runs --into $(PAPER)/$@ --tables 3

paper: .venv/.run ## all of the paper's tables and claims and cfeval, five seeds, four truths (10 to 15 minutes; again: seconds)
	$(EXPERIMENTS) 'experiment=glob(table*)' truth=$(TRUTHS)
	$(BIN)/cfeval paper compare $(PAPER)/runs --into $(PAPER)

SCALE ?= full

atlas: .venv/.run ## which metric agrees with the ground truth: 8 data sets, 6 judges, 5 seeds, two k (two and a half hours; SCALE=small: a part of it in ten minutes)
	$(BIN)/cfeval atlas --scale $(SCALE) $(if $(filter full,$(SCALE)),,--into outputs/atlas-$(SCALE)) $(ARGS)

CHOICES = $(BIN)/cfeval run --multirun bounds=0 figures=[] report=false $(ARGS) hydra.sweep.dir=outputs/choices

choices: .venv/.run ## which choices matter to the result: three sweeps for docs/reproduction.md (10 minutes)
	$(CHOICES)/tables experiment=table1_adults truth=$(TRUTHS) search.pick=auto,first,nearest \
		explainer.omission.removal=marginal,zero distance.space=auto,embedding
	$(CHOICES)/incomplete experiment=table3 incomplete=skip,random,keep truth=signed,contrast
	$(CHOICES)/sentences experiment=table1_movie_reviews search.alpha=10,30,100,300 truth=signed,contrast \
		explainer.omission.removal=mask,zero

JUDGES = $(BIN)/cfeval run --multirun experiment=judges dataset.candidates=10 model=estimator \
	model.estimator._target_=sklearn.ensemble.HistGradientBoostingClassifier,sklearn.ensemble.RandomForestClassifier \
	hydra.sweep.dir=outputs/judges 'hydra.sweep.subdir=$${dataset.name}-$${model.estimator._target_}-$${seed}' $(ARGS)

judges: .venv/.run ## how good is the answer? 26 runs of boosted trees and forests, and the regret of each way to choose (30 minutes)
	$(JUDGES) dataset=pima,german,compas,heloc seed=0,1,2
	$(JUDGES) dataset=adults_raw seed=0
	$(BIN)/cfeval judge check outputs/judges --into outputs/judges
	$(BIN)/python benchmarks/answers.py outputs/judges

test: lint ## lint, types and all tests but the slow ones
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal -m "not slow"

test-slow: .venv/.dev ## the slow tests, and the property tests with 100 random examples each
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal -m "slow or hypothesis" --hypothesis-profile full

# Quantus requires an opencv that needs the libraries of a screen; its other dependencies are installed already.
.venv/.compare: .venv/.dev
	$(PIP) --no-deps quantus opencv-python-headless cachetools
	@touch $@

test-compare: .venv/.compare ## the metrics against those of Quantus, which is not needed for anything else
	$(BIN)/pytest tests/metric/test_quantus.py

coverage: .venv/.dev ## coverage of the tests of `make test`; fails below the minimum in pyproject.toml
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal -m "not slow" --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

lint: .venv/.dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.dev ## the site, from docs/, conf/ and docstrings, in build/site (strict on links, no network)
	$(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: .venv/.run ## benchmarks on the full data, as tables in benchmarks/ (50 minutes)
	$(BIN)/python benchmarks/optimum.py
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/large.py --sizes 10000 30000 100000
	$(BIN)/python benchmarks/fixed.py
	$(BIN)/python benchmarks/slow_models.py
	$(BIN)/python benchmarks/policy.py

REFERENCE := outputs/reference

compare: .venv/.run ## compute the reference experiments and compare every value with benchmarks/reference (2 minutes)
	rm -rf $(REFERENCE)
	$(BIN)/python benchmarks/compare_runs.py run $(REFERENCE) $(ARGS)
	$(BIN)/python benchmarks/compare_runs.py compare benchmarks/reference/outputs $(REFERENCE)

wheel: .venv/.dev ## build dist/cfeval-*.whl
	$(BIN)/python -m build --wheel
	@rm -rf build

clean: ## remove what the other targets made, downloads and results included
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	find outputs -mindepth 1 ! -path outputs/README.md -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	sed -nE 's/^ +name: ([a-zA-Z0-9_-]+\.[a-z]+)$$/data\/\1/p' conf/dataset/*.yaml | xargs rm -f  # the user's own files stay
	rm -rf data/.fetch-* data/cache
