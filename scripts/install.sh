#!/usr/bin/env bash
# Installs what `make build`, `library` and `man` have made: install.sh install|uninstall
#   DESTDIR=                    where the root of the file system is
#   PREFIX=/usr/local           with the folders bin, sbin, lib, include and share
#   LIBDIR=PREFIX/lib           of the library of locks
#   UNITDIR=PREFIX/lib/systemd/system
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

readonly DESTDIR=${DESTDIR:-} PREFIX=${PREFIX:-/usr/local} BUILD_DIR=${BUILD_DIR:-build}
readonly LIBDIR=${LIBDIR:-$PREFIX/lib} UNITDIR=${UNITDIR:-$PREFIX/lib/systemd/system}
readonly SHARE=$PREFIX/share
readonly MADE=$BUILD_DIR/install # what names the folders

shopt -s nullglob

# Prints MODE SOURCE TARGET of each file.
files() {
	local file base
	for file in couponctl coupon-rush; do
		echo "755 $BUILD_DIR/$file $PREFIX/bin/$file"
	done
	for file in coupon-gateway coupon-worker coupon-admin; do
		echo "755 $BUILD_DIR/$file $PREFIX/sbin/$file"
	done

	echo "644 $BUILD_DIR/libcouponlock.so.0 $LIBDIR/libcouponlock.so.0"
	echo "644 $MADE/couponlock.pc $LIBDIR/pkgconfig/couponlock.pc"
	echo "644 lock/lock.h $PREFIX/include/couponlock.h"

	for file in lock/couponlock.3 "$BUILD_DIR"/man/*.[1-8]; do
		echo "644 $file $SHARE/man/man${file##*.}/${file##*/}"
	done
	for file in "$BUILD_DIR"/completion/*; do
		echo "644 $file $SHARE/bash-completion/completions/${file##*/}"
	done

	for file in deploy/systemd/*.{service,socket,target}; do
		echo "644 $MADE/${file##*/} $UNITDIR/${file##*/}"
	done
	# What couponctl setup runs.
	echo "755 deploy/setup/setup.sh $PREFIX/lib/couponmq/setup/setup.sh"
	for file in deploy/setup/{choice,stores,programs,remove}.sh \
		deploy/{redis-users.conf,rabbitmq.json,fill.awk}; do
		echo "644 $file $PREFIX/lib/couponmq/${file#deploy/}"
	done

	for file in deploy/systemd/*.{sysusers,tmpfiles}; do
		base=${file##*/}
		echo "644 $file $PREFIX/lib/${base##*.}.d/${base%.*}.conf"
	done
}

# Writes the files that name the folders.
make_files() {
	local file version
	version=$(sed -n 's/^#define PROGRAM_VERSION "\(.*\)"$/\1/p' common/program/program.h)
	mkdir -p "$MADE"
	sed "s|@PREFIX@|$PREFIX|; s|@LIBDIR@|$LIBDIR|; s|@VERSION@|$version|" \
		lock/couponlock.pc.in >"$MADE/couponlock.pc"
	for file in deploy/systemd/*.{service,socket,target}; do
		sed "s|/usr/\(s\{0,1\}bin\)/coupon|$PREFIX/\1/coupon|g" "$file" \
			>"$MADE/${file##*/}"
	done
}

install_all() {
	local mode source target
	make_files
	while read -r mode source target; do
		install -D -m "$mode" "$source" "$DESTDIR$target"
	done < <(files)
	ln -sf libcouponlock.so.0 "$DESTDIR$LIBDIR/libcouponlock.so"
	install -d "$DESTDIR/etc/couponmq"
	# So that programs find the library.
	[[ -n $DESTDIR || $(id -u) -ne 0 ]] || ldconfig
}

# The settings in /etc/couponmq stay.
uninstall_all() {
	local mode source target
	while read -r mode source target; do
		rm -f "$DESTDIR$target"
	done < <(files)
	rm -f "$DESTDIR$LIBDIR/libcouponlock.so"
	[[ ! -d $DESTDIR/etc/couponmq ]] ||
		rmdir --ignore-fail-on-non-empty "$DESTDIR/etc/couponmq"
	[[ -n $DESTDIR || $(id -u) -ne 0 ]] || ldconfig
}

case ${1:-} in
install | uninstall) "${1}_all" ;;
*)
	echo "usage: scripts/install.sh install|uninstall" >&2
	exit 2
	;;
esac
