# shellcheck shell=bash
# The processes of a stack: NAME.pid, NAME.log and NAME/ in its folder, and the ports they listen
# on. Sourced by scripts/stack.sh. NAME_spawn and NAME_ready are in services.sh, postgres.sh and
# programs.sh.

# Prints the pid if NAME runs. A pid whose working directory is not NAME's folder belongs to another
# program.
process_pid() {
	local pid cwd home
	[[ -r $RUN_DIR/$1.pid ]] || return 1
	read -r pid <"$RUN_DIR/$1.pid" || return 1
	[[ $pid =~ ^[1-9][0-9]*$ ]] || return 1
	cwd=$(readlink "/proc/$pid/cwd") || return 1
	home=$(readlink -f "$RUN_DIR/$1") || return 1
	[[ $cwd == "$home" || $cwd == "$home"/* ]] || return 1
	echo "$pid"
}

process_runs() {
	process_pid "$1" >/dev/null
}

names_known() {
	local file
	for file in "$RUN_DIR"/*.pid; do
		[[ ! -e $file ]] || basename "$file" .pid
	done
}

names_running() {
	local name
	for name in $(names_known); do
		! process_runs "$name" || echo "$name"
	done
}

# process_spawn NAME COMMAND..: in a session of its own, without inherited descriptors.
process_spawn() {
	local name=$1
	shift
	(
		cd "$RUN_DIR/$name"
		(
			exec </dev/null >>"$RUN_DIR/$name.log" 2>&1
			for fd in /proc/"$BASHPID"/fd/*; do
				fd=${fd##*/}
				[[ $fd -le 2 ]] || eval "exec $fd>&-"
			done
			exec setsid "$@"
		) &
		echo "$!" >"$RUN_DIR/$name.pid"
	)
}

# NAME.start holds the length of the log before this start.
process_start() {
	{ stat -c %s "$RUN_DIR/$1.log" 2>/dev/null || echo 0; } >"$RUN_DIR/$1.start"
	"${1%%-*}_spawn" "$1"
}

# What NAME has logged since its start.
log_since_start() {
	local start
	start=$(cat "$RUN_DIR/$1.start" 2>/dev/null) || start=0
	tail -c "+$((start + 1))" "$RUN_DIR/$1.log" 2>/dev/null || true
}

start_failed() {
	echo "--- the end of $RUN_DIR/$1.log" >&2
	tail -n 15 "$RUN_DIR/$1.log" >&2 || true
	die "$1 $2"
}

# For a moment after kill -9 the old postmaster is not yet reaped, or its children hold its memory.
respawn() {
	[[ $1 == postgres ]] || return 1
	log_since_start postgres |
		grep -qE 'pre-existing shared memory|lock file "postmaster.pid" already exists' ||
		return 1
	sleep 0.2
	process_start postgres
}

# Waits until NAME_ready succeeds.
process_wait() {
	local name=$1 deadline=$((SECONDS + START_S)) looks=0
	while :; do
		if process_runs "$name"; then
			! "${name%%-*}_ready" "$name" || return 0
		elif ! respawn "$name"; then
			start_failed "$name" "ended at once"
		fi
		[[ $SECONDS -lt $deadline ]] ||
			start_failed "$name" "was not ready after $START_S s"
		sleep "$((looks++ < 10 ? 5 : 20))e-2"
	done
}

process_ended() {
	local deadline=$((SECONDS + $2))
	while process_runs "$1"; do
		[[ $SECONDS -lt $deadline ]] || return 1
		sleep 0.05
	done
}

process_kill() {
	local pid
	pid=$(process_pid "$1") || return 0
	say "$1 did not end within $STOP_S s: killed"
	kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true
	process_ended "$1" 10 || die "$1 (pid $pid) cannot be ended"
}

# Signals all of the names to end, then waits for each.
names_stop() {
	local name pid signal children ending=()
	for name in "$@"; do
		if pid=$(process_pid "$name"); then
			signal=TERM
			# On TERM PostgreSQL would wait for its clients.
			[[ $name != postgres ]] || signal=INT
			kill -s "$signal" "$pid" 2>/dev/null || true
			# A stopped process must be continued to end.
			children=()
			read -r -a children 2>/dev/null <"/proc/$pid/task/$pid/children" || true
			kill -CONT -- "-$pid" "${children[@]}" 2>/dev/null || true
			ending+=("$name")
		else
			rm -f "$RUN_DIR/$name.pid" "$RUN_DIR/$name.start"
		fi
	done
	for name in "${ending[@]}"; do
		process_ended "$name" "$STOP_S" || process_kill "$name"
		rm -f "$RUN_DIR/$name.pid" "$RUN_DIR/$name.start"
		say "$name has ended"
	done
}

# ---- ports

port_answers() {
	timeout 2 bash -c ": <>/dev/tcp/127.0.0.1/$1" 2>/dev/null
}

ports_of() {
	case $1 in
	redis) echo "$PORT_REDIS" ;;
	epmd) echo "$PORT_EPMD" ;;
	rabbitmq) echo "$PORT_RABBITMQ $PORT_DIST" ;;
	postgres) echo "$PORT_POSTGRES" ;;
	zookeeper) echo "$PORT_ZOOKEEPER" ;;
	gateway) echo "$PORT_GATEWAY $PORT_HTTP" ;;
	worker-[1-9]) echo "$((PORT_HTTP + ${1#worker-}))" ;;
	esac
}

# Reports every port that another program holds, before anything is started.
ports_check() {
	local name port other taken=no
	for name in "$@"; do
		! process_runs "$name" || continue
		for port in $(ports_of "$name"); do
			port_answers "$port" || continue
			echo "stack: port $port, wanted for $name, is in use by another program" >&2
			taken=yes
		done
	done
	[[ $taken == yes ]] || return 0
	other=$((STACK_PORT_BASE < 50000 ? STACK_PORT_BASE + 1000 : 8400))
	die "choose other ports with PORT_BASE=, for instance PORT_BASE=$other"
}
