# shellcheck shell=bash
# The pods of deploy/kubernetes, run by Docker with the restrictions of their manifests, on the
# services of docker-compose.yml. Sourced by scripts/compose-test.sh.

readonly SECRETS=$ENGINE_DIR/secrets

password_of() {
	sed -n "s/^$1=//p" "$ENV_FILE"
}

# secret NAME KEY=FILE..: as a kubelet lays it into a pod with that group.
secret() {
	local name=$1 pair
	shift
	mkdir -p "$SECRETS/$name"
	for pair in "$@"; do
		install -m 440 -g 7411 "${pair#*=}" "$SECRETS/$name/${pair%%=*}"
	done
}

secrets_make() {
	local program password tls=${ENV_FILE%/*}/.couponmq
	rm -rf "$SECRETS"
	for program in gateway worker operator; do
		password=$(password_of "COUPON_${program^^}_PASSWORD")
		secret "coupon-$program" redis=<(echo "$password") rabbitmq=<(echo "$password") \
			postgresql=<(echo "$password")
	done
	secret coupon-owner postgresql=<(password_of POSTGRES_PASSWORD)
	secret coupon-tls "tls.crt=$tls/gateway/cert.pem" "tls.key=$tls/gateway/key.pem" \
		"ca.crt=$tls/ca.pem"
}

# pod_run NAME USER [OPTION OF docker]..: the stores' URLs, which an overlay has, are those of the
# services.
pod_run() {
	local arguments user=$2
	mapfile -t arguments < <(python3 -B tests/compose/pods.py "$1" "$SECRETS" "$COUPON_IMAGE")
	docker run --network "${PROJECT}_default" -e "REDIS_URL=redis://$user@redis:6379/0" \
		-e "AMQP_URL=amqp://$user@rabbitmq:5672/%2f" \
		-e "DATABASE_URL=postgresql://$user@postgres/couponmq" \
		-e "DATABASE_ADMIN_URL=postgresql://$user@postgres/couponmq" \
		"${@:3}" "${arguments[@]}"
}

pods_remove() {
	docker rm -f coupon-migrate coupon-worker coupon-gateway coupon-admin
	rm -rf "$SECRETS"
}

pods_healthy() {
	local name
	for name in coupon-gateway coupon-worker coupon-admin; do
		[[ $(docker inspect -f '{{.State.Health.Status}}' "$name") == healthy ]] || return
	done
}

gateway_drains() {
	docker logs coupon-gateway 2>&1 | grep -q '"event":"draining"'
}

readyz_is() {
	[[ $(curl -s -m 10 -o /dev/null -w '%{http_code}' \
		--cacert "${ENV_FILE%/*}/.couponmq/ca.pem" \
		"https://localhost:$COUPON_HTTP_PORT/readyz") == "$1" ]]
}

scenario_pods() {
	local coupon key name
	need "all of it stops, with its volumes" quietly compose_with down -v -t 20
	secrets_make
	need "the stores start" quietly compose_with up -d redis rabbitmq postgres
	need "and are healthy" wait_until "$READY_S" stores_healthy
	need "the Job migrates" quietly pod_run coupon-migrate couponmq_owner
	need "the pods start" quietly pod_run coupon-worker couponmq_worker -d
	need "with a gateway" quietly pod_run coupon-gateway couponmq_gateway -d \
		-p "127.0.0.1:$COUPON_HTTP_PORT:7480"
	need "and coupon-admin" quietly pod_run coupon-admin couponmq_operator -d
	need "all of them are healthy" wait_until "$READY_S" pods_healthy

	coupon=$(docker exec coupon-admin couponctl create --name Pods --total 10)
	docker exec coupon-admin couponctl publish "$coupon" >/dev/null
	key=$(docker exec coupon-admin couponctl key create --name shop --role issue)
	check "with a key a coupon is issued" wait_until 60 \
		secured_is "200 .*\"issued\"" "$coupon" 1 -H "Authorization: Bearer $key"
	check "without one it is not" secured_is "401 .*unauthorized" "$coupon" 2
	docker kill -s TERM coupon-gateway >/dev/null
	need "a gateway that is told to end drains" wait_until 60 gateway_drains
	check "says that it is not ready" readyz_is 503
	check "and issues" secured_is "200 .*\"issued\"" "$coupon" 3 \
		-H "Authorization: Bearer $key"
	check "then it ends" equals "$(docker wait coupon-gateway)" 0
	check "issued is what was asked for" equals "$(issued_and_rows "$coupon")" "2|2"
	for name in coupon-worker coupon-admin; do
		docker stop "$name" >/dev/null
		check "$name ends when it is told" equals \
			"$(docker inspect -f '{{.State.ExitCode}}' "$name")" 0
	done
	quietly pods_remove
}
