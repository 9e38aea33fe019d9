# `make book` and `make test` do all of their own set-up in .venv, from the lock.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONPATH := $(CURDIR)/lib

.PHONY: nbval book publish push-site colab colab-3.12 colab-3.13 test bench test-rest test-evidence test-pages test-pages-zh test-keyboard test-mouse outputs lock clean

book: .venv/ready
	$(BIN)/python tools/book.py

publish: .venv/ready  ## make publish SITE=https://… REPO=https://…: the site for any static host, in .venv/publish/_build/html
	rm -rf .venv/publish
	ONEGPU_ADDRESS="$(SITE)" ONEGPU_REPOSITORY="$(REPO)" $(BIN)/python tools/book.py .venv/publish .venv/site

push-site:  ## what `make publish` made, as the only commit of the branch gh-pages of REPO
	touch .venv/publish/_build/html/.nojekyll
	cd .venv/publish/_build/html && rm -rf .git && git init -q -b gh-pages && git add -A && git -c user.name=publish -c user.email=publish@localhost commit -qm "The book as published"
	cd .venv/publish/_build/html && git -c http.extraheader="$$(git -C "$(CURDIR)" config http.$(GITHUB_SERVER_URL)/.extraheader)" push -q --force "$(REPO)" gh-pages

PYTEST = $(BIN)/python -m pytest -q -p no:cacheprovider
BUILT = ONEGPU_SITE=.venv/site/_build/html $(PYTEST)
PAGES = $(BUILT) tests/test_page.py

test: .venv/ready  ## the pages in three browsers beside everything else
	$(BIN)/ruff check lib tests bench tools
	rm -rf .venv/site
	$(BIN)/python tools/book.py .venv/site
	$(MAKE) --no-print-directory -j 6 --output-sync=target --keep-going test-pages test-pages-zh test-rest test-evidence test-keyboard test-mouse

test-rest:
	$(BUILT) --ignore tests/test_page.py --ignore tests/test_firefox.py --ignore tests/test_evidence.py --ignore tests/test_properties.py tests
nbval: .venv/ready  ## the stored outputs again, by nbval, which runs each notebook; `make test` compares them with what the build ran
	$(PYTEST) --nbval index.ipynb symbols.ipynb chapters zh
test-evidence:
	$(PYTEST) tests/test_evidence.py tests/test_properties.py
# What uses the published site stays in one process, which builds it.
SERVED = published or push or test_search or under_a_path
test-pages:
	$(PAGES) tests/test_firefox.py -k "not test_controls and (not zh or $(SERVED))"
test-pages-zh:
	$(PAGES) -k "not test_controls and zh and not ($(SERVED))"
test-keyboard:
	$(PAGES) -k "test_controls and keyboard"
test-mouse:
	$(PAGES) -k "test_controls and mouse"

colab: colab-3.12 colab-3.13  ## every notebook alone in an empty directory, on Colab's versions and two Pythons
colab-3.12 colab-3.13: colab-%: .venv/ready  # uv finds the Python or fetches it
	$(BIN)/uv venv --quiet --clear --python $* .venv/colab-$*
	$(BIN)/uv pip install --quiet --compile-bytecode --python .venv/colab-$*/bin/python -r tests/colab.txt
	ONEGPU_COLAB=$(CURDIR)/.venv/colab-$*/bin/python $(PYTEST) tests/test_colab.py

bench: .venv/ready  ## the budgets beside what is measured and beside the usual way, into bench/RESULTS.md
	$(BIN)/python bench/run.py

outputs: .venv/ready  ## run every notebook and store what it prints
	$(BIN)/python tests/store_outputs.py

lock: .venv/ready  ## pin every dependency again, for all Pythons and platforms
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --no-header --upgrade pyproject.toml -o requirements.lock

.venv/ready: requirements.lock  # compiled once: each kernel would do it again where Python may not write beside its sources
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -r requirements.lock
	touch $@

clean:
	rm -rf _build .venv
