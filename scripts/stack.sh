#!/usr/bin/env bash
# One local stack: private Redis, RabbitMQ and PostgreSQL, gateway and workers, in one folder.
#
# RUN_DIR/            settings (mode 600): port base and passwords; env: for the shell to source;
#   env.gateway env.worker env.operator: the logins of each program
#   NAME.pid NAME.log of each process: redis epmd rabbitmq postgres gateway worker-N admin, and
#   zookeeper where WITH_ZOOKEEPER is set
#   admin-key         the key of the console
#   tls/              with TLS=yes: its CA, and the certificate of its listeners
#   NAME/             its folder and working directory, by which its pid is identified
set -euo pipefail
umask 022

# shellcheck source=scripts/stack/begin.sh
. "${BASH_SOURCE[0]%/*}/stack/begin.sh" stack .run
readonly BACKENDS=(epmd redis rabbitmq postgres ${WITH_ZOOKEEPER:+zookeeper})
readonly DEFAULT_PORT_BASE=7400

usage() {
	cat <<-TEXT
	usage: [RUN_DIR=.run] [PORT_BASE=7400] [TLS=no] scripts/stack.sh COMMAND
	  run           services, gateway, two workers, admin, a sample campaign and a rush on it
	  services      Redis, RabbitMQ and PostgreSQL, migrated
	  backends      the same without the migration
	  start NAME..  redis, rabbitmq, postgres, gateway, worker-N or admin
	  stop [NAME..] all of the stack, or these
	  status        what runs, and where
	  env           the settings, for the shell: eval "\$(scripts/stack.sh env)"
	  clean         stop, and remove the folder
	A relative RUN_DIR is below the project's folder. GATEWAY_FLAGS, WORKER_FLAGS,
	ADMIN_FLAGS and REDIS_FLAGS are extra arguments. TLS=yes makes certificates for the
	listeners of the programs. WITH_ZOOKEEPER=1 starts a ZooKeeper too. REDIS_SERVER is the
	command of the Redis server, redis-server or valkey-server; PG_BIN and RABBITMQ_BIN are the
	folders of the others.
	TEXT
}

# What kind of process NAME is: its functions are KIND_spawn and KIND_ready.
kind_of() {
	KIND=${1%%-*}
}

# shellcheck source=scripts/stack/services.sh
. scripts/stack/services.sh

# ---- commands

name_check() {
	[[ $1 =~ ^(redis|rabbitmq|postgres|zookeeper|gateway|admin|epmd|worker-[1-9][0-9]*)$ ]] ||
		die "unknown name $1; there are: redis rabbitmq postgres zookeeper gateway admin" \
			worker-N
}

# Starts those of the names that do not run, all at once, then waits for every name: an earlier
# start may have been interrupted.
names_start() {
	local name started=' '
	for name in "$@"; do
		case $name in
		gateway) built coupon-gateway ;;
		admin) built coupon-admin ;;
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
		[[ $name != rabbitmq ]] || rabbitmq_started
		[[ $started != *" $name "* ]] || say "$name is up (pid $PID)"
	done
	[[ " $* " != *" postgres "* ]] || postgres_roles
}

backends_start() {
	settings_open
	env_write
	names_start "${BACKENDS[@]}"
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

command_run() {
	built couponctl
	built coupon-rush
	backends_start
	postgres_migrate
	names_start gateway worker-1 worker-2 admin
	lock_release
	sample_run
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
		! process_runs "$name" || say "$name already runs (pid $PID)"
	done
	names_start "${wanted[@]}"
}

names_matching() {
	names_known | grep -E "^($1)\$" || true
}

# Stops the programs in the order of the work, then the services: gateway, workers, stores.
stop_all() {
	local stage
	for stage in admin gateway 'worker-[0-9]+' 'redis|rabbitmq|postgres|zookeeper' epmd; do
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
	stop_all
	postgres_remove postgres
	rm -rf "$RUN_DIR"
}

bed_refuse() {
	[[ ! -e $RUN_DIR/machines ]] ||
		die "$RUN_DIR has three machines: use scripts/ha.sh, or choose another RUN_DIR="
}

command_status() {
	local name
	settings_need
	printf '%-10s %8s  %s\n' name pid ports
	for name in "${BACKENDS[@]}" gateway admin $(names_matching 'worker-[0-9]+'); do
		process_runs "$name" || PID=-
		ports_of "$name"
		printf '%-10s %8s  %s\n' "$name" "$PID" "${PORTS[*]}"
	done
}

command_env() {
	settings_need
	cat "$RUN_DIR/env"
}

main() {
	local command=${1:-help}
	[[ $# -eq 0 ]] || shift
	case $command in
	run | services | backends | start)
		bed_refuse
		folder_open
		lock_take
		"command_$command" "$@"
		;;
	stop | clean)
		[[ -e $RUN_DIR/settings ]] || exit 0
		bed_refuse
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
