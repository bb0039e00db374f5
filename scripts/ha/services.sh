# shellcheck shell=bash
# The services of a machine: Redis and its Sentinel, RabbitMQ with its port mapper, etcd, and
# Patroni with PostgreSQL. Sourced by scripts/ha.sh; NAME is mN-KIND.
#
# What Sentinel and Redis rewrite themselves is made once: who is the master is theirs to know.

readonly MASTER_NAME=couponmq

machine_spawn() {
	local name=$1
	shift
	on_machine "$name"
	mkdir -p "$RUN_DIR/$name"
	process_spawn "$name" "${ON[@]}" "$@"
}

# ---- Redis

# Users are in a file of their own, because Redis writes those of its configuration back into it.
# The default user is for people, replicas and Sentinels.
machine_redis_spawn() {
	local home=$RUN_DIR/$1 host
	host=$(address_of "$1")
	mkdir -p "$home"
	(
		umask 077
		{
			echo "user default on >$STACK_AMQP_PASSWORD ~* &* +@all"
			passwords_put deploy/redis-users.conf | grep '^user '
		} >"$home/users.acl"
		[[ -e $home/redis.conf ]] || redis_conf "$1" "$host" >"$home/redis.conf"
	)
	machine_spawn "$1" "${REDIS_SERVER:-$(redis_server_find)}" ./redis.conf
}

# redis_conf NAME HOST
redis_conf() {
	cat <<-TEXT
	bind $2
	port $PORT_REDIS
	dir ./
	aclfile ./users.acl
	appendonly yes
	appendfsync always
	auto-aof-rewrite-min-size 1gb
	maxmemory-policy noeviction
	save ""
	masteruser default
	masterauth $STACK_AMQP_PASSWORD
	replica-announce-ip $2
	repl-diskless-sync-delay 0
	min-replicas-to-write 1
	min-replicas-max-lag 3
	TEXT
	[[ $1 == m1-* ]] || echo "replicaof $(address_of m1) $PORT_REDIS"
}

machine_redis_ready() {
	port_tells "$PORT_REDIS" "AUTH $STACK_AMQP_PASSWORD\r\n" "$(address_of "$1")" &&
		[[ $TOLD == +OK* ]]
}

machine_sentinel_spawn() {
	local home=$RUN_DIR/$1 host
	host=$(address_of "$1")
	mkdir -p "$home"
	if [[ ! -e $home/sentinel.conf ]]; then
		file_put "$home/sentinel.conf" "\
bind $host
port $PORT_SENTINEL
dir ./
sentinel announce-ip $host
sentinel monitor $MASTER_NAME $(address_of m1) $PORT_REDIS 2
sentinel auth-user $MASTER_NAME default
sentinel auth-pass $MASTER_NAME $STACK_AMQP_PASSWORD
sentinel down-after-milliseconds $MASTER_NAME 3000
sentinel failover-timeout $MASTER_NAME 10000
"
	fi
	machine_spawn "$1" "${REDIS_SERVER:-$(redis_server_find)}" ./sentinel.conf --sentinel
}

machine_sentinel_ready() {
	port_tells "$PORT_SENTINEL" 'PING\r\n' "$(address_of "$1")" && [[ $TOLD == +PONG* ]]
}

# ---- RabbitMQ

machine_epmd_spawn() {
	local at
	at=$(address_of "$1")
	[[ $MACHINES_ARE == namespaces ]] || at=$(addresses ,)
	machine_spawn "$1" epmd -address "$at" -port "$PORT_EPMD"
}

machine_epmd_ready() {
	port_answers "$PORT_EPMD" "$(address_of "$1")"
}

rabbitmq_conf() {
	local machine n=0
	cat <<-TEXT
	listeners.tcp.default = $2:$PORT_RABBITMQ
	load_definitions = $RUN_DIR/$1/users.json
	cluster_partition_handling = pause_minority
	net_ticktime = 8
	cluster_formation.peer_discovery_backend = classic_config
	disk_free_limit.absolute = 50MB
	raft.wal_max_size_bytes = 67108864
	log.console = true
	log.console.level = info
	log.console.use_colors = off
	log.file = false
	TEXT
	for machine in "${MACHINES[@]}"; do
		echo "cluster_formation.classic_config.nodes.$((++n)) =" \
			"$machine@$(address_of "$machine")"
	done
}

