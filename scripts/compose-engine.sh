# Sourced by compose-test.sh: a Docker engine to test with, and images for it.
#
# An engine that answers is used as it is. Otherwise one is started in ENGINE_DIR: data/ exec/ docker.sock dockerd.pid
# dockerd.log. It makes no default bridge and leaves the machine's firewall alone (builds use the machine's network;
# published ports go through docker-proxy), so that nothing of it remains when it has ended.
# shellcheck shell=bash disable=SC2034 # variables for who sources this

readonly BASE_IMAGE=debian:bookworm-slim
readonly OFFICIAL_IMAGES=("$BASE_IMAGE" redis:7 rabbitmq:3.10 postgres:15)
readonly ENGINE_START_S=60 ENGINE_STOP_S=60 PULL_S=300
# The shim's sockets lie below the folder, and the kernel takes no longer path than 107 bytes.
readonly ENGINE_DIR_MAX=75

# Whether the engine is one that we started.
engine_own=no

# packages_need COMMAND=PACKAGE..: installs what is missing, without letting a service of the system start.
packages_need() {
	local pair missing=() policy=/usr/sbin/policy-rc.d policy_made=no code=0
	for pair in "$@"; do
		PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
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
			DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "${missing[@]}"
	} >"$ENGINE_DIR/apt.log" 2>&1 || code=$?
	[[ $policy_made == no ]] || rm -f "$policy"
	[[ $code -eq 0 ]] || die "apt-get failed: see $ENGINE_DIR/apt.log"
}

# ---- the engine

engine_answers() {
	timeout 10 docker info >/dev/null 2>&1
}

# Prints the pid of the dockerd that keeps its data in our folder, if it runs.
engine_pid() {
	local pid
	pid=$(cat "$ENGINE_DIR/dockerd.pid" 2>/dev/null) || return 1
	[[ -r /proc/$pid/cmdline ]] || return 1
	tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "--data-root=$ENGINE_DIR/data" || return 1
	echo "$pid"
}

engine_start() {
	local deadline=$((SECONDS + ENGINE_START_S)) pid
	[[ $(id -u) -eq 0 ]] || die "no Docker engine answers, and only root can start one"
	[[ ${#ENGINE_DIR} -le $ENGINE_DIR_MAX ]] ||
		die "the path $ENGINE_DIR is too long for a socket; choose a shorter COMPOSE_RUN_DIR="
	packages_need dockerd=docker.io docker=docker.io iptables=iptables
	engine_stop
	rm -rf "$ENGINE_DIR/exec" "$ENGINE_DIR/dockerd.pid" "$ENGINE_DIR/docker.sock"
	export DOCKER_HOST=unix://$ENGINE_DIR/docker.sock
	PATH=$PATH:/usr/sbin:/sbin setsid dockerd --host="$DOCKER_HOST" --data-root="$ENGINE_DIR/data" \
		--exec-root="$ENGINE_DIR/exec" --pidfile="$ENGINE_DIR/dockerd.pid" --log-level=warn \
		--bridge=none --iptables=false --ip-forward=false \
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

# Ends our dockerd; it ends its containers, and its containerd.
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
	awk -v dir="$ENGINE_DIR/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r | while read -r mount; do
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

# ---- images

image_there() {
	docker image inspect "$1" >/dev/null 2>&1
}

# Prints official or debian: COMPOSE_TEST_IMAGES, or what can be had.
images_choose() {
	local image
	if [[ -n ${COMPOSE_TEST_IMAGES:-} ]]; then
		[[ $COMPOSE_TEST_IMAGES =~ ^(official|debian)$ ]] ||
			die "COMPOSE_TEST_IMAGES is $COMPOSE_TEST_IMAGES; allowed is official or debian"
		echo "$COMPOSE_TEST_IMAGES"
		return
	fi
	for image in "${OFFICIAL_IMAGES[@]:1}"; do
		if ! image_there "$image" && ! timeout "$PULL_S" docker pull -q "$image" >/dev/null 2>&1; then
			echo debian
			return
		fi
	done
	echo official
}

# The root folder $1 gets packages from where this machine gets its own.
apt_configure() {
	local etc=$1/etc/apt item
	rm -f "$etc/sources.list"
	for item in sources.list sources.list.d auth.conf auth.conf.d keyrings preferences preferences.d trusted.gpg trusted.gpg.d; do
		[[ ! -e /etc/apt/$item ]] || cp -a "/etc/apt/$item" "$etc/"
	done
	apt-config dump Acquire >"$etc/apt.conf.d/99machine"
	# Without these no source over https could be read before ca-certificates is installed.
	if [[ -r /etc/ssl/certs/ca-certificates.crt ]]; then
		install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
	fi
}

# The base image from Debian's packages. What it holds of this machine's configuration stays in the engine.
base_image_make() {
	local root=$ENGINE_DIR/base mirror http_proxy_set=
	! image_there "$BASE_IMAGE" || return 0
	! timeout "$PULL_S" docker pull -q "$BASE_IMAGE" >/dev/null 2>&1 || return 0
	[[ $(id -u) -eq 0 ]] || die "$BASE_IMAGE cannot be pulled, and only root can make it with debootstrap"
	packages_need debootstrap=debootstrap
	say "$BASE_IMAGE cannot be pulled: making it with debootstrap"
	# shellcheck disable=SC2016 # apt-get's own variable
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
	eval "$(apt-config shell http_proxy_set Acquire::http::Proxy)"
	rm -rf "$root"
	http_proxy=${http_proxy_set:-${http_proxy:-}} debootstrap --variant=minbase bookworm "$root" \
		${mirror:+"$mirror"} >"$ENGINE_DIR/debootstrap.log" 2>&1 ||
		die "debootstrap failed: see $ENGINE_DIR/debootstrap.log"
	apt_configure "$root"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,info}/*
	tar -C "$root" --one-file-system -c . | docker import - "$BASE_IMAGE" >/dev/null
	rm -rf "$root"
}
