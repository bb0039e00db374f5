# shellcheck shell=bash
# How a check is counted. Sourced by scripts/compose-test.sh.

# check WHAT COMMAND..: counts, and goes on.
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

# need WHAT COMMAND..: the same, and without it there is no going on.
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
