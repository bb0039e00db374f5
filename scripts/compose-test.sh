#!/usr/bin/env bash
# Starts docker-compose.yml in an engine and puts a load on it, then the pods of deploy/kubernetes,
# then docker-compose.ha.yml:
# compose-test.sh [run|clean]
#   COMPOSE_RUN_DIR=.run-compose     what it writes; with an engine of its own also the images, for
#                                    the next run
#   COMPOSE_TEST_PORT=27411 COMPOSE_TEST_HTTP_PORT=27480 COMPOSE_TEST_NETWORK=10.74.27
#   COMPOSE_TEST_IMAGES=official|debian   default: official where they can be pulled
#   COUPON_DEBIAN=trixie             the release of Debian in the images that are made here
#   COMPOSE="docker-compose"         the command, or v2 for that of Debian 13; default: docker
#                                    compose if there is one, else docker-compose
set -euo pipefail
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ENGINE_DIR=$(realpath -m -- "${COMPOSE_RUN_DIR:-.run-compose}")
readonly ENGINE_DIR
readonly ENV_FILE=$ENGINE_DIR/env TOLD=$ENGINE_DIR/told.tsv LOAD_LOG=$ENGINE_DIR/load.log
readonly PROJECT=couponmq-test
readonly READY_S=180 SETTLE_S=120
export COUPON_DEBIAN=${COUPON_DEBIAN:-trixie}
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

# shellcheck source=scripts/compose/engine.sh
. scripts/compose/engine.sh
# shellcheck source=scripts/installed.sh
. scripts/installed.sh
# shellcheck source=scripts/run_folder.sh
. scripts/run_folder.sh
# shellcheck source=scripts/debian_root.sh
. scripts/debian_root.sh
# shellcheck source=scripts/compose/images.sh
. scripts/compose/images.sh
# shellcheck source=scripts/compose/check.sh
. scripts/compose/check.sh
# shellcheck source=scripts/compose/services.sh
. scripts/compose/services.sh
# shellcheck source=scripts/compose/state.sh
. scripts/compose/state.sh
# shellcheck source=scripts/compose/load.sh
. scripts/compose/load.sh
# shellcheck source=scripts/compose/pods.sh
. scripts/compose/pods.sh
# shellcheck source=scripts/compose/machines.sh
. scripts/compose/machines.sh

scenario() {
	local coupon small told before reply

	need "two workers start" up 2
	need "all of it is healthy" wait_until "$READY_S" all_healthy 2
	check "migrate has succeeded" migrate_succeeded
	check "the gateway is ready on its published port" http_ready
	check "only the gateway's ports are published" ports_published
	check "the image is small" image_small
	check "and has its labels" image_labelled
	check "the programs run without privileges" privileges_few
	check "nor can they make tables or empty Redis" logins_few
	check "Redis writes each change to disk, evicts nothing and requires its password" \
		redis_settings

	coupon=$(couponctl create --name "Compose rush" --total 10000000)
	need "couponctl creates a campaign" test -n "$coupon"
	need "and publishes it" quietly couponctl publish "$coupon"

	load_start "$coupon"
	need "two workers settle the receives" \
		wait_until "$SETTLE_S" issued_at_least "$coupon" "$STEP"
	need "scaled to four under load" up 4
	need "all four are healthy" wait_until "$READY_S" all_healthy 4
	check "all four consume" wait_until 30 queue_is consumers 4
	before=$(sql -c "SELECT issued_num FROM coupon WHERE id = $coupon" </dev/null)
	need "and settlement continues" \
		wait_until "$SETTLE_S" issued_at_least "$coupon" $((before + STEP))
	need "the load ends" load_end
	check "every request was answered as expected" load_answered
	told=$(wc -l <"$TOLD")
	check "every accepted receive is settled" \
		wait_until "$SETTLE_S" issued_at_least "$coupon" "$told"
	check "every accepted receive is exactly one row, and there is no other" \
		equals "$(accepted_against_rows "$coupon")" "$told|0|0|$told|1|0"
	check "the queue is empty" wait_until 30 queue_is messages 0

	small=$(couponctl create --name "Too few" --total 2000)
	couponctl publish "$small" >/dev/null
	check "a rush on 2,000 coupons by 6,000 users, from a container" \
		quietly coupon_rush --coupon "$small" --users 6000
	check "issued all, and no more" equals "$(issued_and_rows "$small")" "2000|2000"

	# Down and up again with the volumes, and with a new password for the gateway.
	need "all of it stops" quietly compose_with down
	sed -i '/^COUPON_GATEWAY_PASSWORD=/d' "$ENV_FILE"
	scripts/compose-env.sh "$ENV_FILE" >/dev/null
	need "it starts on its volumes, with a new password for the gateway" up 2
	need "all of it is healthy again" wait_until "$READY_S" all_healthy 2
	check "one with a coupon is refused" wait_until 30 user_is_told "$coupon" 2 limit_reached
	reply=$(ask '{"op":"issue","coupon":"'"$coupon"'","user":"900000001","ack":"issued"}')
	check "and one without gets one" equals "$(status_of "$reply")" issued
	check "which is one row more" equals "$(issued_and_rows "$coupon")" \
		"$((told + 1))|$((told + 1))"
}

