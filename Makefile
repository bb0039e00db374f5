# make run     brings the whole system up and does the main job
# make test    runs every test on a private stack
# make help    lists the rest

SAN ?=
FAULTS ?=
WITH_ZOOKEEPER ?=
BUILD_DIR ?= build$(if $(WITH_ZOOKEEPER),-zookeeper)$(if $(SAN),-$(SAN))$(if $(FAULTS),-fault)

CC ?= gcc
CSTD = -std=c11 -D_GNU_SOURCE
# With a sanitizer GCC warns of what is none; its manual advises against -Werror then.
WARN = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 \
	$(if $(SAN),,-Werror)
HARDEN = -fPIE -fstack-protector-strong $(if $(SAN),,-D_FORTIFY_SOURCE=2)
OPTIMISE = $(if $(filter coverage,$(SAN)),-O0,-O2) -g -fno-omit-frame-pointer
comma := ,
SANITIZE_address = -fsanitize=address$(comma)undefined -fno-sanitize-recover=all
SANITIZE_undefined = -fsanitize=undefined -fno-sanitize-recover=all
SANITIZE_thread = -fsanitize=thread
SANITIZE_fuzz = -fsanitize=fuzzer-no-link$(comma)address$(comma)undefined -fno-sanitize-recover=all
# No sanitizer, but a build of its own as well.
SANITIZE_coverage = --coverage -fprofile-update=atomic
SANITIZE = $(SANITIZE_$(SAN))

PG_INCLUDE := $(shell pg_config --includedir 2>/dev/null || echo /usr/include/postgresql)
# hiredis has TLS in a library of its own: not in Debian 12.
HIREDIS_SSL := $(shell pkg-config --exists hiredis_ssl 2>/dev/null && echo yes)
CPPFLAGS = -I. -I$(PLAIN_DIR)/gen $(if $(FAULTS),-DCOUPON_FAULTS) -I$(PG_INCLUDE) \
	$(if $(HIREDIS_SSL),-DHIREDIS_SSL) $(if $(WITH_ZOOKEEPER),-DWITH_ZOOKEEPER -DTHREADED)
# EXTRA_CFLAGS and EXTRA_LDFLAGS: those of a packager.
CFLAGS = $(CSTD) $(OPTIMISE) $(WARN) $(HARDEN) $(SANITIZE) $(EXTRA_CFLAGS)
LINKER ?=
LINK = -Wl,-z,relro,-z,now,--as-needed $(SANITIZE) $(LINKER) $(EXTRA_LDFLAGS)
LDFLAGS = -pie $(LINK)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
LDLIBS = -lrabbitmq $(if $(HIREDIS_SSL),-lhiredis_ssl) -lhiredis -lpq -lcjson -lssl -lcrypto -lcsv \
	-lcurl -levent_openssl -levent -lhttp_parser -lsodium -lsystemd -lpthread -lm \
	$(if $(WITH_ZOOKEEPER),-lzookeeper_mt)
OPTIONAL = $(if $(WITH_ZOOKEEPER),,lock/lock_zookeeper.c)

FOLDERS = gateway worker events keeper admin rush ctl client coupon compare codes lock common
# A build with fault points compiles the files that have some, and takes the other objects from the
# build without.
PLAIN_DIR = $(BUILD_DIR:%-fault=%)
FAULT_SOURCES := $(if $(FAULTS),$(shell grep -rl --include='*.c' common/fault.h $(FOLDERS)))
object = $(if $(filter $(1),$(FAULT_SOURCES)),$(BUILD_DIR),$(PLAIN_DIR))/$(1:.c=.o)
objects = $(foreach source,$(filter-out $(OPTIONAL),$(wildcard $(1)/*.c $(1)/*/*.c \
	$(1)/*/*/*.c)),$(call object,$(source)))
library_objects = $(filter-out %/main.o,$(call objects,$(1)))

