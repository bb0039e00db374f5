# shellcheck shell=bash
# Checks of the running services. Sourced by scripts/compose-test.sh.

secret_missing_named() {
	local name output short=$ENGINE_DIR/env.short
	for name in POSTGRES_PASSWORD RABBITMQ_PASSWORD REDIS_PASSWORD COUPON_GATEWAY_PASSWORD \
		COUPON_WORKER_PASSWORD COUPON_OPERATOR_PASSWORD; do
		grep -v "^$name=" "$ENV_FILE" >"$short"
		if output=$("${compose[@]}" --env-file "$short" "${compose_files[@]}" config 2>&1)
		then
			echo "    without $name it is taken as complete"
			return 1
		fi
		[[ $output == *"$name"*"make compose-env writes .env"* ]] || {
			echo "    without $name the output is: $output"
			return 1
		}
	done
	rm "$short"
}

env_file_private() {
	local before
	before=$(sha256sum <"$ENV_FILE")
	scripts/compose-env.sh "$ENV_FILE" >/dev/null
	equals "$(stat -c %a "$ENV_FILE") $(cut -d= -f2 "$ENV_FILE" | sort -u | wc -l)" "600 6" &&
		equals "$(sha256sum <"$ENV_FILE")" "$before" &&
		git check-ignore -q .env
}

# Only the ports of gateway and admin are published.
ports_published() {
	local service found='' each
	for service in redis rabbitmq postgres migrate gateway worker admin; do
		# shellcheck disable=SC2016 # the template's own variables
		each='{{range $p, $b := .NetworkSettings.Ports}}{{range $b}}'
		# shellcheck disable=SC2016
		each+="$service "'{{$p}} {{.HostIp}}:{{.HostPort}};{{end}}{{end}}'
		# shellcheck disable=SC2046 # ids
		found+=$(docker inspect -f "$each" $(containers_of "$service") | tr -d '\n')
	done
	each="gateway 7411/tcp 127.0.0.1:$COUPON_PORT;"
	each+="gateway 7480/tcp 127.0.0.1:$COUPON_HTTP_PORT;"
	equals "$found" "${each}admin 7490/tcp 127.0.0.1:$COUPON_ADMIN_PORT;"
}

# The programs run as a user of their own, cannot write into their image, and have no other password
# than their own in their environment.
privileges_few() {
	local service id
	for service in gateway worker; do
		id=$(containers_of "$service" | head -n 1)
		equals "$(docker inspect -f '{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{
			.HostConfig.CapDrop}}' "$id")" "7411:7411 true [ALL]" || return 1
		equals "$(docker inspect -f '{{.Config.Env}}' "$id" |
			grep -oE 'couponmq_[a-z]+:' | sort | uniq -c | xargs)" \
			"3 couponmq_$service:" || return 1
	done
	equals "$(docker exec "$(containers_of redis)" id -un)" redis
}

# The image has the programs and what they need, and nothing else that could be run: 127 is the
# status of docker for a program that is not there.
image_small() {
	local bytes name status
	bytes=$(docker save "$COUPON_IMAGE" | gzip -9 | wc -c)
	echo "    $bytes bytes, compressed"
	[[ $bytes -le 20000000 ]] || return 1
	for name in sh psql openssl; do
		status=0
		docker run --rm --network none --entrypoint "$name" "$COUPON_IMAGE" 2>/dev/null ||
			status=$?
		equals "$name $status" "$name 127" || return 1
	done
}

# The labels that the image says of itself: the engine and docker-compose may add others.
image_labelled() {
	local name labels=
	for name in title licenses version; do
		labels+=$(docker inspect -f \
			"{{index .Config.Labels \"org.opencontainers.image.$name\"}}" \
			"$COUPON_IMAGE")' '
	done
	equals "$labels" "couponmq MIT $(sed -n 's/^ARG VERSION=//p' Dockerfile) "
}

# Each program's logins work, and are good for its work alone. PostgreSQL is asked under its name in
# the network, because from its own loopback the official image asks for no password.
logins_few() {
	local output password
	password=$(sed -n 's/^COUPON_GATEWAY_PASSWORD=//p' "$ENV_FILE")
	output=$(docker exec -e PGPASSWORD="$password" "$(containers_of postgres)" psql -X \
		-h postgres -U couponmq_gateway -d couponmq -c 'CREATE TABLE mine (i int)' 2>&1) &&
		return 1
	[[ $output == *"permission denied"* ]] || {
		echo "    $output"
		return 1
	}
	output=$(docker exec -e PGPASSWORD=wrong "$(containers_of postgres)" psql -X -h postgres \
		-U couponmq_gateway -d couponmq -c 'SELECT 1' 2>&1) && return 1
	[[ $output == *"authentication failed"* ]] || {
		echo "    $output"
		return 1
	}
	equals "$(docker exec "$(containers_of redis)" sh -c 'redis-cli --no-auth-warning \
		--user couponmq_gateway --pass "$GATEWAY_PASSWORD" flushall' | cut -c 1-6)" NOPERM
}

redis_settings() {
	local redis
	redis=$(containers_of redis)
	equals "$(docker exec "$redis" redis-cli config get 'a*only' appendfsync maxmemory-policy |
		paste -sd' ' | tr ' ' '\n' | paste -d= - - | sort | paste -sd' ')" \
		"appendfsync=always appendonly=yes maxmemory-policy=noeviction" &&
		[[ $(docker exec "$redis" env -u REDISCLI_AUTH redis-cli ping 2>&1) == NOAUTH* ]]
}

http_ready() {
	local answer
	exec 3<>"/dev/tcp/127.0.0.1/$COUPON_HTTP_PORT" || return 1
	printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
	answer=$(timeout 10 cat <&3)
	exec 3>&-
	[[ $answer == "HTTP/1.1 200 "* ]]
}

# ask LINE: one request over the published port.
ask() {
	exec 3<>"/dev/tcp/127.0.0.1/$COUPON_PORT" || return 1
	echo "$1" >&3
	timeout 15 head -n 1 <&3
	exec 3>&-
}

status_of() {
	sed -n 's/.*"status":"\([a-z_]*\)".*/\1/p' <<<"$1"
}

migrate_succeeded() {
	equals "$(docker inspect -f '{{.State.Status}} {{.State.ExitCode}}' \
		"$(containers_of migrate)")" "exited 0"
}

nothing_left() {
	equals "$(docker ps -aq --filter "$PROJECT_LABEL" | wc -l)" 0 &&
		equals "$(docker volume ls -q --filter "$PROJECT_LABEL" | wc -l)" 0 &&
		equals "$(docker network ls -q --filter "$PROJECT_LABEL" | wc -l)" 0
}
