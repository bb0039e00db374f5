#!/usr/bin/env bash
# The tests, on private stacks, which are stopped at the end. Parts run in parallel: see "the
# parts".
#   SAN=address|undefined|thread   everything in a build of its own
#   TESTS=tests/e2e/test_x.py      only that file, shown; other words choose programs by name, and
#                                  go to pytest -k
#   SEED=n                         of the inputs of randomized tests; which tests run is not random
#   ALL=1 CI=true BASE=COMMIT      which tests of services run: see tests/selection.py
#   WITH_ZOOKEEPER=1               locks in ZooKeeper too, in a build of its own
#   TEST_RUN_DIR=.run-test TEST_PORT_BASE=17400 TEST_SHARDS=3 TEST_LIMIT_S=300 (for one program)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SAN=${SAN:-}
TESTS=${TESTS:-}
readonly PLAIN=build${WITH_ZOOKEEPER:+-zookeeper}
export BUILD_DIR=$PLAIN${SAN:+-$SAN}
export RUN_DIR=${TEST_RUN_DIR:-.run-test}
export PORT_BASE=${TEST_PORT_BASE:-17400}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1:die_after_fork=0}
readonly LIMIT_S=${TEST_LIMIT_S:-300} SHARDS=${TEST_SHARDS:-3}
readonly PORTS_EACH=1000  # of a shard: its stack, and those that its tests make
readonly END_S=60        # from an interrupt until the remaining processes are killed
readonly OUT=$BUILD_DIR/test
# A build that is made quickly.
QUICK=(OPTIMISE='-O1 -g1 -fno-omit-frame-pointer')
[[ -z $(command -v ld.gold) ]] || QUICK+=(LINKER=-fuse-ld=gold)
readonly QUICK
readonly REPORT='(Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:'
# The arguments of `make test` are for this script, not for the builds it starts.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

passed=0 failed=0 skipped=0 deselected=0 turn=0

case $SAN in
'' | address | undefined | thread | coverage) ;;
*)
	echo "test: SAN is $SAN; allowed is address, undefined or thread" >&2
	exit 1
	;;
esac

build() {
	local san=$1
	shift
	make --no-print-directory -j"$(nproc)" SAN="$san" "$@"
}

# ---- stacks

stacks_each() {
	local dir
	for dir in "$RUN_DIR" "$RUN_DIR"-*; do
		[[ ! -d $dir ]] || RUN_DIR=$dir scripts/stack.sh "$1"
	done
}

stacks_stop() {
	stacks_each stop >/dev/null || echo "test: could not stop everything in $RUN_DIR*" >&2
}

# At the end, a sanitizer's report in any log is a failure, whichever test it belongs to.
logs_check() {
	local file
	for file in "$RUN_DIR"/*.log "$RUN_DIR"-*/*.log; do
		[[ -e $file ]] || continue
		grep -qE "$REPORT" "$file" || continue
		echo "FAILED: a sanitizer's report in $file"
		failed=$((failed + 1))
	done
}

# ---- programs of build/tests/

count_in() {
	sed -n "s/^\[  $1  \] \([0-9][0-9]*\) test.*/\1/p" "$2" |
		awk '{ n += $1 } END { print n + 0 }'
}

