#!/usr/bin/env bash
# Inside the image: compose-health.sh gateway|worker, exit status 0 when it is ready to work.
set -euo pipefail

# Ready: Redis, RabbitMQ and PostgreSQL are connected. What is not is told.
gateway_health() {
	local code answer
	exec 3<>/dev/tcp/127.0.0.1/7480
	printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
	answer=$(timeout 4 cat <&3)
	read -r _ code _ <<<"$answer"
	[[ $code == 200 ]] || {
		tail -n 1 <<<"$answer"
		return 1
	}
}

# A worker listens nowhere: this looks for its connections, to the ports that docker-compose.yml names.
connected_to() {
	awk -v port="$(printf ':%04X$' "$1")" '$3 ~ port && $4 == "01" { found = 1 } END { exit !found }' \
		/proc/net/tcp /proc/net/tcp6
}

worker_health() {
	connected_to 5672 || { echo 'not connected to RabbitMQ' && return 1; }
	connected_to 5432 || { echo 'not connected to PostgreSQL' && return 1; }
}

case ${1:-} in
gateway | worker) "$1_health" ;;
*)
	echo "usage: ${0##*/} gateway|worker" >&2
	exit 2
	;;
esac
