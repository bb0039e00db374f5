#!/usr/bin/env bash
# Writes a .env with random passwords: compose-env.sh [FILE]. Settings that the file already has are
# kept.
#   TLS=yes            also a CA, a certificate and a key, in .couponmq/ beside FILE, and the
#                      settings with which other machines may reach the gateway
#   NAMES=a.example,…  with it: names and addresses by which clients call the gateway
#   HA=yes             for docker-compose.ha.yml
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FILE=${1:-.env} TLS=${TLS:-no} NAMES=${NAMES:-} HA=${HA:-no}
# The passwords are used in URLs, where letters and digits need no escaping.
readonly PASSWORDS=(POSTGRES_PASSWORD RABBITMQ_PASSWORD REDIS_PASSWORD
	COUPON_GATEWAY_PASSWORD COUPON_WORKER_PASSWORD COUPON_OPERATOR_PASSWORD)
readonly CONTAINER_ID=7411 # user and group of the programs
FILES=$(realpath -m -- "$(dirname -- "$FILE")/.couponmq")
readonly FILES
umask 077
added=()
IFS=, read -r -a names <<<"$NAMES"

die() {
	echo "compose-env: $*" >&2
	exit 1
}

random_hex() {
	od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

is_address() {
	[[ $1 =~ ^[0-9.]+$ || $1 == *:* ]]
}

# Prints the names by which HTTP clients may call the gateway; they may use any address.
hosts() {
	local name
	printf gateway
	for name in "${names[@]}"; do
		is_address "$name" || printf ',%s' "$name"
	done
}

# add NAME VALUE: unless the file has one.
add() {
	! grep -qE "^$1=." "$FILE.new" || return 0
	sed -i "/^$1=\$/d" "$FILE.new"
	echo "$1=$2" >>"$FILE.new"
	added+=("$1")
}

# compose_file_add FILE[:FILE]: unless there is a COMPOSE_FILE, which must then have the last one.
compose_file_add() {
	local last=${1##*:}
	add COMPOSE_FILE "$1"
	grep -q "^COMPOSE_FILE=.*${last//./\\.}" "$FILE.new" ||
		die "$FILE has a COMPOSE_FILE without $last: add it there"
}

# Prints the names of the certificate as OpenSSL wants them.
alternatives() {
	local name
	printf 'subjectAltName=DNS:gateway,DNS:localhost,IP:127.0.0.1,IP:::1'
	for name in "${names[@]}"; do
		if is_address "$name"; then
			printf ',IP:%s' "$name"
		else
			printf ',DNS:%s' "$name"
		fi
	done
}

# A CA, which stays out of the containers, and what the gateway gets. The folder appears complete.
certificate_make() {
	local ec=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes) new=$FILES.new
	[[ ! -e $FILES ]] || return 0
	rm -rf "$new"
	mkdir -p "$new/gateway"
	(
		cd "$new"
		openssl req -x509 "${ec[@]}" -days 3650 -subj '/CN=couponmq CA' \
			-addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem
		openssl req "${ec[@]}" -subj /CN=gateway -addext "$(alternatives)" \
			-keyout gateway/key.pem -out request.pem
		openssl x509 -req -in request.pem -copy_extensions copy -days 825 \
			-CA ca.pem -CAkey ca.key -out gateway/cert.pem
		rm request.pem
	) 2>"$new/log" || die "openssl made no certificate: $(tail -n 1 "$new/log")"
	rm "$new/log"
	chmod 755 "$new" "$new/gateway"
	chmod 644 "$new/ca.pem" "$new/gateway/cert.pem"
	chmod 640 "$new/gateway/key.pem"
	[[ $(id -u) -ne 0 ]] || chgrp "$CONTAINER_ID" "$new/gateway/key.pem"
	mv "$new" "$FILES"
}

[[ $TLS == yes || $TLS == no ]] || die "TLS is $TLS; allowed are yes and no"
[[ $HA == yes || $HA == no ]] || die "HA is $HA; allowed are yes and no"
[[ $HA == no || $TLS == no ]] || die "docker-compose.ha.yml has no TLS; allowed is HA or TLS"
[[ $NAMES =~ ^[A-Za-z0-9.:,-]*$ ]] || die "NAMES is $NAMES; allowed are names and addresses"
trap 'rm -f -- "$FILE.new"' EXIT
if [[ -e $FILE ]]; then
	cp "$FILE" "$FILE.new"
else
	: >"$FILE.new"
fi
chmod 600 "$FILE.new"
[[ -z $(tail -c 1 "$FILE.new") ]] || echo >>"$FILE.new"
for name in "${PASSWORDS[@]}"; do
	add "$name" "$(random_hex)"
done
if [[ $HA == yes ]]; then
	compose_file_add docker-compose.ha.yml
	add COUPON_NETWORK 10.74.11
fi
if [[ $TLS == yes ]]; then
	certificate_make
	compose_file_add docker-compose.yml:docker-compose.tls.yml
	add COUPON_FILES "$FILES"
	# Only root can give the key to the group of the container.
	add COUPON_FILES_GROUP "$(stat -c %g "$FILES/gateway/key.pem")"
	add COUPON_HTTP_HOSTS "$(hosts)"
	add COUPON_BIND 0.0.0.0
fi
mv "$FILE.new" "$FILE"
if [[ ${#added[@]} -gt 0 ]]; then
	echo "compose-env: $FILE now has ${added[*]}"
else
	echo "compose-env: $FILE has every setting already"
fi
