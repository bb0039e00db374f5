# shellcheck shell=bash
# The services of a machine: Redis and its Sentinel, RabbitMQ with its port mapper, etcd, and
# Patroni with PostgreSQL. Sourced by scripts/ha.sh; NAME is mN-KIND.
#
# What Sentinel and Redis rewrite themselves is made once: who is the master is theirs to know.

# machine_file NAME FILE [FOLDER]: prints a file of deploy/ha for the machine of NAME.
machine_file() {
	local n
	(
		export MACHINE=${1%%-*} HOST FOLDER=${3:-$RUN_DIR/$1} NETWORK PORT_REDIS \
			PORT_SENTINEL PORT_RABBITMQ PORT_ETCD PORT_ETCD_PEER PORT_PATRONI \
			PORT_POSTGRES PG_BIN
		HOST=$(address_of "$1")
		for n in 1 2 3; do
			export "REDIS_$n=$NETWORK.$n" "RABBITMQ_$n=$NETWORK.$n" \
				"ETCD_$n=$NETWORK.$n"
		done
		file_filled "ha/$2"
	)
}

machine_spawn() {
	local name=$1
	shift
	on_machine "$name"
	mkdir -p "$RUN_DIR/$name"
	process_spawn "$name" "${ON[@]}" "$@"
}

# ---- Redis

# The default user is for people, replicas and Sentinels.
machine_redis_spawn() {
	local home=$RUN_DIR/$1
	mkdir -p "$home"
	(
		umask 077
		{
			echo "user default on >$STACK_AMQP_PASSWORD ~* &* +@all"
			file_filled redis-users.conf | grep '^user '
		} >"$home/users.acl"
		[[ -e $home/redis.conf ]] || {
			machine_file "$1" redis.conf
			[[ $1 == m1-* ]] || echo "replicaof $(address_of m1) $PORT_REDIS"
		} >"$home/redis.conf"
	)
	machine_spawn "$1" "${REDIS_SERVER:-$(redis_server_find)}" ./redis.conf
}

machine_redis_ready() {
	port_tells "$PORT_REDIS" "AUTH $STACK_AMQP_PASSWORD\r\n" "$(address_of "$1")" &&
		[[ $TOLD == +OK* ]]
}

