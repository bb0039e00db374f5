# shellcheck shell=bash
# Redis, RabbitMQ with the port mapper of its Erlang node, ZooKeeper for tests of the locks, and the
# programs. Sourced by scripts/stack.sh.

redis_spawn() {
	local flags
	read -r -a flags <<<"${REDIS_FLAGS:-}"
	mkdir -p "$RUN_DIR/redis"
	(
		umask 077
		file_filled redis-users.conf >"$RUN_DIR/redis/users.conf"
	)
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
	include ./users.conf
	TEXT
	process_spawn redis "${REDIS_SERVER:-$(redis_server_find)}" ./redis.conf "${flags[@]}"
}

redis_ready() {
	port_tells "$PORT_REDIS" 'PING\r\n' && [[ $TOLD == +PONG* ]]
}

# Prints the processors that this shell may use, as a list: 0-1,4
processors() {
	taskset -c -p "$BASHPID" | sed 's/.*: //'
}

processor_any() {
	processors | tr , '\n' | while IFS=- read -r first last; do
		seq "$first" "${last:-$first}"
	done | shuf -n 1
}

epmd_spawn() {
	mkdir -p "$RUN_DIR/epmd"
	process_spawn epmd epmd -address 127.0.0.1 -port "$PORT_EPMD"
}

epmd_ready() {
	port_answers "$PORT_EPMD"
}

# The broker starts in half the time on one processor, where a virtual machine pays for each wake-up
# of another; when it is ready it has them all.
rabbitmq_spawn() {
	local home=$RUN_DIR/rabbitmq
	rabbitmq_home "$home"
	cat >"$home/rabbitmq.conf" <<-TEXT
	listeners.tcp.default = 127.0.0.1:$PORT_RABBITMQ
	load_definitions = $home/users.json
	disk_free_limit.absolute = 50MB
	raft.wal_max_size_bytes = 134217728
	heartbeat = ${RABBITMQ_HEARTBEAT_S:-60}
	log.console = true
	log.console.level = info
	log.console.use_colors = off
	log.file = false
	TEXT
	rabbitmq_command "$home" 127.0.0.1 couponmq@localhost "$PORT_DIST" "$(nproc)"
	process_spawn rabbitmq taskset -c "$(processor_any)" "${BROKER[@]}"
}

# The listener opens earlier, but a broker that is stopped before this point takes ten seconds to
# end.
rabbitmq_ready() {
	log_since_start rabbitmq | grep -q 'Server startup complete'
}

rabbitmq_started() {
	process_runs rabbitmq
	taskset -a -c -p "$(processors)" "$PID" >/dev/null
}

# ---- ZooKeeper

# Short ticks, so that short sessions are allowed; a session lasts 2 to 20 ticks by default.
zookeeper_spawn() {
	mkdir -p "$RUN_DIR/zookeeper"
	cat >"$RUN_DIR/zookeeper/zoo.cfg" <<-TEXT
	tickTime=200
	maxSessionTimeout=120000
	maxClientCnxns=200
	dataDir=$RUN_DIR/zookeeper/data
	clientPort=$PORT_ZOOKEEPER
	clientPortAddress=127.0.0.1
	admin.enableServer=false
	extendedTypesEnabled=true
	4lw.commands.whitelist=dump
	TEXT
	process_spawn zookeeper java -Xmx128m \
		-cp '/usr/share/java/zookeeper.jar:/usr/share/java/*' \
		org.apache.zookeeper.server.quorum.QuorumPeerMain ./zoo.cfg
}

zookeeper_ready() {
	port_answers "$PORT_ZOOKEEPER"
}

# ---- gateway and workers

built() {
	[[ -x $BUILD_DIR/$1 ]] || die "$BUILD_DIR/$1 is not built; type: make build"
}

# program_spawn NAME BINARY FLAGS [LOGINS]: with its own logins, and without the owner's password,
# which only couponctl migrate needs.
program_spawn() {
	local name=$1 flags
	read -r -a flags <<<"$3"
	[[ -d $RUN_DIR/$name ]] || mkdir "$RUN_DIR/$name"
	env_load "${4:-${2#coupon-}}"
	process_spawn "$name" env -u DATABASE_ADMIN_URL "$BUILD_DIR/$2" "${flags[@]}"
}

gateway_spawn() {
	program_spawn gateway coupon-gateway "${GATEWAY_FLAGS:-}"
}

# http_ready PORT
http_ready() {
	if [[ $STACK_TLS == yes ]]; then
		curl -sf --cacert "$RUN_DIR/tls/ca.pem" -o /dev/null "https://127.0.0.1:$1/readyz"
		return
	fi
	port_tells "$1" \
		'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' &&
		[[ $TOLD == 'HTTP/1.1 200 '* ]]
}

# It lacks nothing: 200 says only that it can issue.
gateway_ready() {
	local scheme=http
	[[ $STACK_TLS != yes ]] || scheme=https
	curl -s --cacert "$RUN_DIR/tls/ca.pem" "$scheme://127.0.0.1:$PORT_HTTP/readyz" |
		grep -qF '"degraded":[]'
}

admin_spawn() {
	program_spawn admin coupon-admin "${ADMIN_FLAGS:-}" operator
}

admin_ready() {
	http_ready "$PORT_ADMIN"
}

# The key of the console, made once.
admin_key() {
	local key
	if [[ ! -e $RUN_DIR/admin-key ]]; then
		env_load operator
		key=$("$BUILD_DIR/couponctl" key create --name console --role admin)
		file_put "$RUN_DIR/admin-key" "$key"$'\n'
	fi
	cat "$RUN_DIR/admin-key"
}

# The first nine have metrics, on the ports behind the gateway's HTTP.
worker_spawn() {
	ports_of "$1"
	COUPON_WORKER_HTTP_LISTEN=${PORTS:+127.0.0.1:${PORTS[0]}} \
		program_spawn "$1" coupon-worker "${WORKER_FLAGS:-}"
}

worker_ready() {
	process_runs "$1" && log_since_start "$1" | grep -q 'event=ready'
}
