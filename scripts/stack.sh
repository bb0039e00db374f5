#!/usr/bin/env bash
# One local stack: private Redis, RabbitMQ and PostgreSQL, the gateway and the workers, in one folder.
#
# RUN_DIR/            settings (mode 600): port base and passwords; env: for the shell to source
#   NAME.pid NAME.log of each process: redis epmd rabbitmq postgres gateway worker-N
#   NAME/             its folder, and its working directory: that is how a pid is known to be ours
set -euo pipefail
umask 022

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly ROOT=$PWD
RUN_DIR=$(realpath -m -- "${RUN_DIR:-.run}")
readonly RUN_DIR
BUILD_DIR=$(realpath -m -- "${BUILD_DIR:-build}")
readonly BUILD_DIR
readonly PG_BIN=${PG_BIN:-/usr/lib/postgresql/15/bin}
readonly RABBITMQ_BIN=${RABBITMQ_BIN:-/usr/lib/rabbitmq/bin}
readonly BACKENDS=(epmd redis rabbitmq postgres)
readonly DEFAULT_PORT_BASE=7400
readonly START_S=90        # the slowest start we wait for
readonly STOP_S=20         # from TERM to KILL
readonly SOCKET_PATH_MAX=107

usage() {
	cat <<-TEXT
	usage: [RUN_DIR=.run] [PORT_BASE=7400] scripts/stack.sh COMMAND
	  run           services, gateway, two workers, a sample campaign and a rush on it
	  services      Redis, RabbitMQ and PostgreSQL, migrated
	  backends      the same without the migration
	  start NAME..  redis, rabbitmq, postgres, gateway or worker-N
	  stop [NAME..] all of the stack, or these
	  status        what runs, and where
	  env           the settings, for the shell: eval "\$(scripts/stack.sh env)"
	  clean         stop, and remove the folder
	A relative RUN_DIR is below the project's folder. GATEWAY_FLAGS, WORKER_FLAGS and REDIS_FLAGS are extra arguments.
	TEXT
}

say() {
	echo "stack: $*"
}

die() {
	echo "stack: $*" >&2
	exit 1
}

# A path as one would type it in the project's folder.
shown() {
	echo "${1#"$ROOT/"}"
}

# ---- settings: made once, kept in the folder ------------------------------------------------------

random_hex() {
	od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}

settings_write() {
	(
		umask 077
		cat >"$RUN_DIR/settings.new" <<-TEXT
		STACK_PORT_BASE=$STACK_PORT_BASE
		STACK_AMQP_PASSWORD=$STACK_AMQP_PASSWORD
		STACK_COOKIE=$STACK_COOKIE
		STACK_PG_PASSWORD=$STACK_PG_PASSWORD
		STACK_PG_OWNER_PASSWORD=$STACK_PG_OWNER_PASSWORD
		STACK_PG_APP_PASSWORD=$STACK_PG_APP_PASSWORD
		TEXT
		mv "$RUN_DIR/settings.new" "$RUN_DIR/settings"
	)
}

ports_set() {
	local base=$STACK_PORT_BASE
	PORT_GATEWAY=$((base + 11)) PORT_HTTP=$((base + 80)) PORT_POSTGRES=$((base + 32))
	PORT_REDIS=$((base + 79)) PORT_RABBITMQ=$((base + 72)) PORT_DIST=$((base + 25))
	PORT_EPMD=$((base + 69))
}

settings_load() {
	[[ -r $RUN_DIR/settings ]] || return 1
	# shellcheck source=/dev/null
	. "$RUN_DIR/settings"
	ports_set
}

settings_need() {
	settings_load && return
	die "there is no stack in $RUN_DIR; start one with: make services"
}

folder_open() {
	[[ $RUN_DIR =~ ^[A-Za-z0-9._/@+-]+$ ]] ||
		die "RUN_DIR is $RUN_DIR, and RabbitMQ takes only letters, digits and . _ / @ + - there"
	mkdir -p "$RUN_DIR" 2>/dev/null || die "cannot make $RUN_DIR; choose another RUN_DIR="
	[[ -w $RUN_DIR && -x $RUN_DIR ]] || die "$RUN_DIR belongs to $(stat -c %U "$RUN_DIR"); choose another RUN_DIR="
	[[ ! -e $RUN_DIR/settings || -r $RUN_DIR/settings ]] ||
		die "$RUN_DIR/settings belongs to $(stat -c %U "$RUN_DIR/settings"); choose another RUN_DIR="
	[[ -e $RUN_DIR/settings || -z $(find "$RUN_DIR" -mindepth 1 -maxdepth 1 ! -name lock -print -quit) ]] ||
		die "$RUN_DIR holds other files; choose another RUN_DIR="
}

