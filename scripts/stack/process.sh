# shellcheck shell=bash
# The processes of a stack: NAME.pid, NAME.log and NAME/ in its folder, and the ports they listen
# on. Sourced by scripts/stack.sh and scripts/ha.sh, which say what functions start
# a process (kind_of).

readonly START_S=300 # the limit for a start: a busy machine may take minutes
readonly STOP_S=20   # from TERM to KILL

# Whether NAME runs, as PID. A process whose working directory is neither NAME's folder nor the
# `data` in it is of another program. What is asked repeatedly makes no processes of its own.
process_runs() {
	PID=
	[[ -r $RUN_DIR/$1.pid ]] && read -r PID <"$RUN_DIR/$1.pid" || return 1
	[[ $PID =~ ^[1-9][0-9]*$ ]] || return 1
	[[ /proc/$PID/cwd -ef $RUN_DIR/$1 || /proc/$PID/cwd -ef $RUN_DIR/$1/data ]]
}

# Whether PID, which process_runs has set, is a process, also where its working directory could not
# be read: then it is looked at again.
process_exists() {
	local stat
	# If the process ends between the opening and the reading, $(<FILE) would end the shell.
	[[ -n $PID ]] && read -r stat 2>/dev/null <"/proc/$PID/stat" && [[ ${stat##*) } != [ZX]* ]]
}

names_known() {
	local file
	for file in "$RUN_DIR"/*.pid; do
		file=${file##*/}
		[[ $file == '*.pid' ]] || echo "${file%.pid}"
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
	[[ ! -e $RUN_DIR/$1.log ]] || stat -c %s "$RUN_DIR/$1.log" >"$RUN_DIR/$1.start"
	kind_of "$1"
	"${KIND}_spawn" "$1"
}

# What NAME has logged since its start.
log_since_start() {
	local start=0
	[[ ! -e $RUN_DIR/$1.start ]] || read -r start <"$RUN_DIR/$1.start"
	tail -c "+$((start + 1))" "$RUN_DIR/$1.log" 2>/dev/null || true
}

start_failed() {
	echo "--- the end of $RUN_DIR/$1.log" >&2
	tail -n 15 "$RUN_DIR/$1.log" >&2 || true
	die "$1 $2"
}

# For a moment after kill -9 the old postmaster is not yet reaped, or its children hold its memory.
# Patroni ends when its bootstrap has failed; it has removed what it had made.
respawn() {
	local why
	case $1 in
	postgres) why='pre-existing shared memory|lock file "postmaster.pid" already exists' ;;
	m[1-3]-patroni) why='Failed to bootstrap cluster' ;;
	*) return 1 ;;
	esac
	grep -qE "$why" <(log_since_start "$1") || return 1
	sleep 0.2
	process_start "$1"
}

# Waits until KIND_ready succeeds, for START_S since WAIT_SINCE; what KIND_ready begins again may
# set that anew.
process_wait() {
	local name=$1 looks=0
	WAIT_SINCE=$SECONDS
	while :; do
		kind_of "$name"
		if process_runs "$name"; then
			! "${KIND}_ready" "$name" || return 0
		elif ! process_exists && ! respawn "$name"; then
			start_failed "$name" "ended at once"
		fi
		[[ $((SECONDS - WAIT_SINCE)) -lt $START_S ]] ||
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
	process_runs "$1" || return 0
	say "$1 did not end within $STOP_S s: killed"
	kill -KILL -- "-$PID" 2>/dev/null || kill -KILL "$PID" 2>/dev/null || true
	process_ended "$1" 10 || die "$1 (pid $PID) cannot be ended"
}

# Signals all of the names to end, then waits for each.
names_stop() {
	local name signal children ending=()
	for name in "$@"; do
		if process_runs "$name"; then
			signal=TERM
			# On TERM PostgreSQL would wait for its clients.
			[[ $name != *postgres ]] || signal=INT
			kill -s "$signal" "$PID" 2>/dev/null || true
			# A stopped process must be continued to end.
			children=()
			read -r -a children 2>/dev/null <"/proc/$PID/task/$PID/children" || true
			kill -CONT -- "-$PID" "${children[@]}" 2>/dev/null || true
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

# port_answers PORT [HOST]
port_answers() {
	{ :; } 2>/dev/null <>"/dev/tcp/${2:-127.0.0.1}/$1"
}

# port_tells PORT REQUEST [HOST]: sets TOLD to the first line of the answer.
port_tells() {
	TOLD=
	{ printf '%b' "$2" >&3 && read -r -t 2 TOLD <&3; } \
		2>/dev/null 3<>"/dev/tcp/${3:-127.0.0.1}/$1"
}

# Sets PORTS.
ports_of() {
	case $1 in
	redis) PORTS=("$PORT_REDIS") ;;
	epmd) PORTS=("$PORT_EPMD") ;;
	rabbitmq) PORTS=("$PORT_RABBITMQ" "$PORT_DIST") ;;
	postgres) PORTS=("$PORT_POSTGRES") ;;
	zookeeper) PORTS=("$PORT_ZOOKEEPER") ;;
	admin) PORTS=("$PORT_ADMIN") ;;
	gateway | haproxy) PORTS=("$PORT_GATEWAY" "$PORT_HTTP") ;;
	worker-[1-9]) PORTS=("$((PORT_HTTP + ${1#worker-}))") ;;
	*) PORTS=() ;;
	esac
}

# The kernel closes the sockets of a process after it is seen to have ended.
port_free_soon() {
	while port_answers "$1"; do
		[[ $SECONDS -lt $2 ]] || return 1
		sleep 0.02
	done
}

# Reports every port that another program holds, before anything is started.
ports_check() {
	local name port other taken=no deadline=$((SECONDS + 3))
	for name in "$@"; do
		! process_runs "$name" || continue
		ports_of "$name"
		for port in "${PORTS[@]}"; do
			! port_free_soon "$port" "$deadline" || continue
			echo "stack: port $port, wanted for $name, is in use by another program" >&2
			taken=yes
		done
	done
	[[ $taken == yes ]] || return 0
	other=$((STACK_PORT_BASE < 50000 ? STACK_PORT_BASE + 1000 : 8400))
	die "choose other ports with PORT_BASE=, for instance PORT_BASE=$other"
}
