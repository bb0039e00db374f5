# shellcheck shell=bash disable=SC2034 # variables for who sources this
# The services under docker-compose, and queries to them. Sourced by scripts/compose-test.sh.

readonly PROJECT_LABEL=label=com.docker.compose.project=$PROJECT

# Compose 2 as Debian 13 has it, for a machine that has only docker-compose 1.29. It is one file,
# which also runs on Debian 12. A container gets the package, since this machine may not know it.
compose_v2_unpack() {
	local folder=$ENGINE_DIR/compose-v2 package
	compose=("$folder/usr/bin/docker-compose")
	[[ ! -x ${compose[0]} ]] || return 0
	base_image_make trixie
	mkdir -p "$folder"
	quietly docker run --rm --network host -v "$folder:/out" -w /out debian:trixie-slim \
		sh -c 'apt-get -q update && apt-get -q download docker-compose' ||
		die "the package docker-compose of Debian 13 could not be loaded"
	for package in "$folder"/*.deb; do
		dpkg-deb -x "$package" "$folder"
	done
}

compose_find() {
	if [[ ${COMPOSE:-} == v2 ]]; then
		compose_v2_unpack
	elif [[ -n ${COMPOSE:-} ]]; then
		read -r -a compose <<<"$COMPOSE"
	elif docker compose version >/dev/null 2>&1; then
		compose=(docker compose)
	else
		packages_need docker-compose=docker-compose
		compose=(docker-compose)
	fi
}

compose_with() {
	"${compose[@]}" --env-file "$ENV_FILE" -p "$PROJECT" "${compose_files[@]}" "$@" \
		7>&- 8>&- 9>&-
}

# The output of a command is shown only if it fails.
quietly() {
	"$@" >"$ENGINE_DIR/compose.log" 2>&1 || {
		tail -n 30 "$ENGINE_DIR/compose.log"
		return 1
	}
}

up() {
	quietly compose_with up -d --scale worker="$1"
}

containers_of() {
	docker ps -aq --filter "$PROJECT_LABEL" --filter "label=com.docker.compose.service=$1" \
		--filter label=com.docker.compose.oneoff=False
}

# How many containers of a service are healthy.
healthy_are() {
	local id n=0
	for id in $(containers_of "$1"); do
		[[ $(docker inspect -f '{{.State.Health.Status}}' "$id") != healthy ]] ||
			n=$((n + 1))
	done
	[[ $n -eq $2 ]]
}

stores_healthy() {
	healthy_are redis 1 && healthy_are rabbitmq 1 && healthy_are postgres 1
}

all_healthy() {
	stores_healthy && healthy_are gateway 1 && healthy_are worker "$1"
}

# The service and the command that reach PostgreSQL.
sql_at=(postgres psql)

sql() {
	compose_with exec -T "${sql_at[@]}" -X -q -A -t -v ON_ERROR_STOP=1 \
		-U couponmq_owner -d couponmq "$@"
}

couponctl() {
	compose_with run --rm -T couponctl "$@" 2>>"$ENGINE_DIR/couponctl.log" </dev/null
}

coupon_rush() {
	compose_with run --rm -T --entrypoint coupon-rush couponctl "$@" \
		2>>"$ENGINE_DIR/couponctl.log" </dev/null
}

queue_is() {
	[[ $(compose_with exec -T rabbitmq rabbitmqctl -q list_queues name "$1" </dev/null |
		awk '$1 == "coupon.receive.queue" { print $2 }') == "$2" ]]
}

# issued_num | user coupons
issued_and_rows() {
	sql -c "SELECT issued_num, count(*) FROM coupon, user_coupon
		WHERE id = coupon_id AND id = $1 GROUP BY 1" </dev/null
}

issued_at_least() {
	[[ $(sql -c "SELECT issued_num FROM coupon WHERE id = $1" </dev/null) -ge $2 ]]
}

port_taken() {
	(: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}