settings_open() {
	local wanted=${PORT_BASE:-}
	if [[ -n $wanted ]]; then
		[[ $wanted =~ ^[1-9][0-9]{3,4}$ && $wanted -ge 1024 && $wanted -le 65400 ]] ||
			die "PORT_BASE is $wanted; allowed is 1024 to 65400"
	fi
	if settings_load; then
		if [[ -z $wanted || $wanted == "$STACK_PORT_BASE" ]]; then
			return
		fi
		[[ -z $(names_running) ]] ||
			die "the stack in $RUN_DIR runs on PORT_BASE=$STACK_PORT_BASE; stop it first: make stop RUN_DIR=$RUN_DIR"
		STACK_PORT_BASE=$wanted
	else
		STACK_PORT_BASE=${wanted:-$DEFAULT_PORT_BASE}
		STACK_AMQP_PASSWORD=$(random_hex)
		STACK_COOKIE=$(random_hex)
		STACK_PG_PASSWORD=$(random_hex)
		STACK_PG_OWNER_PASSWORD=$(random_hex)
		STACK_PG_APP_PASSWORD=$(random_hex)
	fi
	ports_set
	settings_write
}

env_write() {
	local socket=$RUN_DIR/gateway/gateway.sock postgres=127.0.0.1:$PORT_POSTGRES/couponmq
	[[ ${#socket} -le $SOCKET_PATH_MAX ]] || socket=
	(
		umask 077
		cat >"$RUN_DIR/env.new" <<-TEXT
		export REDIS_URL='redis://127.0.0.1:$PORT_REDIS/0'
		export AMQP_URL='amqp://couponmq:$STACK_AMQP_PASSWORD@127.0.0.1:$PORT_RABBITMQ/%2f'
		export DATABASE_URL='postgresql://couponmq:$STACK_PG_APP_PASSWORD@$postgres'
		export DATABASE_ADMIN_URL='postgresql://couponmq_owner:$STACK_PG_OWNER_PASSWORD@$postgres'
		export COUPON_LISTEN='127.0.0.1:$PORT_GATEWAY'
		export COUPON_HTTP_LISTEN='127.0.0.1:$PORT_HTTP'
		export COUPON_UNIX_SOCKET='$socket'
		TEXT
		mv "$RUN_DIR/env.new" "$RUN_DIR/env"
	)
}

env_load() {
	# shellcheck source=/dev/null
	. "$RUN_DIR/env"
}

# One command at a time changes a stack. Daemons close the lock's descriptor, so that it ends with us.
lock_take() {
	exec 9>"$RUN_DIR/lock"
	flock -w 180 9 || die "another command has been at work on $RUN_DIR for three minutes"
}

lock_release() {
	exec 9>&-
}

# ---- processes ------------------------------------------------------------------------------------

# Prints the pid if NAME runs. A pid whose working directory is not NAME's folder is somebody else's.
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

# process_spawn NAME COMMAND..: in a session of its own, with no descriptor of ours.
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

# NAME.start keeps where the log ended before this start.
process_start() {
	{ stat -c %s "$RUN_DIR/$1.log" 2>/dev/null || echo 0; } >"$RUN_DIR/$1.start"
	"${1%%-*}_spawn" "$1"
}

# What NAME has logged since its start.
log_since_start() {
	tail -c "+$(($(cat "$RUN_DIR/$1.start" 2>/dev/null || echo 0) + 1))" "$RUN_DIR/$1.log" 2>/dev/null || true
}

start_failed() {
	echo "--- the end of $RUN_DIR/$1.log" >&2
	tail -n 15 "$RUN_DIR/$1.log" >&2 || true
	die "$1 $2"
}

# For a moment after kill -9 the former postmaster is not reaped yet, or its children hold its memory.
respawn() {
	[[ $1 == postgres ]] || return 1
	log_since_start postgres |
		grep -qE 'pre-existing shared memory block|lock file "postmaster.pid" already exists' || return 1
	sleep 0.2
	process_start postgres
}


# Waits until NAME_ready says so.
process_wait() {
	local name=$1 deadline=$((SECONDS + START_S))
	while :; do
		if process_runs "$name"; then
			! "${name%%-*}_ready" "$name" || return 0
		elif ! respawn "$name"; then
			start_failed "$name" "ended at once"
		fi
		[[ $SECONDS -lt $deadline ]] || start_failed "$name" "was not ready after $START_S s"
		sleep 0.1
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

# Asks all of the names to end, then waits for each.
names_stop() {
	local name pid ending=()
	for name in "$@"; do
		if pid=$(process_pid "$name"); then
			# PostgreSQL would wait for its clients on TERM.
			kill -s "$([[ $name == postgres ]] && echo INT || echo TERM)" "$pid" 2>/dev/null || true
			# shellcheck disable=SC2046 # pids
			kill -CONT -- "-$pid" $(cat "/proc/$pid/task/$pid/children") 2>/dev/null || true
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

# ---- ports ----------------------------------------------------------------------------------------

port_answers() {
	timeout 2 bash -c ": <>/dev/tcp/127.0.0.1/$1" 2>/dev/null
}

ports_of() {
	case $1 in
	redis) echo "$PORT_REDIS" ;;
	epmd) echo "$PORT_EPMD" ;;
	rabbitmq) echo "$PORT_RABBITMQ $PORT_DIST" ;;
	postgres) echo "$PORT_POSTGRES" ;;
	gateway) echo "$PORT_GATEWAY $PORT_HTTP" ;;
	worker-[1-9]) echo "$((PORT_HTTP + ${1#worker-}))" ;;
	esac
}

