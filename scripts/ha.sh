#!/usr/bin/env bash
# Three machines on one: each a network namespace with Redis and its Sentinel, RabbitMQ, etcd,
# PostgreSQL under Patroni, a gateway and a worker; HAProxy before them.
#
# RUN_DIR/        as of scripts/stack.sh: settings, env, env.PROGRAM, and of each process NAME.pid,
#                 NAME.log and NAME/: m1-redis m1-sentinel m1-epmd m1-rabbitmq m1-etcd m1-patroni
#                 m1-gateway m1-worker, the same of m2 and m3, and haproxy
#   mN-postgres.pid is what Patroni started; its log is that of Patroni
#   machines      `namespaces`, or `loopback` where they may not be made: then the machines are
#                 addresses of the loopback interface, and cannot be cut off
set -euo pipefail
umask 022

# shellcheck source=scripts/stack/begin.sh
. "${BASH_SOURCE[0]%/*}/stack/begin.sh" ha .run-ha
readonly DEFAULT_PORT_BASE=8400
readonly MACHINES=(m1 m2 m3)
readonly KINDS=(epmd etcd redis sentinel rabbitmq patroni worker gateway)

usage() {
	cat <<-TEXT
	usage: [RUN_DIR=.run-ha] [PORT_BASE=8400] scripts/ha.sh COMMAND
	  run           the machines, HAProxy, a sample campaign and a rush on it
	  start NAME..  processes (m1-redis) or all of a machine (m1), and its network
	  stop [NAME..] the bed with its network, or processes, or all of a machine
	  cut MACHINE [in|out]  off from the others, as by a switch that is dead: both ways,
	                or only what comes to it, or goes from it
	  mend MACHINE  connects it again
	  kill MACHINE  as by a loss of power: nothing is said, and its processes end
	  status        what runs, and where
	  clean         stop, and remove the folder
	TEXT
}

# What kind of process NAME is: its functions are KIND_spawn and KIND_ready.
kind_of() {
	KIND=machine_${1#m[1-3]-}
}

# shellcheck source=scripts/ha/network.sh
. scripts/ha/network.sh
# shellcheck source=scripts/ha/services.sh
. scripts/ha/services.sh
# shellcheck source=scripts/ha/programs.sh
. scripts/ha/programs.sh

# ---- names

machine_check() {
	[[ ${1:-} =~ ^m[1-3]$ ]] || die "unknown machine ${1:-}; there are: ${MACHINES[*]}"
}

# Sets NAMES: a machine stands for all of its processes.
names_of() {
	local name kind
	NAMES=()
	for name in "$@"; do
		if [[ $name =~ ^m[1-3]$ ]]; then
			for kind in "${KINDS[@]}"; do
				! machine_has "$name" "$kind" || NAMES+=("$name-$kind")
			done
		elif [[ $name == haproxy || " ${KINDS[*]} " == *" ${name#m[1-3]-} "* ]]; then
			NAMES+=("$name")
		else
			die "unknown name $name; there are: haproxy ${MACHINES[*]}, and of each" \
				"${KINDS[*]}"
		fi
	done
}

# Sets NAMES: these kinds of all machines.
names_of_kinds() {
	local machine kind
	NAMES=()
	for machine in "${MACHINES[@]}"; do
		for kind in "$@"; do
			! machine_has "$machine" "$kind" || NAMES+=("$machine-$kind")
		done
	done
}

names_start() {
	local name started=' '
	for name in "$@"; do
		! process_runs "$name" || continue
		process_start "$name"
		started+="$name "
	done
	for name in "$@"; do
		process_wait "$name"
		[[ $started != *" $name "* ]] || say "$name is up (pid $PID)"
	done
}

# ---- commands

bed_open() {
	[[ ${TLS:-no} == no ]] || die "TLS is $TLS; the three machines have no TLS"
	settings_open
	machines_choose
	addresses_set
	bed_env_write
}

bed_need() {
	settings_load || die "there are no machines in $RUN_DIR; start them with: make run-ha"
	machines_load
	addresses_set
}

command_run() {
	local program
	for program in coupon-gateway coupon-worker couponctl coupon-rush; do
		[[ -x $BUILD_DIR/$program ]] ||
			die "$BUILD_DIR/$program is not built; type: make build"
	done
	bed_open
	process_runs haproxy || ports_check haproxy
	network_make
	names_of_kinds epmd etcd redis
	names_start "${NAMES[@]}"
	names_of_kinds sentinel rabbitmq patroni
	names_start "${NAMES[@]}"
	replicas_wait
	postgres_roles
	postgres_migrate
	# The first one declares the queues alone.
	names_start m1-worker
	names_of_kinds worker gateway
	names_start "${NAMES[@]}" haproxy
	lock_release
	sample_run
	echo "  scripts/ha.sh help   to kill a machine, or cut it off"
}

command_start() {
	local name
	[[ $# -gt 0 ]] || die "start what? for instance: scripts/ha.sh start m1"
	bed_need
	names_of "$@"
	network_make
	for name in "$@"; do
		[[ ! $name =~ ^m[1-3]$ ]] || machine_mend "$name"
	done
	names_start "${NAMES[@]}"
}

# Stops a client before its server: Patroni stops PostgreSQL, and needs etcd for it.
bed_stop() {
	local stage
	for stage in 'm[1-3]-gateway' 'm[1-3]-worker|haproxy' 'm[1-3]-(sentinel|patroni)' \
		'm[1-3]-(redis|rabbitmq|postgres)' 'm[1-3]-(etcd|epmd)'; do
		# shellcheck disable=SC2046 # names hold no spaces
		names_stop $(names_known | grep -E "^($stage)\$" || true)
	done
	network_remove
}

command_stop() {
	bed_need
	if [[ $# -gt 0 ]]; then
		names_of "$@"
		names_stop "${NAMES[@]}"
	else
		bed_stop
	fi
}

command_clean() {
	local machine
	bed_need
	bed_stop
	for machine in "${MACHINES[@]}"; do
		postgres_remove "$machine-postgres"
	done
	rm -rf "$RUN_DIR"
}

command_cut() {
	machine_check "$@"
	bed_need
	machine_cut "$@"
}

command_mend() {
	machine_check "$@"
	bed_need
	machine_mend "$1"
}

command_kill() {
	local name
	machine_check "$@"
	bed_need
	[[ $MACHINES_ARE == loopback ]] || machine_cut "$1"
	names_of "$1"
	for name in "${NAMES[@]}" "$1-postgres"; do
		! process_runs "$name" || kill -KILL -- "-$PID" 2>/dev/null || kill -KILL "$PID"
	done
	[[ $MACHINES_ARE == loopback ]] || strays_kill "$1"
	for name in "${NAMES[@]}" "$1-postgres"; do
		process_ended "$name" 10 || die "$name (pid $PID) cannot be ended"
	done
}

command_status() {
	local name
	bed_need
	printf '%-12s %8s  %s\n' name pid address
	names_of "${MACHINES[@]}" haproxy
	for name in "${NAMES[@]}"; do
		process_runs "$name" || PID=-
		printf '%-12s %8s  %s\n' "$name" "$PID" "$(address_shown "$name")"
	done
}

main() {
	local command=${1:-help}
	[[ $# -eq 0 ]] || shift
	case $command in
	run | start | cut | mend | kill)
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
	status) command_status ;;
	help | -h | --help) usage ;;
	*)
		usage >&2
		exit 2
		;;
	esac
}

main "$@"
