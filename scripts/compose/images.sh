# shellcheck shell=bash
# The images of the test: official ones where they can be pulled, else made from Debian's packages.
# Sourced by scripts/compose-test.sh, after engine.sh.

mapfile -t OFFICIAL_IMAGES < <(sed -n 's/^    image: \([a-z]*:.*\)/\1/p' docker-compose.yml)
readonly OFFICIAL_IMAGES
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
	for image in "${OFFICIAL_IMAGES[@]}"; do
		if ! image_there "$image" && ! image_pull "$image"; then
			echo debian
			return
		fi
	done
	echo official
}

# base_image_make RELEASE: debian:RELEASE-slim from Debian's packages, if it cannot be pulled. The
# parts of this machine's configuration in it stay in the engine.
base_image_make() {
	local root=$ENGINE_DIR/base image=debian:$1-slim
	! image_there "$image" || return 0
	! image_pull "$image" || return 0
	[[ $(id -u) -eq 0 ]] ||
		die "$image cannot be pulled, and only root can make it with debootstrap"
	packages_need debootstrap=debootstrap
	say "$image cannot be pulled: making it with debootstrap"
	debian_root_make "$1" "$root" "$ENGINE_DIR/debootstrap.log"
	rm -rf "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,info}/*
	tar -C "$root" --one-file-system -c . | docker import - "$image" >/dev/null
	rm -rf "$root"
}