# What a program of cmocka counts, or one of fuzzing: its inputs together are one test. One that
# counts nothing has failed, as has a test that is skipped where tests/skips.py does not have it.
program_run() {
	local program=$1 output=$1.out code=0 ok bad out=0 name why
	timeout --foreground -k 5 "$LIMIT_S" "$program" >"$output" 2>&1 || code=$?
	ok=$(count_in PASSED "$output") bad=$(count_in FAILED "$output")
	[[ ${program##*/} != fuzz_* ]] || ok=$(grep -cE '^[1-9][0-9]* inputs$' "$output" || true)
	while read -r name; do
		if why=$(/usr/bin/python3 -B tests/skips.py "${program##*/}::$name"); then
			echo "SKIPPED ${program##*/}::$name: $why"
			out=$((out + 1))
		else
			echo "FAILED: ${program##*/}::$name was skipped: $why"
			bad=$((bad + 1))
		fi
	done < <(sed -n 's/^\[  SKIPPED \] \(test_[a-z0-9_]*\)$/\1/p' "$output" | sort -u)
	if [[ $((ok + bad + out)) -eq 0 || ($code -ne 0 && $bad -eq 0) ]]; then
		bad=$((bad + 1))
	fi
	passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + out))
	if [[ $bad -eq 0 ]]; then
		printf '%-48s %s passed\n' "$program" "$ok"
		return
	fi
	cat "$output"
	[[ $code -ne 124 && $code -ne 137 ]] || echo "${program##*/} did not end within $LIMIT_S s"
	printf '%-48s %s passed, %s FAILED (exit code %s)\n' "$program" "$ok" "$bad" "$code"
}

# programs_run BUILD_DIR KIND..: a program for each source file of that kind. `thread`: those that
# the Makefile builds for ThreadSanitizer.
programs_run() {
	local folder=$1 kind name names
	shift
	for kind in "$@"; do
		case $kind in
		thread) names=$(make -s --no-print-directory BUILD_DIR="$folder" thread-names) ;;
		unit) names=$(basename -s .c tests/unit/*.c | sed 's/^/unit_/') ;;
		sim) names=$(basename -s .c tests/sim/*.c | sed 's/^/sim_/') ;;
		fuzz) names=$(basename -s .c tests/fuzz/fuzz_*.c) ;;
		esac
		for name in $names; do
			[[ -z $TESTS || $name == *"$TESTS"* ]] || continue
			program_run "$folder/tests/$name"
		done
	done
}

# ---- pytest

junit_sum() {
	grep -oE "<testsuite [^>]*" "$2" | grep -oE " $1=\"[0-9]+\"" | grep -oE '[0-9]+' |
		awk '{ n += $1 } END { print n + 0 }'
}

# pytest_run NAME ARGUMENTS.. Exit code 5 means that nothing was chosen, as some words of TESTS= do;
# it is a failure elsewhere.
pytest_run() {
	local xml=$OUT/$1.xml code=0 bad out
	shift
	rm -f "$xml"
	/usr/bin/python3 -B -m pytest -q -rsfE -p no:cacheprovider --durations=5 --junitxml="$xml" \
		"$@" || code=$?
	if [[ ! -e $xml ]]; then
		echo "pytest ended with code $code and no result"
		failed=$((failed + 1))
		return
	fi
	bad=$(($(junit_sum failures "$xml") + $(junit_sum errors "$xml")))
	out=$(junit_sum skipped "$xml")
	passed=$((passed + $(junit_sum tests "$xml") - bad - out)) skipped=$((skipped + out))
	deselected=$((deselected + $(<"$xml.deselected")))
	[[ $code -eq 0 || ($code -eq 5 && -n $TESTS) || $bad -ne 0 ]] || bad=1
	failed=$((failed + bad))
}

# All that failed in any part, by name, after all that the parts have printed.
failures_print() {
	[[ $failed -ne 0 ]] || return 0
	grep -hsE '^(FAILED|ERROR|SURVIVED) |^FAILED: | FAILED \(exit code' "$OUT"/*.out |
		cut -c-200 || true
	echo "the logs are in $RUN_DIR*/, the output of each part in $OUT/*.out"
}

# ---- the parts
#
# Each part is a process group, writes to $OUT/PART.out and leaves its counts in $OUT/PART.count.
# The builds have a lower priority than the tests, which have time-outs.

part_lint() {
	if nice -n 10 scripts/lint.sh; then
		passed=$((passed + 1))
	else
		echo "FAILED: make lint"
		failed=$((failed + 1))
	fi
}

part_programs() {
	build "$SAN" BUILD_DIR="$BUILD_DIR" tests
	programs_run "$BUILD_DIR" unit sim fuzz
}

# Without SAN= the programs are built quickly for AddressSanitizer and UBSan, or, with every other
# commit, those with threads for ThreadSanitizer (ALL=1: both); and all without, which is the build
# that tells the warnings. The simulations always run without, for many seeds.
# The compiler gets what the tests leave: they are the longer part, and wait most of the time.
# Whole runs are make test SAN=address and SAN=thread.
part_sanitized() {
	renice -n 10 -p "$BASHPID" >/dev/null
	if [[ -n ${ALL:-} || $((turn % 2)) -eq 0 ]]; then
		build address BUILD_DIR="$PLAIN-address" "${QUICK[@]}" WARN=-w tests
		RUNS=4 programs_run "$PLAIN-address" unit sim fuzz
	fi
	if [[ -n ${ALL:-} || $((turn % 2)) -eq 1 ]]; then
		build thread BUILD_DIR="$PLAIN-thread" "${QUICK[@]}" WARN=-w thread-tests
		programs_run "$PLAIN-thread" thread
	fi
	build '' BUILD_DIR="$BUILD_DIR" tests
	[[ -z ${ALL:-} && $((turn % 2)) -eq 0 ]] || programs_run "$BUILD_DIR" unit fuzz
	programs_run "$BUILD_DIR" sim
}

# part_pytest NUMBER: one of the shards under TLS, unless TLS= says which. It changes when all tests
# have had their turn (tests/selection.py), so that none has it only with TLS, or only without.
part_pytest() {
	local chosen
	mapfile -t chosen < <(/usr/bin/python3 -B tests/shards.py "$1" "$SHARDS")
	local tls=${TLS:-no}
	[[ -n ${TLS:-} || $((turn / 24 % SHARDS + 1)) -ne $1 ]] || tls=yes
	TLS=$tls RUN_DIR=$RUN_DIR-$1 PORT_BASE=$((PORT_BASE + PORTS_EACH * ($1 - 1))) \
		pytest_run "pytest-$1" "${chosen[@]}"
}

# With the build that has fault points.
part_torture() {
	build "$SAN" FAULTS=1 BUILD_DIR="$BUILD_DIR-fault" "${QUICK[@]}" build
	PORT_BASE=$((PORT_BASE + PORTS_EACH * SHARDS)) pytest_run torture tests/torture
}

# The two numbers N in the line of this form that the mutants have told; else the other arguments.
told_numbers() {
	local form=${1//N/([0-9]*)} told
	told=$(sed -nE "s/^$form\$/\1 \2/p" "$OUT/mutants.told")
	echo "${told:-$2 $3}"
}

# The programs without some of their safeguards: their tests must fail.
part_mutants() {
	local chosen all
	PORT_BASE=$((PORT_BASE + PORTS_EACH * (SHARDS + 1))) TEST_WAIT_S=120 \
		/usr/bin/python3 -B tests/mutants/run.py --selection "$SELECTION" --shards 1 \
		--faults-only | tee "$OUT/mutants.told" || echo "FAILED: make mutants"
	read -r passed failed <<<"$(told_numbers 'mutants: N caught, N not: .*' 0 1)"
	read -r chosen all <<<"$(told_numbers 'mutants: N of N' 0 0)"
	deselected=$((all - chosen))
}

declare -A part_pids=()
part_names=()

part_run() {
	local name=$1 begun=$SECONDS
	shift
	"$@"
	echo "$passed $failed $skipped $deselected $((SECONDS - begun))" >"$OUT/$name.count"
}

# part_start NAME FUNCTION ARGUMENTS..
part_start() {
	local name=$1
	shift
	part_names+=("$name")
	set -m # a process group, so that one signal reaches all of it
	(
		set +m
		trap 'exit 143' TERM
		part_run "$name" "$@"
	) >"$OUT/$name.out" 2>&1 </dev/null &
	part_pids[$name]=$!
	set +m
}

parts_end() {
	local name deadline=$((SECONDS + END_S)) runs=yes
	[[ ${#part_pids[@]} -gt 0 ]] || return 0
	for name in "${!part_pids[@]}"; do
		kill -TERM -- "-${part_pids[$name]}" 2>/dev/null || true
	done
	while [[ $runs == yes && $SECONDS -lt $deadline ]]; do
		runs=no
		for name in "${!part_pids[@]}"; do
			! kill -0 -- "-${part_pids[$name]}" 2>/dev/null || runs=yes
		done
		sleep 0.1
	done
	for name in "${!part_pids[@]}"; do
		kill -KILL -- "-${part_pids[$name]}" 2>/dev/null || true
	done
}

# Prints each part's output as soon as it ends, and adds up what it counted.
parts_wait() {
	local name pid ok bad out left took
	while [[ ${#part_pids[@]} -gt 0 ]]; do
		wait -n "${part_pids[@]}" || true
		for name in "${part_names[@]}"; do
			pid=${part_pids[$name]:-}
			[[ -n $pid ]] || continue
			! kill -0 "$pid" 2>/dev/null || continue
			unset "part_pids[$name]"
			if [[ -e $OUT/$name.count ]]; then
				read -r ok bad out left took <"$OUT/$name.count"
			else
				ok=0 bad=1 out=0 left=0 took='?'
				echo "FAILED: $name did not finish"
			fi
			echo "---- $name: $ok passed, $bad failed, $out skipped," \
				"$left deselected, $took s"
			cat "$OUT/$name.out"
			passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + out))
			deselected=$((deselected + left))
		done
	done
}

run_all() {
	local shard group groups
	if [[ -z $SEED ]]; then
		SEED=$((RANDOM * 32 + RANDOM % 32))
	fi
	export SEED
	export TURN=$PWD/$OUT/turn
	echo "test: SEED=$SEED; the output of each part: $OUT/*.out"
	/usr/bin/python3 -B tests/selection.py "$OUT/selection.json"
	export SELECTION=$PWD/$OUT/selection.json
	turn=$(sed -n 's/^ "turn": \([0-9]*\),$/\1/p' "$SELECTION")
	read -r -a groups < <(sed -n 's/^ "packages": "\(.*\)",$/\1/p' "$SELECTION")
	for group in "${groups[@]}"; do
		scripts/packages.sh "$group"
	done
	for ((shard = 1; shard <= SHARDS; shard++)); do
		part_start "pytest-$shard" part_pytest "$shard"
	done
	if [[ -n $SAN ]]; then
		part_start programs part_programs
	else
		part_start sanitized part_sanitized
		part_start lint part_lint
	fi
	# All scenarios and mutants keep both cores busy; the tests would wait for their turn.
	[[ -z ${ALL:-} ]] || parts_wait
	part_start torture part_torture
	[[ -n $SAN ]] || part_start mutants part_mutants
	parts_wait
}

# The selection of TESTS= runs one after the other, with its output shown.
run_chosen() {
	local selection=("$TESTS")
	if [[ ! -e ${TESTS%%::*} ]]; then
		selection=(tests -k "$TESTS")
		part_programs
	fi
	[[ $TESTS != tests/sdk* ]] || scripts/packages.sh sdk
	build "$SAN" FAULTS=1 BUILD_DIR="$BUILD_DIR-fault" build
	pytest_run pytest "${selection[@]}"
}

# A second signal, for instance make's own, must not break this off.
finish() {
	trap '' INT TERM
	parts_end
	stacks_stop
}

begun=$SECONDS
SEED=${SEED:-}
scripts/packages.sh test
build "$SAN" BUILD_DIR="$BUILD_DIR" build agents
rm -rf "$OUT"
mkdir -p "$OUT"
stacks_each clean >/dev/null
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [[ -n $TESTS ]]; then
	run_chosen
else
	run_all
fi
stacks_stop
logs_check

if [[ $((passed + failed)) -eq 0 ]]; then
	echo "test: nothing matches TESTS=$TESTS" >&2
	exit 1
fi
failures_print
echo "test: took $((SECONDS - begun)) s"
echo "$passed passed, $failed failed, $skipped skipped, $deselected deselected"
[[ $failed -eq 0 ]]