machine_sentinel_spawn() {
	local conf=$RUN_DIR/$1/sentinel.conf
	mkdir -p "$RUN_DIR/$1"
	[[ -e $conf ]] || (umask 077 && machine_file "$1" sentinel.conf >"$conf")
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

# One scheduler: three nodes share the processors of this machine. Each has a port of its own for
# the others, where they share a mapper.
machine_rabbitmq_spawn() {
	local home=$RUN_DIR/$1 host
	host=$(address_of "$1")
	rabbitmq_home "$home" rabbitmq_management
	cp deploy/ha/advanced.config "$home/"
	{
		machine_file "$1" rabbitmq.conf
		echo "management.tcp.ip = $host"
		echo "management.tcp.port = $PORT_RABBITMQ_API"
	} >"$home/rabbitmq.conf"
	rabbitmq_command "$home" "$host" "${1%%-*}@$host" "$((PORT_DIST + ${host##*.} - 1))" 1 \
		+SDio 4
	machine_spawn "$1" env RABBITMQ_USE_LONGNAME=true "${BROKER[@]}"
}

machine_rabbitmq_ready() {
	grep -q 'Server startup complete' <(log_since_start "$1")
}

# ---- etcd and Patroni

machine_etcd_spawn() {
	mkdir -p "$RUN_DIR/$1"
	machine_file "$1" etcd.yml >"$RUN_DIR/$1/etcd.yml"
	machine_spawn "$1" etcd --config-file etcd.yml
}

machine_etcd_ready() {
	port_tells "$PORT_ETCD" 'GET /health HTTP/1.0\r\n\r\n' "$(address_of "$1")" &&
		[[ $TOLD == 'HTTP/1.0 200 '* ]]
}

# mN-postgres.pid is the file of PostgreSQL itself, which outlives a Patroni that is killed.
machine_patroni_spawn() {
	local machine=${1%%-*} name user folder
	name=$machine-postgres
	postgres_bin "$name"
	user=$(postgres_user "$name")
	postgres_folder "$name" "$user"
	folder=$(readlink -f "$RUN_DIR/$name")
	file_put "$folder/patroni.yml" \
		"$(SUPERUSER=postgres machine_file "$1" patroni.yml "$folder")"
	[[ $(id -u) -ne 0 ]] || chown "$user:" "$folder/patroni.yml"
	ln -sfn "$folder/data/postmaster.pid" "$RUN_DIR/$name.pid"
	postgres_as "$user"
	LC_ALL=C.UTF-8 machine_spawn "$1" "${AS[@]}" patroni "$folder/patroni.yml"
}

machine_patroni_ready() {
	port_tells "$PORT_PATRONI" 'GET /health HTTP/1.0\r\n\r\n' "$(address_of "$1")" &&
		[[ $TOLD == 'HTTP/1.0 200 '* ]] && return
	bootstrap_watch
	return 1
}

# ---- the bootstrap of PostgreSQL
#
# One Patroni takes the key `initialize` in etcd, and makes the cluster; the others wait. On a busy
# machine that can fail without an end: the key is taken, but the answer came too late, so that its
# owner waits too, or PostgreSQL was stopped because etcd did not answer in time. A Patroni that
# notices the failure itself ends, and is started again by respawn(). The file `made` says that the
# cluster was complete once: from then on nothing is removed.

readonly BOOTSTRAP_S=${BOOTSTRAP_S:-60} # without anything new in the logs of Patroni
readonly BOOTSTRAPS_MAX=4
BOOTSTRAPS=1

etcd_patroni() {
	curl -s -m 5 -X "$1" "http://$(address_of m1):$PORT_ETCD/v2/keys/service/couponmq$2"
}

# Only by the word of etcd: without an answer nothing is known.
bootstrap_has_no_end() {
	local answer
	[[ ! -e $RUN_DIR/made ]] && answer=$(etcd_patroni GET /initialize) &&
		[[ $answer == *'"value":""'* || $answer == *'"errorCode":100,'* ]]
}

# Whether none is left, by the word of etcd.
bootstrap_keys_remove() {
	local answer
	answer=$(etcd_patroni DELETE '?recursive=true') &&
		[[ $answer == *'"action":"delete"'* || $answer == *'"errorCode":100,'* ]]
}

# Called again and again while a Patroni is not ready.
bootstrap_watch() {
	local told machine
	[[ $SECONDS -ge ${BOOTSTRAP_LOOK:-0} ]] || return 0
	BOOTSTRAP_LOOK=$((SECONDS + 2))
	# different lines: what Patroni repeats, and its complaints about who asks it, are no news
	told=$(for machine in "${MACHINES[@]}"; do
		log_since_start "$machine-patroni" | tr -d 0-9 | sort -u | wc -l
	done)
	if [[ $told != "${BOOTSTRAP_TOLD:-}" ]]; then
		BOOTSTRAP_TOLD=$told
		BOOTSTRAP_SINCE=$SECONDS
	elif [[ $((SECONDS - BOOTSTRAP_SINCE)) -ge $BOOTSTRAP_S ]] &&
		[[ $BOOTSTRAPS -lt $BOOTSTRAPS_MAX ]] && bootstrap_has_no_end; then
		bootstrap_again
	fi
}

# The folders go first: if this ends in its middle, the key that is left has no end, and the next
# start notices it; a folder without a key would be taken for a cluster that was complete.
bootstrap_again() {
	local machine group folder groups=() deadline=$((SECONDS + START_S))
	say "the bootstrap of PostgreSQL has told nothing new for $BOOTSTRAP_S s: it begins again"
	for machine in "${MACHINES[@]}"; do
		! process_runs "$machine-patroni" || groups+=("$PID")
	done
	names_stop "${MACHINES[@]/%/-patroni}"
	names_stop "${MACHINES[@]/%/-postgres}"
	# an initdb that outlives its Patroni would write into the next one's folder
	for group in "${groups[@]}"; do
		kill -KILL -- "-$group" 2>/dev/null || true
	done
	for machine in "${MACHINES[@]}"; do
		folder=$(readlink -f "$RUN_DIR/$machine-postgres")
		rm -rf "${folder:?}"/data*
	done
	until bootstrap_keys_remove; do
		[[ $SECONDS -lt $deadline ]] || die "etcd on m1 does not remove the keys of Patroni"
		sleep 0.5
	done
	for machine in "${MACHINES[@]}"; do
		process_start "$machine-patroni"
	done
	BOOTSTRAPS=$((BOOTSTRAPS + 1))
	BOOTSTRAP_SINCE=$SECONDS
	WAIT_SINCE=$SECONDS
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
	touch "$RUN_DIR/made"
}
