# One word for each job; CI and people use the same words. Needs Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
KERNELS := tests/unit/engine/kernels/test_kernels.py tests/unit/engine/kernels/test_tiles.py tests/unit/engine/tape/test_team.py

unexport PYTHONDONTWRITEBYTECODE # else each process that a test starts compiles the packages from their text: half a second of it, for `--help` too

.PHONY: repro test quick campaigns lint types processors pythons docs proof venv venv-locked lock bench clean

repro: venv     ## the main job: 30-layer LoRA training, three ways, with a verdict
	$(BIN)/allocsim repro run ggml-1501 --out out/ggml-1501

test: venv      ## every test but the campaigns
	$(BIN)/python -m pytest -n 2 --dist worksteal

quick: venv     ## every test but the slow ones
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

campaigns: venv ## what is long by nature; results in benchmarks/results/campaigns.json
	$(BIN)/python -m pytest -n 2 --dist worksteal -m campaign
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 2 --dist worksteal tests/laws

lint: venv      ## style, and what may import what
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: venv     ## types
	$(BIN)/mypy

pythons: venv   ## a short selection of the tests on each further Python that is named in pyproject.toml and found here
	$(BIN)/python .ci/pythons.py

processors: venv ## some tests as on other processors: the BLAS kernels of AVX2, and code for any x86-64
	OPENBLAS_CORETYPE=Haswell $(BIN)/python -m pytest -q -n 2 $(KERNELS) -k "not vectors_of_256"
	NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= $(BIN)/python -m pytest -q -n 2 $(KERNELS) -k "not vectors_of_256"

docs: venv      ## the documentation as a site, in out/site/site; dead links fail
	$(BIN)/python docs/site/build.py

proof:          ## the proof, and the checker that is made from it; needs coq and ocaml-nox of Debian
	$(MAKE) -C proof

bench: venv     ## figures, written to benchmarks/results
	$(BIN)/python benchmarks/run.py

venv: $(STAMP)  ## a ready .venv

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,ggml,peers]"
	touch $(STAMP)

venv-locked:    ## a .venv of exactly what was tested: every file is checked against its hash
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

lock:           ## requirements.lock and sbom.json, from constraints.txt
	$(BIN)/python benchmarks/lock.py

clean:
	rm -rf $(VENV) $(VENV)-* out .pytest_cache .mypy_cache .ruff_cache .hypothesis
