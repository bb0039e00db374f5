#!/usr/bin/env bash
# Writes a .env with random passwords: compose-env.sh [FILE]. Settings that the file already has are
# kept, and so is the certificate. If these do not fit what is asked for, nothing is changed.
#   TLS=yes            also a CA, a certificate and a key, in .couponmq/ beside FILE, or where
#                      COUPON_FILES of FILE says, and the settings with which other machines may
#                      reach the gateway
#   NAMES=a.example,…  with it: names and addresses by which clients call the gateway
#   HA=yes             for docker-compose.ha.yml, also with TLS
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FILE=${1:-.env} TLS=${TLS:-no} NAMES=${NAMES:-} HA=${HA:-no}
# The passwords are used in URLs, where letters and digits need no escaping.
readonly PASSWORDS=(POSTGRES_PASSWORD RABBITMQ_PASSWORD REDIS_PASSWORD
	COUPON_GATEWAY_PASSWORD COUPON_WORKER_PASSWORD COUPON_OPERATOR_PASSWORD)
readonly CONTAINER_ID=7411 # user and group of the programs
FILES=$(sed -n 's/^COUPON_FILES=//p' "$FILE" 2>/dev/null) || true
FILES=$(realpath -m -- "${FILES:-$(dirname -- "$FILE")/.couponmq}")
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
	[[ $HA == no ]] && printf gateway || printf haproxy
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

# compose_file_add FILE[:FILE]: sets COMPOSE_FILE, which tells docker-compose the files of the
# stack. A list that FILE already has is kept, but must contain the last file: without that of TLS
# the ports would be published in the clear.
compose_file_add() {
	local last=${1##*:}
	add COMPOSE_FILE "$1"
	grep -qE "^COMPOSE_FILE=(.*[:/])?${last//./\\.}(:|\$)" "$FILE.new" ||
		die "$FILE has a COMPOSE_FILE without $last: add it there"
}

# hosts_add: sets COUPON_HTTP_HOSTS. A list that FILE already has is kept, but must contain NAMES.
hosts_add() {
	local name
	add COUPON_HTTP_HOSTS "$(hosts)"
	for name in "${names[@]}"; do
		is_address "$name" || [[ $name == localhost ]] ||
			grep -qE "^COUPON_HTTP_HOSTS=(.*,)?${name//./\\.}(,|\$)" "$FILE.new" ||
			die "$FILE has a COUPON_HTTP_HOSTS without $name: add it there"
	done
}

# Prints the names of the certificate as OpenSSL wants them.
alternatives() {
	local name
	printf 'subjectAltName=DNS:gateway,DNS:haproxy,DNS:gateway-1,DNS:gateway-2,DNS:gateway-3'
	printf ',DNS:localhost,IP:127.0.0.1,IP:::1'
	for name in "${names[@]}"; do
		if is_address "$name"; then
			printf ',IP:%s' "$name"
		else
			printf ',DNS:%s' "$name"
		fi
	done
}

# Ends the script if the certificate that is there is not good for NAMES, or not for 30 days more.
certificate_check() {
	local cert=$FILES/gateway/cert.pem name option
	local mend="remove $FILES, so that a CA and a certificate are made, or replace the file"
	openssl x509 -in "$cert" -noout 2>/dev/null || die "$cert is not a certificate: $mend"
	openssl x509 -in "$cert" -noout -checkend $((30 * 86400)) >/dev/null ||
		die "$cert ends within 30 days: $mend"
	for name in "${names[@]}"; do
		is_address "$name" && option=-checkip || option=-checkhost
		[[ $(openssl x509 -in "$cert" -noout "$option" "$name") == *" does match "* ]] ||
			die "$cert is not for $name: $mend"
	done
}

# A CA, which stays out of the containers, and what the gateway gets. The folder appears complete;
# one that is there is kept.
certificate_make() {
	local ec=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes) new=$FILES.new
	[[ ! -e $FILES ]] || {
		certificate_check
		return
	}
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
[[ $HA == no ]] || add COUPON_NETWORK 10.74.11
case $HA$TLS in
yesyes) compose_file_add docker-compose.ha.yml:docker-compose.ha-tls.yml ;;
yesno) compose_file_add docker-compose.ha.yml ;;
noyes) compose_file_add docker-compose.yml:docker-compose.tls.yml ;;
esac
if [[ $TLS == yes ]]; then
	certificate_make
	add COUPON_FILES "$FILES"
	# Only root can give the key to the group of the container.
	add COUPON_FILES_GROUP "$(stat -c %g "$FILES/gateway/key.pem")"
	hosts_add
	add COUPON_BIND 0.0.0.0
fi
mv "$FILE.new" "$FILE"
if [[ ${#added[@]} -gt 0 ]]; then
	echo "compose-env: $FILE now has ${added[*]}"
else
	echo "compose-env: $FILE has every setting already"
fi