# secured_issue COUPON USER [OPTION OF curl].. prints the status and the body.
secured_issue() {
	local body='{"coupon":"'"$1"'","user":"'"$2"'","key":"once","ack":"issued"}' code reply
	reply=$(curl -s -m 15 --cacert "${ENV_FILE%/*}/.couponmq/ca.pem" -w '%{http_code}' \
		--json "$body" "${@:3}" "https://localhost:$COUPON_HTTP_PORT/v1/issue") || return
	code=${reply: -3}
	echo "$code ${reply%???}"
}

# The answer to a line under TLS.
secured_ping() {
	(
		echo '{"op":"ping"}'
		sleep 5
	) | timeout 10 openssl s_client -quiet -connect "127.0.0.1:$COUPON_PORT" \
		-CAfile "${ENV_FILE%/*}/.couponmq/ca.pem" -verify_return_error 2>/dev/null |
		head -n 1
}

# With what `make compose-env TLS=yes` makes.
scenario_secured() {
	local coupon key
	local names=localhost,coupon-gateway,coupon-admin
	need "all of it stops again" quietly compose_with down
	TLS=yes NAMES=$names scripts/compose-env.sh "$ENV_FILE" >/dev/null
	export COUPON_BIND=127.0.0.1
	compose_files+=(-f docker-compose.tls.yml)
	need "it starts with TLS and keys" up 2
	need "all of it is healthy under TLS" wait_until "$READY_S" all_healthy 2
	coupon=$(couponctl create --name "Secured" --total 10)
	couponctl publish "$coupon" >/dev/null
	key=$(couponctl key create --name shop --role issue)
	check "with a key a coupon is issued" wait_until 30 \
		secured_is "200 .*\"issued\"" "$coupon" 1 -H "Authorization: Bearer $key"
	check "without one it is not" secured_is "401 .*unauthorized" "$coupon" 2
	check "lines are answered under TLS" equals "$(status_of "$(secured_ping)")" ok
	check "and not in the clear" equals "$(ask '{"op":"ping"}' 2>/dev/null)" ""
	check "issued is what was asked for" equals "$(issued_and_rows "$coupon")" "1|1"
}

secured_is() {
	[[ $(secured_issue "${@:2}") =~ ^$1 ]]
}

