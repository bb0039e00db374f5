#!/usr/bin/env bash
# Brings docker-compose.yml up for real and puts a load on it: compose-test.sh [run|clean]
#   COMPOSE_RUN_DIR=.run-compose     what it writes; with an engine of its own also the images, for the next run
#   COMPOSE_TEST_PORT=27411 COMPOSE_TEST_HTTP_PORT=27480
#   COMPOSE_TEST_IMAGES=official|debian   default: official where they can be pulled
#   COMPOSE="docker-compose"         the command; default: docker compose if there is one, else docker-compose
set -euo pipefail
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ENGINE_DIR=$(realpath -m -- "${COMPOSE_RUN_DIR:-.run-compose}")
readonly ENGINE_DIR
readonly ENV_FILE=$ENGINE_DIR/env TOLD=$ENGINE_DIR/told.tsv LOAD_LOG=$ENGINE_DIR/load.log
readonly PROJECT=couponmq-test
readonly READY_S=180 SETTLE_S=120
readonly STEP=8000 # receives that must be committed before the next step

passed=0 failed=0 finished=no load_pid=
compose=()

say() {
	echo "compose: $*"
}

die() {
	echo "compose: $*" >&2
	exit 1
}

# shellcheck source=scripts/compose-engine.sh
. scripts/compose-engine.sh

# ---- checks

# check WHAT COMMAND..: counts, and goes on.
check() {
	local what=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
		printf '  ok      %s\n' "$what"
	else
		failed=$((failed + 1))
		printf '  FAILED  %s\n' "$what"
	fi
}

# need WHAT COMMAND..: the same, and without it there is no going on.
need() {
	local before=$failed
	check "$@"
	[[ $failed -eq $before ]] || exit 1
}

equals() {
	[[ $1 == "$2" ]] || {
		echo "    is:        $1"
		echo "    should be: $2"
		return 1
	}
}

# wait_until SECONDS COMMAND..
wait_until() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		[[ $SECONDS -lt $deadline ]] || {
			echo "    not within its time: $*"
			return 1
		}
		sleep 0.2
	done
}

# ---- the stack

compose_find() {
	if [[ -n ${COMPOSE:-} ]]; then
		read -r -a compose <<<"$COMPOSE"
	elif docker compose version >/dev/null 2>&1; then
		compose=(docker compose)
	else
		packages_need docker-compose=docker-compose
		compose=(docker-compose)
	fi
}

compose_with() {
	"${compose[@]}" --env-file "$ENV_FILE" -p "$PROJECT" "${compose_files[@]}" "$@" 7>&- 8>&- 9>&-
}

# What a command says on the way is shown only if it fails.
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
	docker ps -aq --filter "label=com.docker.compose.project=$PROJECT" --filter "label=com.docker.compose.service=$1" \
		--filter label=com.docker.compose.oneoff=False
}

# How many containers of a service are healthy.
healthy_are() {
	local id n=0
	for id in $(containers_of "$1"); do
		[[ $(docker inspect -f '{{.State.Health.Status}}' "$id") != healthy ]] || n=$((n + 1))
	done
	[[ $n -eq $2 ]]
}

all_healthy() {
	healthy_are redis 1 && healthy_are rabbitmq 1 && healthy_are postgres 1 && healthy_are gateway 1 &&
		healthy_are worker "$1"
}

sql() {
	compose_with exec -T postgres psql -X -q -A -t -v ON_ERROR_STOP=1 -U couponmq_owner -d couponmq "$@"
}

couponctl() {
	compose_with run --rm -T couponctl "$@" 2>>"$ENGINE_DIR/couponctl.log" </dev/null
}

queue_is() {
	[[ $(compose_with exec -T rabbitmq rabbitmqctl -q list_queues name "$1" </dev/null |
		awk '$1 == "coupon.receive.queue" { print $2 }') == "$2" ]]
}

issued_at_least() {
	[[ $(sql -c "SELECT issued_num FROM coupon WHERE id = $1" </dev/null) -ge $2 ]]
}

