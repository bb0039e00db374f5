# The local stack: see scripts/stack.sh. RUN_DIR= and PORT_BASE= choose a folder and ports, TLS=yes
# that its listeners speak TLS.

export RUN_DIR PORT_BASE WITH_ZOOKEEPER TLS

.PHONY: packages run run-ha stop-ha services start stop status clean lint format coverage help
.PHONY: record test test-alerts test-console test-generators test-outside test-sanitized

packages: ## install the Debian packages that are missing
	@scripts/packages.sh

run: packages ## the whole stack with a sample campaign and a rush on it
	@$(MAKE) --no-print-directory build
	@scripts/stack.sh run

# Of a folder that is made anew, so that its campaign is the first.
record: packages ## docs/start/run.svg: what `make run` prints, as a terminal shows it
	@[ ! -e .run ] || { echo "record: there is a .run: make clean removes it" >&2; exit 1; }
	@$(MAKE) --no-print-directory build
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL scripts/record.py docs/start/run.svg make run
	@scripts/stack.sh clean

services: packages ## Redis, RabbitMQ and PostgreSQL only, migrated
	@$(MAKE) --no-print-directory build
	@scripts/stack.sh services

run-ha: ## three machines on this one, any of which may be lost: scripts/ha.sh help
	@scripts/packages.sh ha
	@$(MAKE) --no-print-directory build
	@scripts/ha.sh run

stop-ha: ## stop them
	@scripts/ha.sh stop

start: ## start one process of the stack again: NAME=worker-1
	@scripts/stack.sh start $(NAME)

stop: ## stop the stack, or one process: NAME=gateway
	@scripts/stack.sh stop $(NAME)

status: ## what runs, and on which ports
	@scripts/stack.sh status

clean: ## stop, then remove what was built and the run folders
	@for dir in $(or $(RUN_DIR),.run) .run-test .run-test-* .run-torture .run-torture-*; do \
		RUN_DIR=$$dir scripts/stack.sh clean || exit 1; \
	done
	@[ -n "$(RUN_DIR)" ] || scripts/ha.sh clean
	@rm -rf build build-*

test: ## the tests on private stacks: ALL=1 SAN=address|undefined|thread TESTS=path TLS=yes
	@scripts/test.sh

test-sanitized: ## all tests with the programs under ASan, then under TSan: some hours
	@ALL=1 SAN=address scripts/test.sh
	@ALL=1 SAN=thread scripts/test.sh

test-alerts: ## each alert is caused once, with Prometheus watching a stack: 10 min
	@TESTS=tests/alerts/causes.py scripts/test.sh

test-console: ## the console in Chromium (400 MB, installed), without TLS and with it
	@scripts/packages.sh console
	@$(MAKE) --no-print-directory build build/console/$(NPM_DONE)
	@ALL=1 TLS=no TESTS=tests/console CONSOLE_PICTURES=$(CONSOLE_PICTURES) scripts/test.sh
	@ALL=1 TLS=yes TESTS=tests/console scripts/test.sh

test-outside: ## with Chromium, testssl.sh, slowhttptest and PgBouncer (400 MB, installed)
	@scripts/packages.sh outside
	@TLS=no TESTS=tests/e2e/test_e2e_browser.py scripts/test.sh
	@TLS=yes TESTS=tests/e2e/test_e2e_browser.py scripts/test.sh
	@TESTS=tests/e2e/test_e2e_outside.py scripts/test.sh
	@TESTS=tests/e2e/test_e2e_pooler.py scripts/test.sh

# Packages of npm, by a list of exact versions and hashes. The file is what npm writes last.
NPM_DONE = node_modules/.package-lock.json
define npm_install
@mkdir -p $(@:/$(NPM_DONE)=)
@cp $^ $(@:/$(NPM_DONE)=)/
@npm ci --prefix $(@:/$(NPM_DONE)=) --no-audit --no-fund --ignore-scripts --loglevel error
@touch $@
endef
build/%/$(NPM_DONE): tests/%/package-lock.json tests/%/package.json
	$(npm_install)
build/diagrams/$(NPM_DONE): scripts/site/package-lock.json scripts/site/package.json
	$(npm_install)

test-generators: ## clients and types from the descriptions of the APIs, by npm (300 MB, installed)
	@scripts/packages.sh generators
	@$(MAKE) --no-print-directory build build/generators/$(NPM_DONE)
	@TESTS=tests/generators/test_generators.py scripts/test.sh

coverage: ## lines and branches that the tests reach, per folder
	@scripts/coverage.sh

lint: packages ## check format and style: C, Python, Lua, shell
	@scripts/lint.sh

format: packages ## format C and Python
	@scripts/lint.sh format

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | sort | expand -t 12
