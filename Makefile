# `make book` and `make test` do all of their own set-up in .venv, from the lock.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONPATH := $(CURDIR)/lib

.PHONY: book test outputs lock clean

book: .venv/ready
	$(BIN)/python tests/fill_cache.py
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jupyter-book build -W -n --keep-going .
	@echo "Open file://$(CURDIR)/_build/html/index.html"

PYTEST = $(BIN)/python -m pytest -q -p no:cacheprovider

test: .venv/ready  ## the pages in the browser beside everything else
	$(BIN)/ruff check lib tests
	@$(PYTEST) tests/test_page.py > .venv/test_page.log 2>&1 & pages=$$!; \
	$(PYTEST) --nbval --ignore tests/test_page.py tests index.ipynb symbols.ipynb chapters; rest=$$?; \
	wait $$pages; pages=$$?; cat .venv/test_page.log; exit $$((rest + pages))

outputs: .venv/ready  ## run every notebook and store what it prints
	$(BIN)/python tests/store_outputs.py

lock: .venv/ready  ## pin every dependency again, for all Pythons and platforms
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --no-header --upgrade pyproject.toml -o requirements.lock

.venv/ready: requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock
	touch $@

clean:
	rm -rf _build .venv
