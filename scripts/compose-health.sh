#!/usr/bin/env bash
# Inside the image: compose-health.sh gateway|worker|admin, exit status 0 when it is ready to work.
set -euo pipefail

# exchange PORT: sends its input and prints the answer. Whose certificate it is does not matter on
# loopback.
exchange() {
	if [[ -n ${COUPON_TLS_CERT:-} ]]; then
		timeout 4 openssl s_client -quiet -connect "127.0.0.1:$1" 2>/dev/null
	else
		exec 3<>"/dev/tcp/127.0.0.1/$1"
		cat >&3
		timeout 4 cat <&3
	fi
}

# GET /readyz on this port: prints what is not connected.
ready_at() {
	local code answer
	answer=$(printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' |
		exchange "$1") || [[ -n $answer ]] || return 1
	read -r _ code _ <<<"$answer"
	[[ $code == 200 ]] || {
		tail -n 1 <<<"$answer"
		return 1
	}
}

case ${1:-} in
gateway) ready_at 7480 ;;
worker) ready_at 7481 ;;
admin) ready_at 7490 ;;
*)
	echo "usage: ${0##*/} gateway|worker|admin" >&2
	exit 2
	;;
esac
