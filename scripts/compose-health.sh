#!/usr/bin/env bash
# Inside the image: compose-health.sh gateway|worker, exit status 0 when it is ready to work.
set -euo pipefail

# GET /readyz on this port: prints what is not connected.
ready_at() {
	local code answer
	exec 3<>"/dev/tcp/127.0.0.1/$1"
	printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
	answer=$(timeout 4 cat <&3)
	read -r _ code _ <<<"$answer"
	[[ $code == 200 ]] || {
		tail -n 1 <<<"$answer"
		return 1
	}
}

case ${1:-} in
gateway) ready_at 7480 ;;
worker) ready_at 7481 ;;
*)
	echo "usage: ${0##*/} gateway|worker" >&2
	exit 2
	;;
esac
