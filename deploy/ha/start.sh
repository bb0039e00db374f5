#!/usr/bin/env bash
# In a container of docker-compose.ha.yml, with this folder's parent as /etc/couponmq: start.sh
# redis|sentinel|rabbitmq|etcd|patroni|database|haproxy. The working directory is that of its data.
set -euo pipefail
umask 077

# In the last number of each address: the machine, then 1 Redis, 2 its Sentinel, 3 RabbitMQ, 4 etcd,
# 5 PostgreSQL, 6 the gateway.
HOST=$(hostname -i)
NETWORK=${HOST%.*}
last=${HOST##*.}
MACHINE=m${last%?}
for n in 1 2 3; do
	export "REDIS_$n=$NETWORK.${n}1" "RABBITMQ_$n=$NETWORK.${n}3" "ETCD_$n=$NETWORK.${n}4"
done
export HOST NETWORK MACHINE FOLDER=$PWD SUPERUSER=couponmq_owner
export PORT_REDIS=6379 PORT_SENTINEL=26379 PORT_RABBITMQ=5672 PORT_ETCD=2379 PORT_ETCD_PEER=2380 \
	PORT_PATRONI=8008 PORT_POSTGRES=5432

# put FILE TEXT: at once, so that a start that is killed leaves nothing half written.
put() {
	printf '%s\n' "$2" >"$1.new"
	mv "$1.new" "$1"
}

filled() {
	awk -f /etc/couponmq/fill.awk "/etc/couponmq/$1"
}

# Whom it follows, and what the Sentinels agree on, is kept in the files: they are made once, and a
# new password is put in.
redis_start() {
	local users conf
	users=$(filled redis-users.conf | grep '^user ')
	put users.acl "user default on >$PASSWORD ~* &* +@all"$'\n'"$users"
	if [[ ! -e redis.conf ]]; then
		conf=$(filled ha/redis.conf)
		[[ $MACHINE == m1 ]] || conf+=$'\n'"replicaof $REDIS_1 $PORT_REDIS"
		put redis.conf "$conf"
	fi
	sed -i "s/^masterauth .*/masterauth $PASSWORD/" redis.conf
	exec redis-server redis.conf
}

sentinel_start() {
	local conf
	if [[ ! -e sentinel.conf ]]; then
		conf=$(filled ha/sentinel.conf)
		put sentinel.conf "$conf"
	fi
	sed -i "s/^sentinel auth-pass couponmq .*/sentinel auth-pass couponmq $PASSWORD/" \
		sentinel.conf
	exec redis-server sentinel.conf --sentinel
}

# One scheduler, which does not spin: three nodes share the processors of one machine.
rabbitmq_start() {
	filled rabbitmq.json >users.json
	filled ha/rabbitmq.conf >rabbitmq.conf
	rm -f .erlang.cookie
	(umask 377 && sha256sum <<<"$PASSWORD" | cut -d' ' -f1 >.erlang.cookie)
	echo '[].' >enabled_plugins
	cat >rabbitmq-env.conf <<-CONF
	NODENAME=$MACHINE@$HOST
	USE_LONGNAME=true
	CONFIG_FILE=$PWD/rabbitmq
	ADVANCED_CONFIG_FILE=/etc/couponmq/ha/advanced.config
	GENERATED_CONFIG_DIR=$PWD/config
	ENABLED_PLUGINS_FILE=$PWD/enabled_plugins
	MNESIA_BASE=$PWD/mnesia
	LOG_BASE=$PWD/log
	SERVER_ADDITIONAL_ERL_ARGS='+S 1:1 +SDcpu 1:1 +SDio 4 +sbwt none +sbwtdcpu none'
	CONF
	exec rabbitmq-server
}

etcd_start() {
	filled ha/etcd.yml >etcd.yml
	exec etcd --config-file etcd.yml
}

patroni_start() {
	PG_BIN=$(echo /usr/lib/postgresql/*/bin)
	export PG_BIN
	filled ha/patroni.yml >patroni.yml
	exec patroni patroni.yml
}

# Nobody else makes the database under Patroni. Where that has just started, no server leads; and a
# standby that does not have the database yet would be asked for it before the primary.
database_start() {
	local deadline=$((SECONDS + 120))
	export PGHOST=$NETWORK.15,$NETWORK.25,$NETWORK.35 PGTARGETSESSIONATTRS=read-write
	export PGUSER=$SUPERUSER PGCONNECT_TIMEOUT=5
	until psql -X -q -v ON_ERROR_STOP=1 postgres <<-'SQL' && psql -X -q couponmq </dev/null
		SELECT 'CREATE DATABASE couponmq'
		WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'couponmq') \gexec
	SQL
	do
		[[ $SECONDS -lt $deadline ]] || exit 1
		sleep 1
	done
}

# CA: the file by which the gateways, which then have TLS, are verified when they are checked.
haproxy_start() {
	local secured=()
	[[ -z ${CA:-} ]] ||
		secured=(-e "s|# \(default-server check-ssl .* ca-file\) .*|\1 $CA|")
	sed "${secured[@]}" -e "s/10\.2\.0\.\([123]\):/$NETWORK.\16:/" \
		-e '/^    \(user\|group\|maxconn\) /d' -e "s|/run/haproxy/|$PWD/|" \
		-e 's|log /dev/log|log stdout format raw|' \
		/etc/couponmq/haproxy.cfg >haproxy.cfg
	exec haproxy -db -f haproxy.cfg
}

"${1:?is redis, sentinel, rabbitmq, etcd, patroni, database or haproxy}_start"
