# shellcheck shell=bash
# The programs of a machine, HAProxy before the gateways, and the env files. Sourced by
# scripts/ha.sh.

postgres_url() {
	local options=target_session_attrs=read-write
	echo "postgresql://$1@$(addresses , "$PORT_POSTGRES")/couponmq?$options"
}

# stores_env REDIS AMQP POSTGRES: each USER:PASSWORD; with all hosts of each store.
stores_env() {
	cat <<-TEXT
	export COUPON_CONFIG_DIR=''
	export REDIS_URL='redis+sentinel://$1@$(addresses , "$PORT_SENTINEL")/couponmq/0'
	export AMQP_URL='amqp://$2@$(addresses , "$PORT_RABBITMQ")/%2f'
	export DATABASE_URL='$(postgres_url "$3")'
	TEXT
}

# The addresses in env are for people, who come through HAProxy.
bed_env_write() {
	local program login api=http://couponmq:$STACK_AMQP_PASSWORD
	api+=@$(addresses , "$PORT_RABBITMQ_API")
	[[ -e $RUN_DIR/code-keys ]] ||
		file_put "$RUN_DIR/code-keys" "1 $(random_hex)$(random_hex)"$'\n'
	file_put "$RUN_DIR/env" "$(stores_env "default:$STACK_AMQP_PASSWORD" \
		"couponmq:$STACK_AMQP_PASSWORD" "couponmq:$STACK_PG_APP_PASSWORD")
export DATABASE_ADMIN_URL='$(postgres_url "couponmq_owner:$STACK_PG_OWNER_PASSWORD")'
export COUPON_RABBITMQ_API='$api'
export COUPON_LISTEN='127.0.0.1:$PORT_GATEWAY'
export COUPON_HTTP_LISTEN='127.0.0.1:$PORT_HTTP'
export COUPON_CODE_KEYS='$RUN_DIR/code-keys'
export COUPON_DATABASE_SYNCHRONOUS='${COUPON_DATABASE_SYNCHRONOUS:-yes}'
"
	for program in gateway worker operator; do
		login=STACK_${program^^}_PASSWORD
		login=couponmq_$program:${!login}
		file_put "$RUN_DIR/env.$program" "$(stores_env "$login" "$login" "$login")"$'\n'
	done
}

# machine_program NAME PROGRAM FLAGS [SETTING=VALUE..]: with its own logins, and without the owner's
# password. Nobody else is in the network of the machines.
machine_program() {
	local name=$1 program=$2 flags
	read -r -a flags <<<"$3"
	shift 3
	env_load "${program#coupon-}"
	machine_spawn "$name" env -u DATABASE_ADMIN_URL COUPON_INSECURE=yes "$@" \
		"$BUILD_DIR/$program" "${flags[@]}"
}

# No gateway answers `accepted` before a second machine has the receive.
machine_gateway_spawn() {
	local host
	host=$(address_of "$1")
	machine_program "$1" coupon-gateway "${GATEWAY_FLAGS:-}" \
		COUPON_LISTEN="$host:$PORT_GATEWAY" COUPON_HTTP_LISTEN="$host:$PORT_HTTP" \
		COUPON_PROXY_FROM="$BALANCER" COUPON_REDIS_REPLICAS=1
}

machine_worker_spawn() {
	machine_program "$1" coupon-worker "${WORKER_FLAGS:-}" \
		COUPON_RECOVER=auto \
		COUPON_WORKER_HTTP_LISTEN="$(address_of "$1"):$PORT_WORKER"
}

machine_gateway_ready() {
	grep -q 'event=ready' <(log_since_start "$1")
}

machine_worker_ready() {
	grep -q 'event=ready' <(log_since_start "$1")
}

# deploy/haproxy.cfg with the addresses and ports of this bed. Not on a machine that may be lost.
machine_haproxy_spawn() {
	mkdir -p "$RUN_DIR/$1"
	{
		printf '%s\n' global '    stats socket unix@admin.sock mode 600 level admin' \
			'    maxconn 4000' ''
		sed -e '1,/^defaults/{/^defaults/!d}' -e "s/^defaults\$/&\n    source $BALANCER/" \
			-e "s/bind :/bind 127.0.0.1:/" -e "s/10\.2\.0\./$NETWORK./" \
			-e "s/:7411/:$PORT_GATEWAY/" -e "s/:7480/:$PORT_HTTP/" deploy/haproxy.cfg
	} >"$RUN_DIR/$1/haproxy.cfg"
	process_spawn "$1" "$(PATH=$PATH:/usr/sbin command -v haproxy)" -db -f haproxy.cfg
}

# Until a gateway behind it is ready: the master of Redis has its lease by then.
machine_haproxy_ready() {
	port_tells "$PORT_HTTP" 'GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n' &&
		[[ $TOLD == 'HTTP/1.'?' 200 '* ]]
}

address_shown() {
	case ${1#m[1-3]-} in
	redis) echo "$(address_of "$1"):$PORT_REDIS" ;;
	sentinel) echo "$(address_of "$1"):$PORT_SENTINEL" ;;
	epmd) echo "$(address_of "$1"):$PORT_EPMD" ;;
	rabbitmq) echo "$(address_of "$1"):$PORT_RABBITMQ" ;;
	etcd) echo "$(address_of "$1"):$PORT_ETCD" ;;
	patroni) echo "$(address_of "$1"):$PORT_PATRONI, PostgreSQL :$PORT_POSTGRES" ;;
	worker) echo "$(address_of "$1"):$PORT_WORKER" ;;
	gateway) echo "$(address_of "$1"):$PORT_GATEWAY :$PORT_HTTP" ;;
	haproxy) echo "127.0.0.1:$PORT_GATEWAY :$PORT_HTTP" ;;
	esac
}
