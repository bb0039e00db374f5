#!/usr/bin/env bash
# Writes a .env with random passwords: compose-env.sh [FILE]. Settings that the file already has are
# kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FILE=${1:-.env}
# The passwords are used in URLs, where letters and digits need no escaping.
readonly NAMES=(POSTGRES_PASSWORD RABBITMQ_PASSWORD REDIS_PASSWORD
	COUPON_GATEWAY_PASSWORD COUPON_WORKER_PASSWORD COUPON_OPERATOR_PASSWORD)
umask 077

random_hex() {
	od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

added=()
if [[ -e $FILE ]]; then
	cp "$FILE" "$FILE.new"
else
	: >"$FILE.new"
fi
chmod 600 "$FILE.new"
[[ -z $(tail -c 1 "$FILE.new") ]] || echo >>"$FILE.new"
for name in "${NAMES[@]}"; do
	! grep -qE "^$name=." "$FILE.new" || continue
	sed -i "/^$name=\$/d" "$FILE.new"
	echo "$name=$(random_hex)" >>"$FILE.new"
	added+=("$name")
done
mv "$FILE.new" "$FILE"
if [[ ${#added[@]} -gt 0 ]]; then
	echo "compose-env: $FILE now has ${added[*]}"
else
	echo "compose-env: $FILE has every password already"
fi