# One scheduler: three nodes share the processors of this machine.
machine_rabbitmq_spawn() {
	local home=$RUN_DIR/$1 host port erlang
	host=$(address_of "$1")
	port=$((PORT_DIST + ${host##*.} - 1)) # each its own, where they share a mapper
	erlang="+S 1:1 +SDcpu 1:1 +SDio 4 +sbwt none +sbwtdcpu none +sbwtdio none"
	erlang+=" -kernel inet_dist_use_interface {${host//./,}}"
	mkdir -p "$home"
	chmod 700 "$home"
	rm -f "$home/.erlang.cookie"
	(umask 377 && printf %s "$STACK_COOKIE" >"$home/.erlang.cookie")
	echo '[].' >"$home/enabled_plugins"
	(
		umask 077
		passwords_put deploy/rabbitmq.json >"$home/users.json"
		rabbitmq_conf "$1" "$host" >"$home/rabbitmq.conf"
	)
	machine_spawn "$1" env \
		HOME="$home" \
		LANG=C.UTF-8 \
		RUNNING_UNDER_SYSTEMD=true \
		ERL_EPMD_ADDRESS="$host" \
		ERL_EPMD_PORT="$PORT_EPMD" \
		ERL_CRASH_DUMP="$home/erl_crash.dump" \
		RABBITMQ_USE_LONGNAME=true \
		RABBITMQ_NODENAME="${1%%-*}@$host" \
		RABBITMQ_DIST_PORT="$port" \
		RABBITMQ_CONF_ENV_FILE=/dev/null \
		RABBITMQ_CONFIG_FILE="$home/rabbitmq" \
		RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config" \
		RABBITMQ_GENERATED_CONFIG_DIR="$home/config" \
		RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" \
		RABBITMQ_MNESIA_BASE="$home/mnesia" \
		RABBITMQ_LOG_BASE="$home/log" \
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$erlang" \
		"$RABBITMQ_BIN/rabbitmq-server"
}

machine_rabbitmq_ready() {
	grep -q 'Server startup complete' <(log_since_start "$1")
}

# ---- etcd and Patroni

# Pre-vote, the default from etcd 3.5 on: a member that comes back must not unseat the leader.
machine_etcd_spawn() {
	local machine host members=
	host=$(address_of "$1")
	for machine in "${MACHINES[@]}"; do
		members+=${members:+,}$machine=http://$(address_of "$machine"):$PORT_ETCD_PEER
	done
	machine_spawn "$1" etcd --name "${1%%-*}" --data-dir ./data --logger zap \
		--listen-peer-urls "http://$host:$PORT_ETCD_PEER" \
		--initial-advertise-peer-urls "http://$host:$PORT_ETCD_PEER" \
		--listen-client-urls "http://$host:$PORT_ETCD" \
		--advertise-client-urls "http://$host:$PORT_ETCD" \
		--initial-cluster "$members" --initial-cluster-token "$BRIDGE" \
		--pre-vote --enable-v2
}

machine_etcd_ready() {
	port_tells "$PORT_ETCD" 'GET /health HTTP/1.0\r\n\r\n' "$(address_of "$1")" &&
		[[ $TOLD == 'HTTP/1.0 200 '* ]]
}

# By the version 2 of the API of etcd: by version 3 the Patroni of Debian 12 (3.0.2) puts its name
# over that of the new leader when its machine was cut off and is back (patroni/patroni #2689).
# ttl 20 is the least that Patroni takes: it is how long a machine is missed that is lost with the
# primary. It must be at least loop_wait and two times retry_timeout.
patroni_conf() {
	local machine=$1 host=$2 folder=$3
	cat <<-TEXT
	scope: couponmq
	name: $machine
	restapi:
	  listen: $host:$PORT_PATRONI
	  connect_address: $host:$PORT_PATRONI
	etcd:
	  hosts: $(addresses , "$PORT_ETCD")
	bootstrap:
	  dcs:
	    ttl: 20
	    loop_wait: 5
	    retry_timeout: 5
	    synchronous_mode: true
	    postgresql:
	      use_pg_rewind: true
	      parameters:
	        max_connections: 200
	        wal_log_hints: on
	        wal_sender_timeout: 10s
	        wal_receiver_timeout: 10s
	        checkpoint_timeout: 15min
	        jit: off
	        log_line_prefix: '%m [%p] %u '
	  initdb:
	    - encoding: UTF8
	    - locale: C.UTF-8
	postgresql:
	  listen: $host:$PORT_POSTGRES
	  connect_address: $host:$PORT_POSTGRES
	  data_dir: $folder/data
	  bin_dir: $PG_BIN
	  pgpass: $folder/pgpass
	  pg_hba:
	    - host all all $NETWORK.0/24 scram-sha-256
	    - host all all 127.0.0.0/8 scram-sha-256
	    - host replication replicator $NETWORK.0/24 scram-sha-256
	    - host replication replicator 127.0.0.0/8 scram-sha-256
	  parameters:
	    unix_socket_directories: ''
	  authentication:
	    superuser: {username: postgres, password: $STACK_PG_PASSWORD}
	    replication: {username: replicator, password: $STACK_PG_PASSWORD}
	    rewind: {username: postgres, password: $STACK_PG_PASSWORD}
	TEXT
}

# mN-postgres.pid is the file of PostgreSQL itself, which outlives a Patroni that is killed.
machine_patroni_spawn() {
	local machine=${1%%-*} name user folder
	name=$machine-postgres
	postgres_bin "$name"
	user=$(postgres_user "$name")
	postgres_folder "$name" "$user"
	folder=$(readlink -f "$RUN_DIR/$name")
	file_put "$folder/patroni.yml" "$(patroni_conf "$machine" "$(address_of "$1")" "$folder")"
	[[ $(id -u) -ne 0 ]] || chown "$user:" "$folder/patroni.yml"
	ln -sfn "$folder/data/postmaster.pid" "$RUN_DIR/$name.pid"
	postgres_as "$user"
	LC_ALL=C.UTF-8 machine_spawn "$1" "${AS[@]}" patroni "$folder/patroni.yml"
}

machine_patroni_ready() {
	port_tells "$PORT_PATRONI" 'GET /health HTTP/1.0\r\n\r\n' "$(address_of "$1")" &&
		[[ $TOLD == 'HTTP/1.0 200 '* ]]
}

# Until both other machines follow, one of them synchronously.
replicas_wait() {
	local deadline=$((SECONDS + START_S)) found=
	postgres_bin m1-postgres
	until [[ $found == '2|1' ]]; do
		[[ $SECONDS -lt $deadline ]] ||
			die "PostgreSQL has replicas|synchronous $found, and should have 2|1;" \
				"see $RUN_DIR/m*-patroni.log"
		found=$(postgres_sql postgres 2>/dev/null <<-SQL
		SELECT count(*), count(*) FILTER (WHERE sync_state = 'sync')
		FROM pg_stat_replication WHERE state = 'streaming'
		SQL
		) || true
		sleep 0.2
	done
}
