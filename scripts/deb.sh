#!/usr/bin/env bash
# Builds the Debian packages from a copy of this tree, with the files as they are: deb.sh
#   DEB_DIR=build/deb   where they are left; emptied before
#
# Their version is that of debian/changelog with the time and the name of the commit, so that a
# later commit is an upgrade. All times in the packages are that of the commit: two builds of one
# commit are the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

OUT=$(realpath -m -- "${DEB_DIR:-build/deb}")
readonly OUT
readonly TREE=$OUT/tree

# An entry of the changelog with this version and time (seconds).
entry() {
	local head
	head=$(dpkg-parsechangelog -S Source)
	cat <<END
$head ($1) unstable; urgency=medium

  * Built from the source of this commit.

 -- $(dpkg-parsechangelog -S Maintainer)  $(LC_ALL=C date -u -R -d "@$2")

END
}

epoch=$(dpkg-parsechangelog -S Timestamp)
version=$(dpkg-parsechangelog -S Version)
if commit=$(git rev-parse --short HEAD 2>/dev/null); then
	epoch=$(git log -1 --format=%ct)
	version+=+$(date -u -d "@$epoch" +%Y%m%d%H%M%S).$commit
	[[ -z $(git status --porcelain) ]] || version+=+changed
fi

rm -rf "$OUT"
mkdir -p "$TREE"
git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do
		[[ ! -e $file ]] || printf '%s\0' "$file"
	done | tar -c --null --mtime="@$epoch" -T - | tar -x --no-same-owner -C "$TREE"
if [[ $version == *+* ]]; then
	entry "$version" "$epoch" | cat - debian/changelog >"$TREE/debian/changelog"
fi

# The settings of the make that runs this are not for the one in the packages.
unset BUILD_DIR DESTDIR FAULTS LIBDIR MAKEFLAGS MAKELEVEL MAKEOVERRIDES MFLAGS PREFIX SAN UNITDIR
unset SOURCE_DATE_EPOCH WITH_ZOOKEEPER
log=$OUT/build.log
if ! (cd "$TREE" && dpkg-buildpackage -us -uc -b) >"$log" 2>&1; then
	tail -n 30 "$log" >&2
	echo "deb: dpkg-buildpackage failed: see $log" >&2
	exit 1
fi
rm -rf "$TREE"
printf '%s\n' "$OUT"/*.deb
