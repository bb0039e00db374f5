# shellcheck shell=bash
# Gateway and workers. Sourced by scripts/stack.sh.

built() {
	[[ -x $BUILD_DIR/$1 ]] || die "$BUILD_DIR/$1 is not built; type: make build"
}

# program_spawn NAME BINARY FLAGS: with its own logins, and without the owner's password, which only
# couponctl migrate needs.
program_spawn() {
	local name=$1 flags
	read -r -a flags <<<"$3"
	[[ -d $RUN_DIR/$name ]] || mkdir "$RUN_DIR/$name"
	env_load "${2#coupon-}"
	process_spawn "$name" env -u DATABASE_ADMIN_URL "$BUILD_DIR/$2" "${flags[@]}"
}

gateway_spawn() {
	program_spawn gateway coupon-gateway "${GATEWAY_FLAGS:-}"
}

gateway_ready() {
	port_tells "$PORT_HTTP" \
		'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' &&
		[[ $TOLD == 'HTTP/1.1 200 '* ]]
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