# Names every port that somebody else holds before anything is started.
ports_check() {
	local name port taken=no
	for name in "$@"; do
		! process_runs "$name" || continue
		for port in $(ports_of "$name"); do
			port_answers "$port" || continue
			echo "stack: port $port, wanted for $name, is in use by another program" >&2
			taken=yes
		done
	done
	[[ $taken == no ]] ||
		die "choose other ports with PORT_BASE=, for instance PORT_BASE=$((STACK_PORT_BASE < 50000 ? STACK_PORT_BASE + 1000 : 8400))"
}

# ---- Redis ----------------------------------------------------------------------------------------

redis_spawn() {
	local flags
	read -r -a flags <<<"${REDIS_FLAGS:-}"
	mkdir -p "$RUN_DIR/redis"
	cat >"$RUN_DIR/redis/redis.conf" <<-TEXT
	bind 127.0.0.1
	port $PORT_REDIS
	daemonize no
	dir ./
	appendonly yes
	appendfsync always
	auto-aof-rewrite-min-size 1gb
	maxmemory-policy noeviction
	save ""
	TEXT
	process_spawn redis redis-server ./redis.conf "${flags[@]}"
}

redis_ready() {
	[[ $(redis-cli -h 127.0.0.1 -p "$PORT_REDIS" ping 2>/dev/null) == PONG ]]
}

# ---- RabbitMQ, and the port mapper that its Erlang node registers with ----------------------------

epmd_spawn() {
	mkdir -p "$RUN_DIR/epmd"
	process_spawn epmd epmd -address 127.0.0.1 -port "$PORT_EPMD"
}

epmd_ready() {
	port_answers "$PORT_EPMD"
}

rabbitmq_spawn() {
	local home=$RUN_DIR/rabbitmq
	mkdir -p "$home"
	chmod 700 "$home"
	rm -f "$home/.erlang.cookie"
	(umask 377 && printf %s "$STACK_COOKIE" >"$home/.erlang.cookie")
	echo '[].' >"$home/enabled_plugins"
	(
		umask 077
		cat >"$home/rabbitmq.conf" <<-TEXT
		listeners.tcp.default = 127.0.0.1:$PORT_RABBITMQ
		default_user = couponmq
		default_pass = $STACK_AMQP_PASSWORD
		disk_free_limit.absolute = 50MB
		raft.wal_max_size_bytes = 134217728
		heartbeat = ${RABBITMQ_HEARTBEAT_S:-60}
		log.console = true
		log.console.level = info
		log.console.use_colors = off
		log.file = false
		TEXT
	)
	# RUNNING_UNDER_SYSTEMD makes the script become the Erlang VM, so that the pid is the broker's.
	process_spawn rabbitmq env \
		HOME="$home" \
		LANG=C.UTF-8 \
		RUNNING_UNDER_SYSTEMD=true \
		ERL_EPMD_ADDRESS=127.0.0.1 \
		ERL_EPMD_PORT="$PORT_EPMD" \
		ERL_CRASH_DUMP="$home/erl_crash.dump" \
		RABBITMQ_NODENAME=couponmq@localhost \
		RABBITMQ_DIST_PORT="$PORT_DIST" \
		RABBITMQ_CONF_ENV_FILE=/dev/null \
		RABBITMQ_CONFIG_FILE="$home/rabbitmq" \
		RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config" \
		RABBITMQ_GENERATED_CONFIG_DIR="$home/config" \
		RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" \
		RABBITMQ_MNESIA_BASE="$home/mnesia" \
		RABBITMQ_LOG_BASE="$home/log" \
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}" \
		"$RABBITMQ_BIN/rabbitmq-server"
}

