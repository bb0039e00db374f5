# shellcheck shell=bash
# A node of RabbitMQ: what is in its folder, and its command. Sourced by scripts/stack.sh and
# scripts/ha.sh.

# rabbitmq_home HOME [PLUGIN]
rabbitmq_home() {
	mkdir -p "$1"
	chmod 700 "$1"
	rm -f "$1/.erlang.cookie"
	(umask 377 && printf %s "$STACK_COOKIE" >"$1/.erlang.cookie")
	echo "[${2:-}]." >"$1/enabled_plugins"
	(umask 077 && file_filled rabbitmq.json >"$1/users.json")
}

# rabbitmq_command HOME HOST NODE DIST_PORT SCHEDULERS [ERLANG_ARGUMENT..]: sets BROKER. With
# RUNNING_UNDER_SYSTEMD the script executes the Erlang VM in place, so the pid is the broker's.
rabbitmq_command() {
	local home=$1 host=$2 node=$3 port=$4 schedulers=$5:$5 erlang
	shift 5
	erlang="+S $schedulers +SDcpu $schedulers +sbwt none +sbwtdcpu none +sbwtdio none $*"
	erlang+=" -kernel inet_dist_use_interface {${host//./,}}"
	BROKER=(env
		HOME="$home"
		LANG=C.UTF-8
		RUNNING_UNDER_SYSTEMD=true
		ERL_EPMD_ADDRESS="$host"
		ERL_EPMD_PORT="$PORT_EPMD"
		ERL_CRASH_DUMP="$home/erl_crash.dump"
		RABBITMQ_NODENAME="$node"
		RABBITMQ_DIST_PORT="$port"
		RABBITMQ_CONF_ENV_FILE=/dev/null
		RABBITMQ_CONFIG_FILE="$home/rabbitmq"
		RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config"
		RABBITMQ_GENERATED_CONFIG_DIR="$home/config"
		RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins"
		RABBITMQ_MNESIA_BASE="$home/mnesia"
		RABBITMQ_LOG_BASE="$home/log"
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$erlang"
		"$RABBITMQ_BIN/rabbitmq-server")
}
