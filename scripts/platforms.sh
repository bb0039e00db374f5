#!/usr/bin/env bash
# `make test` on each supported platform: platforms.sh [run|clean]
#   PLATFORMS="debian12 debian13 debian13-valkey"   which of them
#   PLATFORMS_DIR=.run-platforms   the root folders, kept for the next run, and the outputs
#   TESTS= SEED= ALL= TEST_PORT_BASE= TEST_SHARDS=  as for `make test`
#
# A platform is a root folder made by debootstrap. The tests run in it in namespaces of their own
# for mounts, processes and System V memory. The kernel unmounts and kills what is left when they
# end, and also when this script is killed.
set -euo pipefail
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# name: release, command of the Redis server
declare -rA SUPPORTED=(
	[debian12]='bookworm redis-server'
	[debian13]='trixie redis-server'
	[debian13-valkey]='trixie valkey-server'
)
read -r -a PLATFORMS <<<"${PLATFORMS:-debian12 debian13 debian13-valkey}"
DIR=$(realpath -m -- "${PLATFORMS_DIR:-.run-platforms}")
readonly PLATFORMS DIR
readonly TREE=/srv/couponmq # in each root

entered=
summary=()
failed=0

say() {
	echo "platforms: $*"
}

die() {
	echo "platforms: $*" >&2
	exit 1
}

# shellcheck source=scripts/run_folder.sh
. scripts/run_folder.sh
# shellcheck source=scripts/debian_root.sh
. scripts/debian_root.sh

# ---- a root

# The first process of the namespace, in the root $1. It is a shell, which reaps the processes that
# lose their parents. /tmp is empty at each start: make names a file in it after its pid, and pids
# are the same in the next run.
# shellcheck disable=SC2016 # its own variables
readonly FIRST='
set -e
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
exec chroot "$@"'

# root_run ROOT COMMAND..: runs a shell command in the tree of the root.
root_run() {
	local root=$1 code=0
	shift
	set -m # a process group of its own, which the terminal does not interrupt
	setpriv --pdeathsig KILL unshare --mount --pid --ipc --fork --kill-child \
		bash -c "$FIRST" first "$root" env -i HOME=/root LANG=C.UTF-8 \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		bash -c "cd $TREE && $*; exit \$?" </dev/null &
	entered=$!
	set +m
	wait "$entered" || code=$?
	entered=
	return "$code"
}

root_make() {
	local release=$1 root=$DIR/$1
	[[ ! -e $root.ready ]] || return 0
	say "making $root with debootstrap"
	debian_root_make "$release" "$root" "$root.log"
	echo '127.0.0.1 localhost' >"$root/etc/hosts"
	touch "$root.ready"
}

# The files of this tree, as they are, with an index for `make lint`; what an earlier run built is
# removed.
tree_copy() {
	local tree=$1$TREE file
	rm -rf "$tree"
	mkdir -p "$tree"
	git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do
			[[ ! -e $file ]] || printf '%s\0' "$file"
		done | tar -c --null -T - | tar -x --no-same-owner -C "$tree"
}

packages_install() {
	root_run "$1" "export DEBIAN_FRONTEND=noninteractive; apt-get -q update &&
		apt-get -q -y upgrade && REDIS_SERVER=$2 scripts/packages.sh test &&
		git init -q && git add -A"
}

# ---- a platform

# Prints the versions in the root, for the summary.
versions() {
	local package found list=''
	for package in "$2" rabbitmq-server 'postgresql-[0-9]*' libhiredis-dev librabbitmq-dev; do
		# shellcheck disable=SC2016 # dpkg-query's own variable
		found=$(chroot "$1" dpkg-query -W -f='${source:Upstream-Version}\n' "$package" |
			sort -V | tail -n 1)
		list+=", ${package%%-*} $found"
	done
	echo "Debian $(<"$1/etc/debian_version"), GCC $(chroot "$1" gcc -dumpfullversion)$list"
}

# make_test ROOT SERVER OUTPUT
make_test() {
	local setting settings=''
	for setting in TESTS SEED ALL TEST_PORT_BASE TEST_SHARDS; do
		[[ -z ${!setting:-} ]] || settings+=" $setting=$(printf %q "${!setting}")"
	done
	root_run "$1" "REDIS_SERVER=$2$settings make test" >"$3" 2>&1
}

# Adds two lines to the summary: the result, and the versions.
platform_test() {
	local name=$1 release server root output=$DIR/$1.out begun result
	read -r release server <<<"${SUPPORTED[$name]}"
	root=$DIR/$release
	root_make "$release"
	tree_copy "$root"
	say "$name: installing packages"
	if ! packages_install "$root" "$server" >"$output" 2>&1; then
		result='FAILED to install its packages'
	else
		say "$name: make test; its output: $output"
		begun=$SECONDS
		result=FAILED
		! make_test "$root" "$server" "$output" || result=passed
		result+=": $(grep -x '[0-9]* passed, [0-9]* failed, .* deselected' "$output" ||
			echo unfinished)"
		result+=", $((SECONDS - begun)) s"
	fi
	if [[ $result == *FAILED* ]]; then
		failed=$((failed + 1))
		tail -n 40 "$output"
	fi
	say "$name: $result"
	summary+=("$name: $result" "    $(versions "$root" "$server")")
}

finish() {
	[[ -z $entered ]] || kill -KILL "$entered" 2>/dev/null || true
}

run() {
	local name
	for name in "${PLATFORMS[@]}"; do
		[[ -n ${SUPPORTED[$name]:-} ]] ||
			die "unknown platform $name; there are: ${!SUPPORTED[*]}"
	done
	[[ $(id -u) -eq 0 ]] ||
		die "only root can make and enter root folders; type: sudo make test-platforms"
	unshare --mount --pid --ipc --fork true 2>/dev/null ||
		die "the kernel refuses namespaces; a container must be privileged for them"
	scripts/packages.sh platforms
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	for name in "${PLATFORMS[@]}"; do
		platform_test "$name"
	done
	echo
	printf '%s\n' "${summary[@]}"
	[[ $failed -eq 0 ]]
}

clean() {
	rm -rf --one-file-system "$DIR"
}

run_folder_main "$DIR" PLATFORMS_DIR "$@"
