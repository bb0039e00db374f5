#!/bin/sh
# As the official image: the first user from RABBITMQ_DEFAULT_USER and RABBITMQ_DEFAULT_PASS, the
# log on standard output.
set -eu
umask 077
cat >"$HOME/couponmq.conf" <<CONF
default_user = $RABBITMQ_DEFAULT_USER
default_pass = $RABBITMQ_DEFAULT_PASS
log.console = true
log.console.use_colors = off
log.file = false
CONF
export RABBITMQ_CONFIG_FILE="$HOME/couponmq"
exec rabbitmq-server
