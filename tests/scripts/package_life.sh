#!/bin/sh
# Installs, upgrades, removes and purges packages in a copy of this system, and prints what remains
# and what systemd is told to start and stop: package_life.sh FOLDER PACKAGE..
# It is to run in a mount namespace of its own. The copy is / with what is written over it, which is
# in FOLDER.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

if [ "$1" != inside ]; then
	folder=$1
	shift
	mount -t tmpfs tmpfs "$folder"
	mkdir "$folder/upper" "$folder/work" "$folder/root"
	mount -t overlay overlay \
		-o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
	mount --bind /proc "$folder/root/proc"
	mount --bind /dev "$folder/root/dev"
	mkdir "$folder/root/packages"
	cp "$0" "$@" "$folder/root/packages/"
	exec chroot "$folder/root" sh /packages/package_life.sh inside
fi

settings() {
	find /etc/couponmq -type f -printf "$1 has %f\n" | sort
}

programs() {
	for name in /usr/bin/couponctl /usr/sbin/coupon-gateway; do
		[ ! -e "$name" ] || echo "$1 has $name"
	done
}

told() {
	grep -E 'start|stop' /told | sed "s/^/$1: /" || true
	: >/told
}

# Links of units that are enabled or masked.
links() {
	find /etc/systemd/system -name 'coupon*' -printf "$1 has %P\n" | sort
}

install() {
	dpkg -i /packages/*.deb >/dev/null
}

rm -rf /etc/couponmq /usr/sbin/policy-rc.d
mv /usr/bin/systemctl /systemctl
rm -f /var/lib/man-db/auto-update # its index of manual pages takes long
mkdir -p /run/systemd/system
: >/told
# shellcheck disable=SC2016 # of that script
printf '#!/bin/sh\necho "$*" >>/told\n' >/usr/bin/systemctl
chmod 755 /usr/bin/systemctl

install
told installed
links installed
SYSTEMD_OFFLINE=1 /systemctl --quiet enable couponmq.target coupon-gateway coupon-gateway.socket \
	coupon-worker@1 coupon-worker@eu coupon-admin
links enabled
stat -c '%n %a %U:%G' /etc/couponmq /etc/couponmq/secrets
getent passwd couponmq | cut -d : -f 1,6,7
for name in couponmq.conf worker-2.conf of-the-admin secrets/password secrets/code-keys; do
	echo x >"/etc/couponmq/$name"
done

install
told upgraded
links upgraded
settings upgraded

dpkg -r couponmq-server couponmq-client libcouponlock-dev libcouponlock0 >/dev/null
told removed
links removed
settings removed
programs removed

install
settings reinstalled
links reinstalled
programs reinstalled

dpkg -P couponmq-server couponmq-client libcouponlock-dev libcouponlock0 >/dev/null
settings purged
links purged
programs purged

rm -r /etc/couponmq
install
dpkg -P couponmq-server >/dev/null
[ ! -e /etc/couponmq ]