port_taken() {
	(: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# ---- what is checked

secret_missing_named() {
	local name output
	for name in POSTGRES_PASSWORD COUPON_DATABASE_PASSWORD RABBITMQ_PASSWORD REDIS_PASSWORD; do
		grep -v "^$name=" "$ENV_FILE" >"$ENGINE_DIR/env.short"
		if output=$("${compose[@]}" --env-file "$ENGINE_DIR/env.short" "${compose_files[@]}" config 2>&1); then
			echo "    without $name it is taken as complete"
			return 1
		fi
		[[ $output == *"set $name in .env"* ]] || {
			echo "    without $name it says: $output"
			return 1
		}
	done
	rm "$ENGINE_DIR/env.short"
}

env_file_private() {
	local before
	before=$(sha256sum <"$ENV_FILE")
	scripts/compose-env.sh "$ENV_FILE" >/dev/null
	equals "$(stat -c %a "$ENV_FILE") $(cut -d= -f2 "$ENV_FILE" | sort -u | wc -l)" "600 4" &&
		equals "$(sha256sum <"$ENV_FILE")" "$before" &&
		git check-ignore -q .env
}

# Of all the ports only the gateway's two.
ports_published() {
	local service found=
	for service in redis rabbitmq postgres migrate gateway worker; do
		# shellcheck disable=SC2046 # ids
		found+=$(docker inspect -f '{{range $p, $b := .NetworkSettings.Ports}}{{range $b}}'"$service"' {{$p}} {{.HostIp}}:{{.HostPort}};{{end}}{{end}}' \
			$(containers_of "$service") | tr -d '\n')
	done
	equals "$found" "gateway 7411/tcp 127.0.0.1:$COUPON_PORT;gateway 7480/tcp 127.0.0.1:$COUPON_HTTP_PORT;"
}

# A container's command line, environment of others and image hold nothing that one could log in with.
privileges_few() {
	local service id
	for service in gateway worker; do
		id=$(containers_of "$service" | head -n 1)
		equals "$(docker exec "$id" id -u)" 7411 || return 1
		equals "$(docker exec "$id" env | grep -c POSTGRES_PASSWORD)" 0 || return 1
		! docker exec "$id" sh -c ': >/usr/local/bin/written' 2>/dev/null || return 1
	done
	equals "$(docker exec "$(containers_of redis)" id -un)" redis
}

role_without_ddl() {
	local output
	output=$(docker exec "$(containers_of gateway)" sh -c 'psql -X "$DATABASE_URL" -c "CREATE TABLE mine (i int)"' 2>&1) &&
		return 1
	[[ $output == *"permission denied"* ]] || {
		echo "    $output"
		return 1
	}
}

redis_settings() {
	equals "$(docker exec "$(containers_of redis)" redis-cli config get 'a*only' 'appendfsync' 'maxmemory-policy' |
		paste -sd' ' | tr ' ' '\n' | paste -d= - - | sort | paste -sd' ')" \
		"appendfsync=always appendonly=yes maxmemory-policy=noeviction" &&
		[[ $(docker exec "$(containers_of redis)" env -u REDISCLI_AUTH redis-cli ping 2>&1) == NOAUTH* ]]
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

load_start() {
	rm -f "$TOLD"
	python3 -B tests/compose/issue_load.py 127.0.0.1 "$COUPON_PORT" "$1" "$TOLD" >"$LOAD_LOG" 2>&1 7>&- 8>&- 9>&- &
	load_pid=$!
}

load_end() {
	local code=0
	kill -TERM "$load_pid"
	wait "$load_pid" || code=$?
	load_pid=
	[[ $code -eq 0 ]] || tail -n 5 "$LOAD_LOG"
	return "$code"
}

load_value() {
	python3 -c 'import json, sys; d = json.loads(open(sys.argv[1]).readlines()[-1]); print(d.get(sys.argv[2], d["answers"].get(sys.argv[2], 0)))' \
		"$LOAD_LOG" "$1"
}

# Everybody was answered, nobody got two, and nothing but the expected was said.
load_answered() {
	local users
	users=$(load_value users)
	echo "    $(tail -n 1 "$LOAD_LOG")"
	equals "$(load_value answered)" "$(load_value asked)" && equals "$(load_value twice)" 0 &&
		equals "$(load_value receives)" "$users" &&
		equals "$(load_value limit_reached)" "$(((users + 3) / 4))"
}

# Receives that were told | of these not exactly one row | rows nobody was told | issued | most of one user | rejected
accepted_against_rows() {
	{
		echo "CREATE TEMP TABLE told (user_id bigint, batch uuid, idx int, slot int);"
		echo "COPY told FROM STDIN;"
		cat "$TOLD"
		printf '%s\n' '\.'
		cat <<-SQL
		SELECT count(*),
			count(*) FILTER (WHERE (SELECT count(*) FROM user_coupon c WHERE c.coupon_id = $1 AND c.user_id = told.user_id
				AND c.slot = told.slot AND c.batch = told.batch AND c.idx = told.idx) <> 1),
			(SELECT count(*) FROM user_coupon c WHERE c.coupon_id = $1 AND NOT EXISTS (SELECT FROM told
				WHERE told.user_id = c.user_id AND told.batch = c.batch AND told.idx = c.idx)),
			(SELECT issued_num FROM coupon WHERE id = $1),
			(SELECT max(n) FROM (SELECT count(*) n FROM user_coupon WHERE coupon_id = $1 GROUP BY user_id) u),
			(SELECT count(*) FROM receive_rejected WHERE coupon_id = $1)
		FROM told;
		SQL
	} | sql
}

migrate_succeeded() {
	equals "$(docker inspect -f '{{.State.Status}} {{.State.ExitCode}}' "$(containers_of migrate)")" "exited 0"
}

nothing_left() {
	equals "$(docker ps -aq --filter "label=com.docker.compose.project=$PROJECT" | wc -l)" 0 &&
		equals "$(docker volume ls -q --filter "label=com.docker.compose.project=$PROJECT" | wc -l)" 0 &&
		equals "$(docker network ls -q --filter "label=com.docker.compose.project=$PROJECT" | wc -l)" 0
}

# ---- the run

scenario() {
	local coupon small told before reply

	need "two workers come up" up 2
	need "all of it is healthy" wait_until "$READY_S" all_healthy 2
	check "migrate has run to its end" migrate_succeeded
	check "the gateway is ready on its published port" http_ready
	check "only the gateway's ports are published" ports_published
	check "the programs run without privileges" privileges_few
	check "their role cannot make tables" role_without_ddl
	check "Redis writes each change to disk, evicts nothing and asks for its password" redis_settings

	coupon=$(couponctl create --name "Compose rush" --total 10000000)
	need "couponctl creates a campaign" test -n "$coupon"
	need "and publishes it" quietly couponctl publish "$coupon"

	load_start "$coupon"
	need "two workers settle what comes in" wait_until "$SETTLE_S" issued_at_least "$coupon" "$STEP"
	need "scaled to four under load" up 4
	need "all four are healthy" wait_until "$READY_S" all_healthy 4
	check "all four consume" wait_until 30 queue_is consumers 4
	before=$(sql -c "SELECT issued_num FROM coupon WHERE id = $coupon" </dev/null)
	need "and the work goes on" wait_until "$SETTLE_S" issued_at_least "$coupon" $((before + STEP))
	need "the load ends" load_end
	check "every request was answered as it should be" load_answered
	told=$(wc -l <"$TOLD")
	check "all that was accepted is settled" wait_until "$SETTLE_S" issued_at_least "$coupon" "$told"
	check "every accepted receive is exactly one row, and there is no other" \
		equals "$(accepted_against_rows "$coupon")" "$told|0|0|$told|1|0"
	check "the queue is empty" wait_until 30 queue_is messages 0

	small=$(couponctl create --name "Too few" --total 2000)
	couponctl publish "$small" >/dev/null
	check "a rush on 2,000 coupons by 6,000 users, from a container" quietly couponctl rush --coupon "$small" --users 6000
	check "issued all, and no more" equals \
		"$(sql -c "SELECT issued_num, count(*) FROM coupon, user_coupon WHERE id = coupon_id AND id = $small GROUP BY 1" </dev/null)" \
		"2000|2000"

	# Down and up again with the volumes, and with a new password for the programs' role.
	need "all of it stops" quietly compose_with down
	sed -i '/^COUPON_DATABASE_PASSWORD=/d' "$ENV_FILE"
	scripts/compose-env.sh "$ENV_FILE" >/dev/null
	need "it comes up on its volumes, with a new password for the programs" up 2
	need "all of it is healthy again" wait_until "$READY_S" all_healthy 2
	check "who had one is still refused" wait_until 30 user_is_told "$coupon" 2 limit_reached
	reply=$(ask "{\"op\":\"issue\",\"coupon\":\"$coupon\",\"user\":\"900000001\",\"ack\":\"issued\"}")
	check "and who had none gets one" equals "$(status_of "$reply")" issued
	check "which is one row more" equals \
		"$(sql -c "SELECT issued_num, count(*) FROM coupon, user_coupon WHERE id = coupon_id AND id = $coupon GROUP BY 1" </dev/null)" \
		"$((told + 1))|$((told + 1))"
}

# Redis is a new process after a restart: until the keeper has verified it the answer is unavailable.
user_is_told() {
	[[ $(status_of "$(ask "{\"op\":\"issue\",\"coupon\":\"$1\",\"user\":\"$2\"}")") == "$3" ]]
}

finish() {
	trap - EXIT INT TERM
	set +e
	# A signal may have come while a function's output went elsewhere.
	exec >&7 2>&8
	[[ -z $load_pid ]] || kill -KILL "$load_pid" 2>/dev/null
	if [[ ${#compose[@]} -gt 0 && -n ${images:-} ]]; then
		if [[ $finished == no || $failed -gt 0 ]]; then
			compose_with logs --no-color --tail 400 >"$ENGINE_DIR/services.log" 2>&1
			say "what the services logged is in ${ENGINE_DIR##*/}/services.log"
		fi
		quietly compose_with down -v -t 20 --remove-orphans
		check "nothing is left of it" nothing_left
	fi
	[[ $engine_own == no ]] || engine_stop
	[[ $finished == yes || $failed -gt 0 ]] || failed=1
	say "took $SECONDS s"
	echo "$passed passed, $failed failed"
	# Without a number, exit would give the status from before the trap.
	exit $((failed > 0))
}

run() {
	exec 7>&1 8>&2
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM

	# What the caller's shell may have set for a stack of its own.
	unset COMPOSE_FILE COMPOSE_PROJECT_NAME COMPOSE_PROFILES COMPOSE_ENV_FILES COUPON_BIND REDIS_MAXMEMORY \
		POSTGRES_PASSWORD COUPON_DATABASE_PASSWORD RABBITMQ_PASSWORD REDIS_PASSWORD
	export COUPON_PORT=${COMPOSE_TEST_PORT:-27411} COUPON_HTTP_PORT=${COMPOSE_TEST_HTTP_PORT:-27480}
	export COUPON_IMAGE=couponmq-test/couponmq COUPON_NOFILE=65536
	rm -f "$ENGINE_DIR"/*.log "$ENV_FILE"
	packages_need python3=python3
	scripts/compose-env.sh "$ENV_FILE" >/dev/null

	engine_open
	compose_find
	# A daemon of ours can allow no more open files than we may.
	if [[ $engine_own == yes && $(ulimit -Hn) != unlimited && $(ulimit -Hn) -lt $COUPON_NOFILE ]]; then
		COUPON_NOFILE=$(ulimit -Hn)
	fi
	base_image_make
	images=$(images_choose)
	compose_files=(-f docker-compose.yml)
	[[ $images == official ]] || compose_files+=(-f tests/compose/docker-compose.debian.yml)
	say "${compose[*]} $("${compose[@]}" version --short 2>/dev/null), and the services from the $images images"
	compose_with down -v -t 20 --remove-orphans >/dev/null 2>&1 || true
	for port in "$COUPON_PORT" "$COUPON_HTTP_PORT"; do
		! port_taken "$port" || die "port $port is in use; choose others with COMPOSE_TEST_PORT= and COMPOSE_TEST_HTTP_PORT="
	done

	check "the file of passwords is private, kept and ignored by git" env_file_private
	check "a missing password stops with a sentence that names it" secret_missing_named
	need "the images are built" quietly compose_with build
	say "built after $SECONDS s"
	scenario
	finished=yes
}

clean() {
	engine_stop
	rm -rf "$ENGINE_DIR"
}

mkdir -p "$ENGINE_DIR"
[[ -e $ENGINE_DIR/lock || -z $(ls -A "$ENGINE_DIR") ]] || die "$ENGINE_DIR holds other files; choose another COMPOSE_RUN_DIR="
exec 9>"$ENGINE_DIR/lock"
flock -n 9 || die "another test is at work in $ENGINE_DIR"
case ${1:-run} in
run | clean) "${1:-run}" ;;
*)
	echo "usage: scripts/compose-test.sh [run|clean]" >&2
	exit 2
	;;
esac
