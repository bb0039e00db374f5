# shellcheck shell=bash
# The images of the test: official ones where they can be pulled, else made from Debian's packages.
# Sourced by scripts/compose-test.sh, after engine.sh.

readonly BASE_IMAGE=debian:bookworm-slim
readonly OFFICIAL_IMAGES=("$BASE_IMAGE" redis:7 rabbitmq:3.10 postgres:15)
readonly PULL_S=300

image_there() {
	docker image inspect "$1" >/dev/null 2>&1
}

image_pull() {
	timeout "$PULL_S" docker pull -q "$1" >/dev/null 2>&1
}

# Prints official or debian: COMPOSE_TEST_IMAGES, or the kind that is available.
images_choose() {
	local image
	if [[ -n ${COMPOSE_TEST_IMAGES:-} ]]; then
		[[ $COMPOSE_TEST_IMAGES =~ ^(official|debian)$ ]] ||
			die "COMPOSE_TEST_IMAGES is $COMPOSE_TEST_IMAGES;" \
				"allowed is official or debian"
		echo "$COMPOSE_TEST_IMAGES"
		return
	fi
	for image in "${OFFICIAL_IMAGES[@]:1}"; do
		if ! image_there "$image" && ! image_pull "$image"; then
			echo debian
			return
		fi
	done
	echo official
}

# The root folder $1 gets the package sources of this machine.
apt_configure() {
	local etc=$1/etc/apt item certificates=etc/ssl/certs/ca-certificates.crt
	rm -f "$etc/sources.list"
	for item in sources.list sources.list.d auth.conf auth.conf.d keyrings preferences \
		preferences.d trusted.gpg trusted.gpg.d; do
		[[ ! -e /etc/apt/$item ]] || cp -a "/etc/apt/$item" "$etc/"
	done
	apt-config dump Acquire >"$etc/apt.conf.d/99machine"
	# Without these, https sources cannot be read before ca-certificates is installed.
	[[ ! -r /$certificates ]] || install -D -m 644 "/$certificates" "$1/$certificates"
}

# The base image from Debian's packages. The parts of this machine's configuration in it stay in the
# engine.
base_image_make() {
	local root=$ENGINE_DIR/base mirror http_proxy_set=
	! image_there "$BASE_IMAGE" || return 0
	! image_pull "$BASE_IMAGE" || return 0
	[[ $(id -u) -eq 0 ]] ||
		die "$BASE_IMAGE cannot be pulled, and only root can make it with debootstrap"
	packages_need debootstrap=debootstrap
	say "$BASE_IMAGE cannot be pulled: making it with debootstrap"
	# shellcheck disable=SC2016 # apt-get's own variable
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
		'Codename: bookworm' | head -n 1)
	eval "$(apt-config shell http_proxy_set Acquire::http::Proxy)"
	rm -rf "$root"
	http_proxy=${http_proxy_set:-${http_proxy:-}} debootstrap --variant=minbase bookworm \
		"$root" ${mirror:+"$mirror"} >"$ENGINE_DIR/debootstrap.log" 2>&1 ||
		die "debootstrap failed: see $ENGINE_DIR/debootstrap.log"
	apt_configure "$root"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* \
		"$root"/usr/share/{doc,man,info}/*
	tar -C "$root" --one-file-system -c . | docker import - "$BASE_IMAGE" >/dev/null
	rm -rf "$root"
}
