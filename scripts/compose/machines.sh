# shellcheck shell=bash disable=SC2034 # variables for who sources this
# docker-compose.ha.yml: a load through HAProxy, while the container of Redis' master is lost.
# Sourced by scripts/compose-test.sh.

readonly KINDS=(redis sentinel rabbitmq etcd patroni gateway worker)

# kind_is_healthy KIND: on all three machines.
kind_is_healthy() {
	healthy_are "$1-1" 1 && healthy_are "$1-2" 1 && healthy_are "$1-3" 1
}

machines_healthy() {
	local kind
	for kind in "${KINDS[@]}"; do
		kind_is_healthy "$kind" || return
	done
	healthy_are haproxy 1 && healthy_are admin 1
}

# Prints redis-1, redis-2 or redis-3: whom a Sentinel names.
redis_master() {
	local host
	# shellcheck disable=SC2016 # the container's own
	host=$(compose_with exec -T sentinel-1 sh -c 'redis-cli -h "$(hostname -i)" \
		-p 26379 sentinel get-master-addr-by-name couponmq' </dev/null | head -n 1)
	host=${host##*.}
	echo "redis-${host%1}"
}

master_is_not() {
	local master
	master=$(redis_master)
	[[ $master == redis-[123] && $master != "$1" ]]
}

# With two replicas, which follow it.
redis_whole() {
	local told
	# shellcheck disable=SC2016 # the container's own
	told=$(compose_with exec -T "$(redis_master)" sh -c 'REDISCLI_AUTH=$PASSWORD redis-cli \
		-h "$(hostname -i)" info replication' </dev/null)
	[[ $(grep -c 'state=online' <<<"$told") -eq 2 ]]
}

user_is_issued() {
	local line='{"op":"issue","coupon":"'$1'","user":"'$2'","key":"once","ack":"issued"}'
	[[ $(status_of "$(ask "$line")") == issued ]]
}

audit_passes() {
	couponctl audit "$1" >"$ENGINE_DIR/audit.log" || {
		tail -n 5 "$ENGINE_DIR/audit.log"
		return 1
	}
}

# Each accepted receive is one row; answers that were lost may be rows as well.
accepted_are_rows() {
	[[ $(accepted_against_rows "$1") =~ ^"$2|0|"[0-9]+"|"[0-9]+"|1|" ]]
}

scenario_machines() {
	local coupon lost before told key
	local hosts=$COUPON_NETWORK.15,$COUPON_NETWORK.25,$COUPON_NETWORK.35
	need "all of it stops, with its volumes" quietly compose_with down -v -t 20
	rm "$ENV_FILE"
	HA=yes scripts/compose-env.sh "$ENV_FILE" >/dev/null
	compose_files=(-f docker-compose.ha.yml)
	# shellcheck disable=SC2016 # the container's own variable
	sql_at=(patroni-1 sh -c 'PGPASSWORD=$POSTGRES_PASSWORD PGTARGETSESSIONATTRS=read-write \
		exec psql -h '"$hosts"' "$@"' psql)
	need "three machines start" quietly compose_with up -d
	need "all of them are healthy" wait_until "$READY_S" machines_healthy

	coupon=$(couponctl create --name "Three machines" --total 10000000)
	couponctl publish "$coupon" >/dev/null
	need "a coupon is issued through HAProxy" wait_until 60 user_is_issued "$coupon" before
	lost=$(redis_master)
	load_start "$coupon" 200
	need "receives are settled" wait_until "$SETTLE_S" issued_at_least "$coupon" 500
	need "the container of Redis' master, $lost, is lost" \
		quietly docker kill "$(containers_of "$lost")"
	need "another one is the master" wait_until 60 master_is_not "$lost"
	need "and a coupon is issued again" wait_until 60 user_is_issued "$coupon" after
	before=$(sql -c "SELECT issued_num FROM coupon WHERE id = $coupon" </dev/null)
	need "and those of the load" \
		wait_until "$SETTLE_S" issued_at_least "$coupon" $((before + 500))
	need "the container comes back" quietly docker start "$(containers_of "$lost")"
	check "as a replica" wait_until 60 redis_whole
	need "the load ends" load_end
	told=$(wc -l <"$TOLD")
	check "every accepted receive is exactly one row" \
		wait_until "$SETTLE_S" accepted_are_rows "$coupon" "$told"
	check "the audit passes" wait_until 60 audit_passes "$coupon"

	sed -i '/^\(REDIS\|RABBITMQ\)_PASSWORD=/d' "$ENV_FILE"
	HA=yes scripts/compose-env.sh "$ENV_FILE" >/dev/null
	need "all of it starts with new passwords for Redis and RabbitMQ" \
		quietly compose_with up -d
	check "a coupon is issued" wait_until 60 user_is_issued "$coupon" password
	check "and Redis has its replicas" wait_until 60 redis_whole

	sed -i '/^COMPOSE_FILE=/d' "$ENV_FILE"
	HA=yes TLS=yes NAMES=localhost scripts/compose-env.sh "$ENV_FILE" >/dev/null
	compose_files+=(-f docker-compose.ha-tls.yml)
	key=$(couponctl key create --name shop --role issue)
	need "the gateways start with TLS and keys" quietly compose_with up -d
	need "all of them are healthy under TLS" wait_until "$READY_S" machines_healthy
	check "with a key a coupon is issued through HAProxy" wait_until 60 \
		secured_is "200 .*\"issued\"" "$coupon" secured -H "Authorization: Bearer $key"
	check "without one it is not" secured_is "401 .*unauthorized" "$coupon" without
	check "nor in the clear" equals "$(ask '{"op":"ping"}' 2>/dev/null)" ""
	need "the container of a gateway is lost" quietly docker kill "$(containers_of gateway-1)"
	check "and the others issue" wait_until 60 \
		secured_is "200 .*\"issued\"" "$coupon" lost -H "Authorization: Bearer $key"
}
