# shellcheck shell=bash disable=SC2034 # variables for who sources this
# A Docker engine to test with. Sourced by scripts/compose-test.sh.
#
# An engine that answers is used as it is. Otherwise one is started in ENGINE_DIR: data/ exec/
# docker.sock dockerd.pid dockerd.log. It creates no default bridge and does not change the
# machine's firewall (builds use the machine's network; published ports go through docker-proxy), so
# that it leaves nothing behind.

readonly ENGINE_START_S=60 ENGINE_STOP_S=60
# The shim's sockets are below the folder, and the kernel allows paths of at most 107 bytes.
readonly ENGINE_DIR_MAX=75

# Whether the engine was started by this script.
engine_own=no

# packages_need COMMAND=PACKAGE..: installs what is missing; no service of the system starts.
packages_need() {
	local pair missing=() policy=/usr/sbin/policy-rc.d policy_made=no code=0
	for pair in "$@"; do
		PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null ||
			missing+=("${pair#*=}")
	done
	[[ ${#missing[@]} -gt 0 ]] || return 0
	[[ $(id -u) -eq 0 ]] || die "some packages are missing; type
    sudo apt-get install --no-install-recommends ${missing[*]}"
	say "installing ${missing[*]}"
	if [[ ! -e $policy ]]; then
		policy_made=yes
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	{
		apt-get -q update &&
			DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
				install "${missing[@]}"
	} >"$ENGINE_DIR/apt.log" 2>&1 || code=$?
	[[ $policy_made == no ]] || rm -f "$policy"
	[[ $code -eq 0 ]] || die "apt-get failed: see $ENGINE_DIR/apt.log"
}

engine_answers() {
	timeout 10 docker info >/dev/null 2>&1
}

# Prints the pid of the dockerd that keeps its data in the test's folder, if it runs.
engine_pid() {
	local pid
	pid=$(cat "$ENGINE_DIR/dockerd.pid" 2>/dev/null) || return 1
	[[ -r /proc/$pid/cmdline ]] || return 1
	tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" |
		grep -qxF -- "--data-root=$ENGINE_DIR/data" || return 1
	echo "$pid"
}

engine_start() {
	local deadline=$((SECONDS + ENGINE_START_S)) pid
	[[ $(id -u) -eq 0 ]] || die "no Docker engine answers, and only root can start one"
	[[ ${#ENGINE_DIR} -le $ENGINE_DIR_MAX ]] ||
		die "$ENGINE_DIR is too long for a socket; choose a shorter COMPOSE_RUN_DIR="
	packages_need dockerd=docker.io docker=docker.io iptables=iptables
	engine_stop
	rm -rf "$ENGINE_DIR/exec" "$ENGINE_DIR/dockerd.pid" "$ENGINE_DIR/docker.sock"
	export DOCKER_HOST=unix://$ENGINE_DIR/docker.sock
	PATH=$PATH:/usr/sbin:/sbin setsid dockerd --host="$DOCKER_HOST" \
		--data-root="$ENGINE_DIR/data" --exec-root="$ENGINE_DIR/exec" \
		--pidfile="$ENGINE_DIR/dockerd.pid" --log-level=warn --bridge=none \
		--iptables=false --ip-forward=false \
		</dev/null >"$ENGINE_DIR/dockerd.log" 2>&1 7>&- 8>&- 9>&- &
	pid=$!
	engine_own=yes
	until engine_answers; do
		if [[ ! -d /proc/$pid || $SECONDS -ge $deadline ]]; then
			tail -n 15 "$ENGINE_DIR/dockerd.log" >&2
			die "dockerd is not up: see $ENGINE_DIR/dockerd.log"
		fi
		sleep 0.1
	done
	say "no Docker engine was running: started one (pid $pid)"
}

# Ends that dockerd, which ends its containers and its containerd.
engine_stop() {
	local pid deadline=$((SECONDS + ENGINE_STOP_S)) mount
	if pid=$(engine_pid); then
		kill -TERM "$pid" 2>/dev/null || true
		while engine_pid >/dev/null; do
			if [[ $SECONDS -ge $deadline ]]; then
				say "dockerd (pid $pid) did not end within $ENGINE_STOP_S s: killed"
				kill -KILL -- "-$pid" 2>/dev/null || true
				deadline=$((SECONDS + 10))
			fi
			sleep 0.1
		done
		say "dockerd (pid $pid) has ended"
	fi
	awk -v dir="$ENGINE_DIR/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r |
		while read -r mount; do
			umount -l "$mount"
		done
}

engine_open() {
	if [[ $(engine_pid) == "" ]] && command -v docker >/dev/null && engine_answers; then
		say "using the Docker engine that answers here"
	else
		unset DOCKER_CONTEXT
		engine_start
		export COUPON_BUILD_NETWORK=host
	fi
}
