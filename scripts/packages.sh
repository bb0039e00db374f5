#!/usr/bin/env bash
# Installs the Debian 12 packages that building, running and testing need. Silent when all are
# there.
#   packages.sh [fuzz|coverage]   also those of `make fuzz` or `make coverage`
set -euo pipefail

PACKAGES=(
	# build
	build-essential pkg-config
	libcjson-dev libcmocka-dev libevent-dev libhiredis-dev libpq-dev librabbitmq-dev uthash-dev
	# run: the three services, and the tools that the stack scripts call
	redis-server redis-tools rabbitmq-server postgresql-15 curl netcat-openbsd util-linux
	# test: clients of other projects
	python3 python3-pika python3-prometheus-client python3-psycopg python3-pytest python3-redis
	python3-requests
	# lint
	black clang-format flake8 lua-check shellcheck
)
[[ ${1:-} != fuzz ]] || PACKAGES+=(clang libclang-rt-dev llvm)
[[ ${1:-} != coverage ]] || PACKAGES+=(gcovr)
readonly PACKAGES
readonly POLICY=/usr/sbin/policy-rc.d
readonly NO_CLUSTER=/etc/postgresql-common/createcluster.d/couponmq.conf

missing=()
policy_made=no folder_made=no

die() {
	echo "packages: $*" >&2
	exit 1
}

find_missing() {
	local installed name
	command -v dpkg-query >/dev/null ||
		die "this is not a Debian system; install the equivalents of: ${PACKAGES[*]}"
	# shellcheck disable=SC2016 # dpkg-query's own variables
	installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${PACKAGES[@]}" \
		2>/dev/null) || true
	for name in "${PACKAGES[@]}"; do
		[[ $'\n'"$installed"$'\n' == *$'\n'"installed $name"$'\n'* ]] || missing+=("$name")
	done
}

undo() {
	rm -f "$NO_CLUSTER"
	[[ $folder_made == no ]] || rmdir --ignore-fail-on-non-empty "$(dirname "$NO_CLUSTER")"
	[[ $policy_made == no ]] || rm -f "$POLICY"
}

# The stack has services of its own: those of the system must not be started or get a cluster.
keep_services_down() {
	trap undo EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	if [[ ! -e $POLICY ]]; then
		policy_made=yes
		printf '#!/bin/sh\nexit 101\n' >"$POLICY"
		chmod 755 "$POLICY"
	fi
	[[ -d $(dirname "$NO_CLUSTER") ]] || folder_made=yes
	mkdir -p "$(dirname "$NO_CLUSTER")"
	echo 'create_main_cluster = false' >"$NO_CLUSTER"
}

find_missing
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $(id -u) -ne 0 ]]; then
	echo "packages: some packages are missing; type" >&2
	echo "    sudo apt-get install --no-install-recommends ${missing[*]}" >&2
	exit 1
fi

echo "packages: installing ${missing[*]}"
keep_services_down
export DEBIAN_FRONTEND=noninteractive
apt-get -q update || die "apt-get update failed; is there a network?"
apt-get -q -y --no-install-recommends install "${missing[@]}" || die "apt-get install failed"
