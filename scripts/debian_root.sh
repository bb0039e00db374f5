# shellcheck shell=bash
# A root folder with a release of Debian, made by debootstrap from the package sources of this
# machine. Sourced by scripts that define die().
#   DEBIAN_MIRROR   another mirror

# debian_mirror SUFFIX: the repository from which this machine, if it is a Debian, gets its release
# with SUFFIX, such as -security; or else the public one.
debian_mirror() {
	local found='' ID='' VERSION_CODENAME=''
	# shellcheck source=/dev/null
	. /etc/os-release
	if [[ $ID == debian ]]; then
		# shellcheck disable=SC2016 # apt-get's own variable
		found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
			"Codename: $VERSION_CODENAME$1" | head -n 1)
	fi
	[[ $1 == -security || -z ${DEBIAN_MIRROR:-} ]] || found=$DEBIAN_MIRROR
	echo "${found:-http://deb.debian.org/debian${1/-updates/}}"
}

# debian_apt_configure RELEASE ROOT: with the keys, passwords, proxy and certificates of this
# machine.
debian_apt_configure() {
	local etc=$2/etc/apt item suffix certificates=etc/ssl/certs/ca-certificates.crt
	for item in auth.conf auth.conf.d keyrings trusted.gpg trusted.gpg.d; do
		[[ ! -e /etc/apt/$item ]] || cp -a "/etc/apt/$item" "$etc/"
	done
	for suffix in '' -updates -security; do
		echo "deb $(debian_mirror "$suffix") $1$suffix main"
	done >"$etc/sources.list"
	apt-config dump Acquire >"$etc/apt.conf.d/99machine"
	# Without these, https sources cannot be read before ca-certificates is installed.
	[[ ! -r /$certificates ]] || install -D -m 644 "/$certificates" "$2/$certificates"
}

# debian_root_make RELEASE ROOT LOG
debian_root_make() {
	local http_proxy_set=
	eval "$(apt-config shell http_proxy_set Acquire::http::Proxy)"
	rm -rf "$2"
	PATH=$PATH:/usr/sbin:/sbin http_proxy=${http_proxy_set:-${http_proxy:-}} \
		debootstrap --variant=minbase "$1" "$2" "$(debian_mirror '')" >"$3" 2>&1 ||
		die "debootstrap failed: see $3"
	debian_apt_configure "$1" "$2"
	# No service starts when its package is installed.
	printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d"
	chmod 755 "$2/usr/sbin/policy-rc.d"
	rm -rf "$2"/var/cache/apt/archives/*.deb
}
