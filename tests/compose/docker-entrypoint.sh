#!/bin/sh
# As that of the official image: the log on standard output.
set -eu
cat >"$HOME/couponmq.conf" <<CONF
log.console = true
log.console.use_colors = off
log.file = false
CONF
export RABBITMQ_CONFIG_FILE="$HOME/couponmq"
exec "$@"