PROGRAMS = $(BUILD_DIR)/coupon-gateway $(BUILD_DIR)/coupon-worker $(BUILD_DIR)/couponctl \
	$(BUILD_DIR)/coupon-admin $(BUILD_DIR)/coupon-rush
LOCK_LIBRARY = $(BUILD_DIR)/libcouponlock.so.0
SHARED_DIR = $(PLAIN_DIR)/shared
shared_objects = $(patsubst %.c,$(SHARED_DIR)/%.o,$(filter-out $(OPTIONAL),$(wildcard $(1))))
LIBRARIES = $(patsubst %,$(BUILD_DIR)/lib%.a,$(FOLDERS))
TEST_PROGRAMS = $(patsubst tests/unit/%.c,$(BUILD_DIR)/tests/unit_%,$(wildcard tests/unit/*.c)) \
	$(SIMULATIONS) $(FUZZ_TARGETS) $(AGENTS)
AGENTS = $(BUILD_DIR)/tests/lock_agent $(BUILD_DIR)/tests/models $(BUILD_DIR)/compare-way
SIMULATIONS = $(patsubst tests/sim/%.c,$(BUILD_DIR)/tests/sim_%,$(wildcard tests/sim/*.c))
FUZZ_TARGETS = $(patsubst tests/fuzz/%.c,$(BUILD_DIR)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
THREAD_TESTS = $(patsubst %,$(BUILD_DIR)/tests/unit_test_%,admission admission_coupons \
	admission_memory confirm outboxes publisher rabbit_publisher thread waiters watchdog)
# With SAN=fuzz libFuzzer provides main(); else the targets replay their corpus.
FUZZ_MAIN = $(if $(filter fuzz,$(SAN)),-fsanitize=fuzzer,$(BUILD_DIR)/tests/fuzz/replay.o)
EMBEDDED = $(foreach folder,lua sql/schema sql/migration sql/function sql/query,$(sort \
	$(wildcard $(folder)/*.lua $(folder)/*.sql))) sql/roles.sql docs/reference/openapi.json \
	admin/openapi.json $(wildcard console/*) $(MANUAL)
# The pages that the console shows: it reaches no other host.
MANUAL = $(foreach page,guides/console guides/codes guides/webhooks guides/events guides/runbook \
	reference/errors,docs/$(page).md)

.PHONY: build library tests agents thread-tests thread-names fuzzers fuzz fuzz-corpus
build: $(PROGRAMS) ## build the programs
library: $(LOCK_LIBRARY) ## build the shared library of locks
tests: $(TEST_PROGRAMS) ## build the unit tests, simulations and fuzz targets
agents: $(AGENTS)
thread-tests: $(THREAD_TESTS)
thread-names:
	@printf '%s\n' $(notdir $(THREAD_TESTS))
fuzzers: $(FUZZ_TARGETS)
fuzz: ## feed each fuzz target for FUZZ_S=60 seconds: FUZZ=json for one of them
	@scripts/fuzz.sh run
fuzz-corpus: ## put what fuzzing found into tests/fuzz/corpus, where it reaches more code
	@scripts/fuzz.sh merge

include scripts/install.mk
include scripts/stack.mk
include scripts/compose.mk
include scripts/platforms.mk

.PHONY: tree
tree: ## the source files, each with its purpose: FOLDER=keeper
	@scripts/tree.sh $(FOLDER)

.PHONY: man completion
man: $(PROGRAMS) ## manual pages in build/man, from the tables of the programs and from docs/
	@scripts/man.py $(BUILD_DIR) man $(BUILD_DIR)/man
completion: $(PROGRAMS) ## completion of couponctl for bash, in build/completion
	@mkdir -p $(BUILD_DIR)/completion
	@scripts/man.py $(BUILD_DIR) completion >$(BUILD_DIR)/completion/couponctl

.PHONY: docs
docs: $(PROGRAMS) ## settings, metrics and commands in docs/reference/, from the tables
	@scripts/docs.py $(BUILD_DIR)

.PHONY: site
site: ## the documents as a site, in build/site: SITE_SOURCE=URL of the files
	@scripts/packages.sh site
	@$(MAKE) -s --no-print-directory build/diagrams/$(NPM_DONE)
	@PYTHONDONTWRITEBYTECODE=1 mkdocs build --strict -f scripts/site/mkdocs.yml
	@echo "site: build/site/index.html"

.PHONY: torture
torture: packages ## the promises under faults: SEED=n ONLY=name PART=1/4 SHARDS=k NIGHT=1
	@scripts/torture.sh

.PHONY: torture-ha
torture-ha: ## one of three machines is lost under load: SEED=n ONLY=scenario LIST=1
	@scripts/packages.sh ha
	@$(MAKE) --no-print-directory build
	@BUILD_DIR=$(BUILD_DIR) /usr/bin/python3 -B tests/ha/run.py $(if $(LIST),--list)

.PHONY: mutants
mutants: ## without each safeguard in turn, its tests must fail: ONLY=words PART=1/4 SHARDS=2
	@scripts/packages.sh test
	@scripts/packages.sh sdk
	@$(MAKE) --no-print-directory build agents
	@/usr/bin/python3 -B tests/mutants/run.py

.PHONY: reach
reach: ## tests/reach.txt: which tests reach which function, for `make test`: an hour
	@scripts/packages.sh test
	@scripts/packages.sh sdk
	@scripts/packages.sh console
	@$(MAKE) --no-print-directory SAN=coverage build agents
	@$(MAKE) --no-print-directory SAN=coverage FAULTS=1 build
	@/usr/bin/python3 -B scripts/reach.py

.PHONY: release-check
release-check: ## all that must pass before a release, with records: LIST=1 ONLY=item SEED=n
	@scripts/release_check.py

.PHONY: bench
bench: ## one table of figures: BENCH_QUICK=1 for a tenth of the load, BENCH_ONLY="rows http"
	@scripts/packages.sh bench
	@$(MAKE) --no-print-directory build $(BUILD_DIR)/bench_fsync $(BUILD_DIR)/tests/sim_capacity
	@scripts/bench.sh
.PHONY: bench-compare
bench-compare: packages ## against REF=COMMIT: nine interleaved pairs, medians of the ratios
	@$(MAKE) --no-print-directory build $(BUILD_DIR)/bench_fsync
	@/usr/bin/python3 bench/compare.py

.PHONY: compare
compare: ## the known ways of selling side by side: ONLY="5 10" USERS=2000 WITH_ZOOKEEPER=1
	@scripts/packages.sh compare
	@$(MAKE) --no-print-directory build $(BUILD_DIR)/compare-way
	@BUILD_DIR=$(BUILD_DIR) scripts/compare.sh

$(BUILD_DIR)/coupon-gateway: $(BUILD_DIR)/gateway/main.o $(BUILD_DIR)/libgateway.a \
	$(BUILD_DIR)/libcodes.a $(BUILD_DIR)/libcoupon.a $(BUILD_DIR)/libcommon.a
$(BUILD_DIR)/coupon-worker: $(BUILD_DIR)/worker/main.o $(BUILD_DIR)/libworker.a \
	$(BUILD_DIR)/libevents.a $(BUILD_DIR)/libkeeper.a $(BUILD_DIR)/libcoupon.a \
	$(BUILD_DIR)/liblock.a $(BUILD_DIR)/libcommon.a
$(BUILD_DIR)/couponctl: $(BUILD_DIR)/ctl/main.o $(BUILD_DIR)/libctl.a $(BUILD_DIR)/libclient.a \
	$(BUILD_DIR)/libevents.a $(BUILD_DIR)/libcodes.a $(BUILD_DIR)/libcoupon.a \
	$(BUILD_DIR)/liblock.a $(BUILD_DIR)/libcommon.a
$(BUILD_DIR)/coupon-admin: $(BUILD_DIR)/admin/main.o $(BUILD_DIR)/libadmin.a \
	$(BUILD_DIR)/libctl.a $(BUILD_DIR)/libclient.a $(BUILD_DIR)/libevents.a \
	$(BUILD_DIR)/libcodes.a $(BUILD_DIR)/libcoupon.a $(BUILD_DIR)/liblock.a \
	$(BUILD_DIR)/libcommon.a
$(BUILD_DIR)/coupon-rush: $(BUILD_DIR)/rush/main.o $(BUILD_DIR)/librush.a $(BUILD_DIR)/libctl.a \
	$(BUILD_DIR)/libclient.a $(BUILD_DIR)/libcodes.a $(BUILD_DIR)/libcoupon.a \
	$(BUILD_DIR)/liblock.a $(BUILD_DIR)/libcommon.a
$(PROGRAMS): $(PLAIN_DIR)/gen/version.o
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The ways are not for servers: not among the programs that `make build` makes.
$(BUILD_DIR)/compare-way: $(BUILD_DIR)/compare/main.o $(BUILD_DIR)/libcompare.a \
	$(BUILD_DIR)/liblock.a $(BUILD_DIR)/libcommon.a
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD_DIR)/libgateway.a: $(call library_objects,gateway)
$(BUILD_DIR)/libworker.a: $(call library_objects,worker)
$(BUILD_DIR)/libkeeper.a: $(call library_objects,keeper)
$(BUILD_DIR)/libcoupon.a: $(call library_objects,coupon)
$(BUILD_DIR)/libadmin.a: $(call library_objects,admin)
$(BUILD_DIR)/librush.a: $(call library_objects,rush)
$(BUILD_DIR)/libctl.a: $(call library_objects,ctl)
$(BUILD_DIR)/libclient.a: $(call library_objects,client)
$(BUILD_DIR)/libcompare.a: $(call library_objects,compare)
$(BUILD_DIR)/libevents.a: $(call library_objects,events)
$(BUILD_DIR)/libcodes.a: $(call library_objects,codes)
$(BUILD_DIR)/liblock.a: $(call library_objects,lock)
$(BUILD_DIR)/libcommon.a: $(call library_objects,common) $(PLAIN_DIR)/gen/embed.o
$(LIBRARIES):
	@printf '  AR %s\n' $@
	@rm -f $@ && $(AR) qcs $@ $^

$(BUILD_DIR)/bench_fsync: $(BUILD_DIR)/bench/fsync.o $(BUILD_DIR)/libcommon.a
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $^

# Built with TSan: the programs that link only the gateway, the worker's own and common/.
$(THREAD_TESTS): $(BUILD_DIR)/tests/unit_%: $(BUILD_DIR)/tests/unit/%.o \
	$(BUILD_DIR)/libgateway.a $(BUILD_DIR)/libworker.a $(BUILD_DIR)/libcoupon.a \
	$(BUILD_DIR)/libcommon.a
	@mkdir -p $(@D)
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
$(BUILD_DIR)/tests/unit_%: $(BUILD_DIR)/tests/unit/%.o $(LIBRARIES)
	@mkdir -p $(@D)
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
$(BUILD_DIR)/tests/fuzz_%: $(BUILD_DIR)/tests/fuzz/fuzz_%.o $(BUILD_DIR)/tests/fuzz/replay.o \
	$(LIBRARIES) tests/fuzz/corpus/%.tar
	@rm -rf $(BUILD_DIR)/corpus/$*
	@mkdir -p $(@D) $(BUILD_DIR)/corpus/$*
	@tar -xf tests/fuzz/corpus/$*.tar -C $(BUILD_DIR)/corpus/$*
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $(filter-out %/replay.o %.tar,$^) $(FUZZ_MAIN) $(LDLIBS)
$(BUILD_DIR)/tests/sim_%: $(BUILD_DIR)/tests/sim/%.o $(LIBRARIES)
	@mkdir -p $(@D)
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

$(BUILD_DIR)/tests/models: $(BUILD_DIR)/tests/models.o $(BUILD_DIR)/libgateway.a \
	$(BUILD_DIR)/libcoupon.a $(BUILD_DIR)/libcommon.a
	@mkdir -p $(@D)
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

$(BUILD_DIR)/tests/lock_agent: $(BUILD_DIR)/tests/lock/agent.o $(BUILD_DIR)/liblock.a \
	$(BUILD_DIR)/libcommon.a
	@mkdir -p $(@D)
	@printf '  LD %s\n' $@
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# compile FOLDER FLAGS
define compile
$(1)/%.o: %.c | $(PLAIN_DIR)/gen/embed.h
	@mkdir -p $$(@D)
	@printf '  CC %s\n' $$<
	@$$(CC) $$(CPPFLAGS) $$(CFLAGS) $(2) -MMD -MP -c -o $$@ $$<
endef
$(foreach folder,$(sort $(BUILD_DIR) $(PLAIN_DIR)),$(eval $(call compile,$(folder))))

# The library of locks for other programs. Its objects are compiled once more, as a shared library
# needs them; the linker takes what the locks use, also of the embedded files.
$(eval $(call compile,$(SHARED_DIR),-fPIC -ffunction-sections -fdata-sections))
$(SHARED_DIR)/gen/embed.o: $(PLAIN_DIR)/gen/embed.c
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fdata-sections -c -o $@ $<
$(SHARED_DIR)/libcommon.a: $(call shared_objects,common/*.c common/log/*.c common/message/*.c \
	common/postgres/*.c common/program/key_file.c common/redis/*.c) $(SHARED_DIR)/gen/embed.o
	@rm -f $@ && $(AR) qcs $@ $^
$(LOCK_LIBRARY): $(call shared_objects,lock/*.c) $(SHARED_DIR)/libcommon.a lock/lock.map
	@printf '  LD %s\n' $@
	@$(CC) -shared $(LINK) -Wl,-soname,$(@F),--version-script,lock/lock.map,--gc-sections \
		-Wl,--no-undefined -o $@ $(filter %.o %.a,$^) $(LDLIBS)

# What `git describe` prints, if this directory is the root of the repository: none in a tarball. It
# is written only when it differs, and only the programs contain it.
SOURCE_VERSION := $(shell [ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$$(pwd -P)" ] && \
	git describe --always --tags --dirty 2>/dev/null)
$(shell mkdir -p $(PLAIN_DIR)/gen; \
	text='const char program_source[] = "$(SOURCE_VERSION)";'; \
	[ "$$(cat $(PLAIN_DIR)/gen/version.c 2>/dev/null)" = "$$text" ] || \
		printf '%s\n' "$$text" >$(PLAIN_DIR)/gen/version.c)
$(PLAIN_DIR)/gen/version.o: $(PLAIN_DIR)/gen/version.c
	@$(CC) $(CFLAGS) -c -o $@ $<

$(PLAIN_DIR)/gen/embed.o: $(PLAIN_DIR)/gen/embed.c
	@printf '  CC %s\n' $<
	@$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(PLAIN_DIR)/gen/embed.c $(PLAIN_DIR)/gen/embed.h &: $(EMBEDDED) scripts/embed.sh scripts/lua.awk
	@mkdir -p $(@D)
	@scripts/embed.sh $(PLAIN_DIR)/gen/embed.h $(PLAIN_DIR)/gen/embed.c $(EMBEDDED)

.PRECIOUS: $(BUILD_DIR)/%.o $(PLAIN_DIR)/%.o $(SHARED_DIR)/%.o
-include $(shell find $(sort $(BUILD_DIR) $(PLAIN_DIR)) -name '*.d' 2>/dev/null)