# The listener opens before that: a broker told to end meanwhile takes ten seconds to do so.
rabbitmq_ready() {
	log_since_start rabbitmq | grep -q 'Server startup complete'
}

# ---- PostgreSQL -----------------------------------------------------------------------------------

postgres_data() {
	readlink -f "$RUN_DIR/postgres/data"
}

# PostgreSQL refuses to run as root: then it runs as the owner of its files, `postgres` for new ones.
postgres_user() {
	local user
	if [[ $(id -u) -ne 0 ]]; then
		id -un
		return
	fi
	user=$(stat -c %U "$(postgres_data)" 2>/dev/null) || user=root
	[[ $user != root ]] || user=postgres
	echo "$user"
}

# Sets AS to what a command is prefixed with to run as that user.
postgres_as() {
	AS=()
	[[ $(id -u) -ne 0 ]] || AS=(setpriv "--reuid=$1" "--regid=$(id -g "$1")" --init-groups --)
}

postgres_folder() {
	local user=$1 elsewhere
	if [[ -L $RUN_DIR/postgres && ! -d $RUN_DIR/postgres ]]; then
		die "the database's folder $(readlink "$RUN_DIR/postgres") is gone; begin anew with: make clean RUN_DIR=$RUN_DIR"
	fi
	[[ ! -d $RUN_DIR/postgres ]] || return 0
	mkdir -m 700 "$RUN_DIR/postgres"
	[[ $(id -u) -eq 0 ]] || return 0
	chown "$user:" "$RUN_DIR/postgres"
	postgres_as "$user"
	if ! "${AS[@]}" test -x "$RUN_DIR/postgres/."; then
		# A folder above is closed to that user, a home of mode 700 for instance.
		rmdir "$RUN_DIR/postgres"
		elsewhere=$(mktemp -d /var/tmp/couponmq-postgres.XXXXXXXX)
		chown "$user:" "$elsewhere"
		ln -s "$elsewhere" "$RUN_DIR/postgres"
		say "user $user cannot enter $RUN_DIR: the database is in $elsewhere"
	fi
}

postgres_init() {
	local user=$1 data pwfile
	data=$(readlink -f "$RUN_DIR/postgres")/data
	[[ ! -e $data/couponmq.conf ]] || return 0
	rm -rf "${data:?}"
	pwfile=$(dirname "$data")/password
	(umask 077 && echo "$STACK_PG_PASSWORD" >"$pwfile")
	[[ $(id -u) -ne 0 ]] || chown "$user:" "$pwfile"
	postgres_as "$user"
	(
		cd "$RUN_DIR/postgres/"
		"${AS[@]}" "$PG_BIN/initdb" -D "$data" -U postgres -A scram-sha-256 --pwfile="$pwfile" \
			--encoding=UTF8 --locale=C.UTF-8 >>"$RUN_DIR/postgres.log" 2>&1
	) || start_failed postgres "could not make its database"
	rm -f "$pwfile"
	echo "include 'couponmq.conf'" >>"$data/postgresql.conf"
}

