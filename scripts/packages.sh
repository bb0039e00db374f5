#!/usr/bin/env bash
# Installs the Debian packages that building, running and testing need. Silent when all are there.
# A name with a version is found out, since it differs between releases of Debian.
#   packages.sh [GROUP]   also those of bench, compare, console, coverage, fuzz, generators, ha,
#                         kubernetes, outside, platforms, sdk or test
#   packages.sh deb       only what building the packages needs
#   packages.sh site      only what the site of the documents needs
set -euo pipefail
# shellcheck source=scripts/installed.sh
. "$(dirname "${BASH_SOURCE[0]}")/installed.sh"

die() {
	echo "packages: $*" >&2
	exit 1
}

readonly BUILD=(
	build-essential pkg-config
	libcjson-dev libcmocka-dev libcsv-dev libcurl4-openssl-dev libevent-dev libhiredis-dev
	libhttp-parser-dev libpq-dev librabbitmq-dev libsodium-dev libssl-dev libsystemd-dev
	uthash-dev
)
PACKAGES=(
	"${BUILD[@]}"
	# run: the three services, the tools that the stack scripts call, certificates for webhooks
	ca-certificates redis-tools rabbitmq-server curl netcat-openbsd util-linux
	# programs of tests, benches and lint in Python; certificates
	openssl
	python3 python3-jsonschema python3-pika python3-prometheus-client python3-psycopg
	python3-pytest python3-redis python3-requests
	# disks whose power is cut
	e2fsprogs libfuse3-dev mount
	# lint
	black clang-format flake8 git lua-check shellcheck
)
# The package of a server has the name of its command; any version of PostgreSQL will do.
command -v "${REDIS_SERVER:-$(redis_server_find)}" >/dev/null ||
	PACKAGES+=("$(basename "${REDIS_SERVER:-redis-server}")")
[[ -n $(postgres_bin_find '*') ]] || PACKAGES+=(postgresql)
[[ -z ${WITH_ZOOKEEPER:-} ]] ||
	PACKAGES+=(libzookeeper-mt-dev zookeeper default-jre-headless)
# Parts of other projects that tests put around ours, and what reads manual pages.
[[ ${1:-} != test ]] || PACKAGES+=(haproxy lintian man-db mandoc mypy prometheus
	python3-cryptography stunnel4 systemd)
[[ ${1:-} != bench ]] || PACKAGES+=(wrk python3-cryptography linux-perf)
[[ ${1:-} != compare ]] || PACKAGES+=(gnuplot-nox)
[[ ${1:-} != fuzz ]] || PACKAGES+=(clang libclang-rt-dev llvm)
[[ ${1:-} != coverage ]] || PACKAGES+=(gcovr)
# iproute2: machines as network namespaces. Of the stores of Patroni it needs the module for etcd.
[[ ${1:-} != ha ]] || PACKAGES+=(etcd-server haproxy iproute2 patroni python3-etcd)
[[ ${1:-} != console ]] || PACKAGES+=(chromium chromium-driver pngquant python3-selenium)
# The languages of the clients that only ALL=1 tests.
if [[ ${1:-} == sdk ]]; then
	PACKAGES+=(golang-go golang-github-rabbitmq-amqp091-go-dev libgoogle-gson-java)
	command -v node >/dev/null || PACKAGES+=(nodejs)
	command -v javac >/dev/null || PACKAGES+=(default-jdk-headless)
fi
if [[ ${1:-} == kubernetes ]]; then
	PACKAGES+=(python3-yaml)
	if ! kubectl_is_new; then
		[[ $(</etc/debian_version) != 12* ]] ||
			die "the kubectl of Debian 12 is too old: install one of 1.22 or later"
		PACKAGES+=(kubernetes-client)
	fi
fi
if [[ ${1:-} == kubernetes || ${1:-} == generators || ${1:-} == console ]]; then
	# npm may be there from elsewhere.
	command -v npm >/dev/null || PACKAGES+=(npm)
fi
[[ ${1:-} != outside ]] ||
	PACKAGES+=(apache2-utils chromium nghttp2-client pgbouncer slowhttptest testssl.sh)
[[ ${1:-} != platforms ]] || PACKAGES+=(debootstrap)
if [[ ${1:-} == site ]]; then
	PACKAGES=(mkdocs mkdocs-material)
	command -v node >/dev/null || PACKAGES+=(nodejs)
	command -v npm >/dev/null || PACKAGES+=(npm)
fi
# A machine that builds packages, and then installs them, gets its stores with them.
[[ ${1:-} != deb ]] || PACKAGES=("${BUILD[@]}" debhelper dpkg-dev git python3)
readonly PACKAGES
readonly POLICY=/usr/sbin/policy-rc.d
readonly NO_CLUSTER=/etc/postgresql-common/createcluster.d/couponmq.conf

missing=()
policy_made=no folder_made=no

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

# Warns about a librabbitmq without the fixes of CVE-2026-61547 and CVE-2026-59986. Debian 12 and 13
# have them in different versions, each with its own fixed package.
librabbitmq_check() {
	local version fixed=0.15.0-1+deb13u2
	# shellcheck disable=SC2016 # dpkg-query's own variable
	version=$(dpkg-query -W -f='${Version}' librabbitmq-dev 2>/dev/null) || return 0
	! dpkg --compare-versions "$version" lt 0.12~ || fixed=0.11.0-1+deb12u3
	dpkg --compare-versions "$version" lt "$fixed" || return 0
	echo "packages: librabbitmq is $version; CVE-2026-61547 and CVE-2026-59986 are fixed in" \
		"$fixed: apt-get install --only-upgrade librabbitmq-dev" >&2
}

find_missing
if [[ ${#missing[@]} -eq 0 ]]; then
	librabbitmq_check
	exit 0
fi

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
librabbitmq_check
