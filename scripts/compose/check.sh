# shellcheck shell=bash
# Counts the checks. Sourced by scripts/compose-test.sh.

# check WHAT COMMAND..: counts a failure and continues.
check() {
	local what=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
		printf '  ok      %s\n' "$what"
	else
		failed=$((failed + 1))
		printf '  FAILED  %s\n' "$what"
	fi
}

# need WHAT COMMAND..: the same, but ends the test at a failure.
need() {
	local before=$failed
	check "$@"
	[[ $failed -eq $before ]] || exit 1
}

equals() {
	[[ $1 == "$2" ]] || {
		echo "    is:        $1"
		echo "    should be: $2"
		return 1
	}
}

# wait_until SECONDS COMMAND..
wait_until() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		[[ $SECONDS -lt $deadline ]] || {
			echo "    not within its time: $*"
			return 1
		}
		sleep 0.2
	done
}