postgres_spawn() {
	local user data sockets
	[[ -x $PG_BIN/postgres ]] || die "there is no $PG_BIN/postgres; run scripts/packages.sh"
	user=$(postgres_user)
	postgres_folder "$user"
	postgres_init "$user"
	data=$(postgres_data)
	sockets=$(dirname "$data")
	[[ $((${#sockets} + 15)) -le $SOCKET_PATH_MAX ]] || sockets=
	cat >"$data/couponmq.conf" <<-TEXT
	listen_addresses = '127.0.0.1'
	port = $PORT_POSTGRES
	unix_socket_directories = '$sockets'
	max_connections = 100
	fsync = on
	synchronous_commit = on
	shared_buffers = 256MB
	max_wal_size = 2GB
	checkpoint_timeout = 15min
	log_line_prefix = '%m [%p] %u '
	TEXT
	postgres_as "$user"
	LC_ALL=C.UTF-8 process_spawn postgres "${AS[@]}" "$PG_BIN/postgres" -D "$data"
}

# psql as the superuser; passwords go by environment and standard input, never by argument.
postgres_sql() {
	PGOPTIONS="-c client_min_messages=warning" PGPASSWORD=$STACK_PG_PASSWORD psql -X -q -A -t \
		-v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$PORT_POSTGRES" -U postgres -d "$1"
}

postgres_ready() {
	"$PG_BIN/pg_isready" -q -h 127.0.0.1 -p "$PORT_POSTGRES" -d postgres
}

# The owner migrates; the programs' own role may do no more than the migrations granted couponmq_app.
postgres_roles() {
	[[ -z $(postgres_sql postgres <<<"SELECT 1 FROM pg_database WHERE datname = 'couponmq'") ]] || return 0
	postgres_sql postgres <<-SQL
	SELECT 'CREATE ROLE ' || name FROM unnest(ARRAY['couponmq_owner', 'couponmq']) name
	WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
	ALTER ROLE couponmq_owner LOGIN CREATEROLE PASSWORD '$STACK_PG_OWNER_PASSWORD';
	ALTER ROLE couponmq LOGIN PASSWORD '$STACK_PG_APP_PASSWORD';
	GRANT pg_monitor, pg_signal_backend TO couponmq_owner;
	CREATE DATABASE couponmq OWNER couponmq_owner;
	SQL
}

postgres_migrate() {
	env_load
	"$BUILD_DIR/couponctl" migrate || die "couponctl migrate failed"
	postgres_sql couponmq <<<"GRANT couponmq_app TO couponmq"
}

# ---- the programs ---------------------------------------------------------------------------------

built() {
	[[ -x $BUILD_DIR/$1 ]] || die "$BUILD_DIR/$1 is not built; type: make build"
}

# program_spawn NAME BINARY FLAGS: without the owner's password, which only couponctl migrate needs.
program_spawn() {
	local name=$1 flags
	read -r -a flags <<<"$3"
	mkdir -p "$RUN_DIR/$name"
	env_load
	process_spawn "$name" env -u DATABASE_ADMIN_URL "$BUILD_DIR/$2" "${flags[@]}"
}

gateway_spawn() {
	program_spawn gateway coupon-gateway "${GATEWAY_FLAGS:-}"
}

gateway_ready() {
	[[ $(curl -s -m 2 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$PORT_HTTP/readyz") == 200 ]]
}

# The first nine have metrics, on the ports behind the gateway's HTTP.
worker_spawn() {
	local port
	port=$(ports_of "$1")
	COUPON_WORKER_HTTP_LISTEN=${port:+127.0.0.1:$port} program_spawn "$1" coupon-worker "${WORKER_FLAGS:-}"
}

worker_ready() {
	process_runs "$1" && log_since_start "$1" | grep -q 'event=ready'
}

# ---- commands -------------------------------------------------------------------------------------

name_check() {
	[[ $1 =~ ^(redis|rabbitmq|postgres|gateway|epmd|worker-[1-9][0-9]*)$ ]] ||
		die "unknown name $1; there are: redis rabbitmq postgres gateway worker-N"
}

# Starts those of the names that do not run, all at once, then waits for each: an earlier start may have been cut short.
names_start() {
	local name started=' '
	for name in "$@"; do
		case $name in
		gateway) built coupon-gateway ;;
		worker-*) built coupon-worker ;;
		esac
	done
	ports_check "$@"
	for name in "$@"; do
		! process_runs "$name" || continue
		process_start "$name"
		started+="$name "
		[[ $name != epmd ]] || process_wait epmd
	done
	for name in "$@"; do
		process_wait "$name"
		[[ $started != *" $name "* ]] || say "$name is up (pid $(process_pid "$name"))"
	done
	[[ " $* " != *" postgres "* ]] || postgres_roles
}

backends_start() {
	settings_open
	env_write
	names_start epmd rabbitmq redis postgres
}

command_backends() {
	backends_start
	say "settings: . $(shown "$RUN_DIR/env")"
}

command_services() {
	built couponctl
	backends_start
	postgres_migrate
	say "settings: . $(shown "$RUN_DIR/env")"
}

command_start() {
	local name wanted=()
	[[ $# -gt 0 ]] || die "start what? for instance: make start NAME=worker-1"
	for name in "$@"; do
		name_check "$name"
		[[ $name != rabbitmq ]] || wanted+=(epmd)
		wanted+=("$name")
	done
	settings_open
	env_write
	for name in "$@"; do
		! process_runs "$name" || say "$name runs already (pid $(process_pid "$name"))"
	done
	names_start "${wanted[@]}"
}

names_matching() {
	names_known | grep -E "^($1)\$" || true
}

# In the order of the work: what takes requests, what settles them, what keeps them.
stop_all() {
	local stage
	for stage in gateway 'worker-[0-9]+' 'redis|rabbitmq|postgres' epmd; do
		# shellcheck disable=SC2046 # names hold no spaces
		names_stop $(names_matching "$stage")
	done
}

command_stop() {
	local name
	for name in "$@"; do
		name_check "$name"
	done
	if [[ $# -gt 0 ]]; then
		names_stop "$@"
	else
		stop_all
	fi
}

command_clean() {
	local data
	stop_all
	data=$(readlink "$RUN_DIR/postgres" || true)
	[[ $data != /var/tmp/couponmq-postgres.* ]] || rm -rf "$data"
	rm -rf "$RUN_DIR"
}

command_status() {
	local name pid ports
	settings_need
	printf '%-10s %8s  %s\n' name pid ports
	for name in "${BACKENDS[@]}" gateway $(names_matching 'worker-[0-9]+'); do
		pid=$(process_pid "$name") || pid=-
		ports=$(ports_of "$name")
		printf '%-10s %8s  %s\n' "$name" "$pid" "$ports"
	done
}

command_env() {
	settings_need
	cat "$RUN_DIR/env"
}

# The verdict is PostgreSQL's: what was issued, what is there, and the most that one user has.
sample_verdict() {
	local coupon=$1 total=$2 deadline=$((SECONDS + 30)) found=
	until [[ $found == "$total|$total|1" ]]; do
		if [[ $SECONDS -ge $deadline ]]; then
			die "coupon $coupon: issued|user coupons|most a user is $found, and should be $total|$total|1"
		fi
		found=$(postgres_sql couponmq <<-SQL
		SELECT issued_num, (SELECT count(*) FROM user_coupon WHERE coupon_id = coupon.id),
			(SELECT max(n) FROM (SELECT count(*) n FROM user_coupon WHERE coupon_id = coupon.id GROUP BY user_id) u)
		FROM coupon WHERE id = $coupon
		SQL
		)
		sleep 0.1
	done
	say "PostgreSQL: $total of $total issued, $total user coupons, none more than one: right"
}

command_run() {
	local coupon total=10000 env
	built couponctl
	backends_start
	postgres_migrate
	names_start gateway worker-1 worker-2
	lock_release
	coupon=$("$BUILD_DIR/couponctl" create --name "Noon rush" --total "$total" --limit 1 --valid-days 30)
	"$BUILD_DIR/couponctl" publish "$coupon"
	say "coupon $coupon: $total coupons, and now 20000 users"
	"$BUILD_DIR/couponctl" rush --coupon "$coupon" --users 20000
	sample_verdict "$coupon" "$total"
	env=$(shown "$RUN_DIR/env")
	cat <<-TEXT

	To try:
	  . $env; $(shown "$BUILD_DIR")/couponctl stock $coupon --total $((total + 100))
	  echo '{"op":"issue","coupon":"$coupon","user":"900001","ack":"issued"}' | nc -N 127.0.0.1 $PORT_GATEWAY
	  curl -s 'http://127.0.0.1:$PORT_HTTP/v1/status?coupon=$coupon&user=900001'
	TEXT
}

main() {
	local command=${1:-help}
	[[ $# -eq 0 ]] || shift
	case $command in
	run | services | backends | start)
		folder_open
		lock_take
		"command_$command" "$@"
		;;
	stop | clean)
		[[ -e $RUN_DIR/settings ]] || exit 0
		folder_open
		lock_take
		"command_$command" "$@"
		;;
	status | env) "command_$command" ;;
	help | -h | --help) usage ;;
	*)
		usage >&2
		exit 2
		;;
	esac
}

main "$@"