# Redis is a new process after a restart: the answer is unavailable until the keeper has verified
# it.
user_is_told() {
	[[ $(status_of "$(ask "{\"op\":\"issue\",\"coupon\":\"$1\",\"user\":\"$2\"}")") == "$3" ]]
}

finish() {
	trap - EXIT INT TERM
	set +e
	# A signal may arrive while the output of a function is redirected.
	exec >&7 2>&8
	[[ -z $load_pid ]] || kill -KILL "$load_pid" 2>/dev/null
	if [[ ${#compose[@]} -gt 0 && -n ${images:-} ]]; then
		if [[ $finished == no || $failed -gt 0 ]]; then
			compose_with logs --no-color --tail 400 >"$ENGINE_DIR/services.log" 2>&1
			say "the logs of the services are in ${ENGINE_DIR##*/}/services.log"
		fi
		quietly pods_remove
		quietly compose_with down -v -t 20 --remove-orphans
		check "nothing is left behind" nothing_left
	fi
	[[ $engine_own == no ]] || engine_stop
	[[ $finished == yes || $failed -gt 0 ]] || failed=1
	say "took $SECONDS s"
	echo "$passed passed, $failed failed"
	# Without a number, exit would return the status from before the trap.
	exit $((failed > 0))
}

run() {
	exec 7>&1 8>&2
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM

	# The caller's shell may have set these for a stack of its own.
	unset COMPOSE_FILE COMPOSE_PROJECT_NAME COMPOSE_PROFILES COMPOSE_ENV_FILES COUPON_BIND \
		REDIS_MAXMEMORY POSTGRES_PASSWORD RABBITMQ_PASSWORD REDIS_PASSWORD \
		COUPON_GATEWAY_PASSWORD COUPON_WORKER_PASSWORD COUPON_OPERATOR_PASSWORD \
		COUPON_AUTH COUPON_INSECURE COUPON_TOKEN_KEYS COUPON_PROXY_FROM \
		COUPON_RATE_ADDRESS COUPON_GATEWAY_KEY COUPON_FILES COUPON_FILES_GROUP TLS NAMES HA
	export COUPON_PORT=${COMPOSE_TEST_PORT:-27411}
	export COUPON_HTTP_PORT=${COMPOSE_TEST_HTTP_PORT:-27480}
	export COUPON_NETWORK=${COMPOSE_TEST_NETWORK:-10.74.27}
	export COUPON_ADMIN_PORT=${COMPOSE_TEST_ADMIN_PORT:-27490}
	export COUPON_IMAGE=couponmq-test/couponmq COUPON_NOFILE=65536
	export COUPON_SERVICES_IMAGE=couponmq-test/services
	rm -f "$ENGINE_DIR"/*.log "$ENV_FILE"
	packages_need python3=python3
	# The kubectl of Debian 12 would not do.
	[[ $(</etc/debian_version) == 12* ]] || kubectl_is_new ||
		packages_need kubectl=kubernetes-client
	python3 -c 'import yaml' 2>/dev/null || packages_need python3-yaml=python3-yaml
	scripts/compose-env.sh "$ENV_FILE" >/dev/null

	engine_open
	# A daemon that is started here cannot allow more open files than this process may open.
	files=$(ulimit -Hn)
	if [[ $engine_own == yes && $files != unlimited && $files -lt $COUPON_NOFILE ]]; then
		COUPON_NOFILE=$files
	fi
	base_image_make "$COUPON_DEBIAN"
	compose_find
	images=$(images_choose)
	say "${compose[*]} $("${compose[@]}" version --short 2>/dev/null)," \
		"and the services from the $images images, Debian $COUPON_DEBIAN"
	compose_files=(-f docker-compose.ha.yml)
	compose_with down -v -t 20 --remove-orphans >/dev/null 2>&1 || true
	need "the images of three machines are built" quietly compose_with build
	compose_files=(-f docker-compose.yml)
	[[ $images == official ]] || compose_files+=(-f tests/compose/docker-compose.debian.yml)
	for port in "$COUPON_PORT" "$COUPON_HTTP_PORT" "$COUPON_ADMIN_PORT"; do
		! port_taken "$port" || die "port $port is in use; choose others with" \
			"COMPOSE_TEST_PORT=, COMPOSE_TEST_HTTP_PORT= and COMPOSE_TEST_ADMIN_PORT="
	done

	check "the file of passwords is private, kept and ignored by git" env_file_private
	check "a missing password stops with a sentence that names it" secret_missing_named
	need "and those of one" quietly compose_with build
	say "built after $SECONDS s"
	scenario
	scenario_secured
	if kubectl_is_new; then
		scenario_pods
	else
		say "there is no kubectl of 1.22 or later: the pods are not run"
	fi
	scenario_machines
	finished=yes
}

clean() {
	engine_stop
	rm -rf "$ENGINE_DIR"
}

run_folder_main "$ENGINE_DIR" COMPOSE_RUN_DIR "$@"
