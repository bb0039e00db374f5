#!/usr/bin/env bash
# Sets this machine up as a service, for couponctl setup:
#   setup.sh plan           prints what apply will do; exit status 3: nothing
#   setup.sh apply          does it; 7: stopped, and the next run goes on
#   setup.sh plan-remove    prints what remove will do, or refuses
#   setup.sh remove
# COUPONCTL is the path of couponctl. SETUP_REDIS_URL, SETUP_AMQP_URL, SETUP_DATABASE_URL and
# SETUP_DATABASE_ADMIN_URL name stores that there are; a store without a URL is Debian's service on
# this machine.
#
# Each step finds out whether it is done, from files and stores, before it does anything. So a
# second run changes nothing, and a run that was broken off goes on wherever it was. A file appears
# whole, by renaming. A password is in its file before a store gets it.
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8
readonly ADMIN_URL=${SETUP_DATABASE_ADMIN_URL:-}
declare -A MODE=() URL=( # by store: local or given, and the URL that was given
	[redis]=${SETUP_REDIS_URL:-}
	[rabbitmq]=${SETUP_AMQP_URL:-}
	[postgresql]=${SETUP_DATABASE_URL:-}
)
# What the caller has set for itself is not for the programs that this script runs.
unset COUPON_CONFIG_DIR "${!PG@}" "${!SETUP_@}" "${!REDIS_@}" "${!AMQP_@}" "${!DATABASE_@}"
cd /

readonly ETC=/etc/couponmq SECRETS=/etc/couponmq/secrets
readonly RECORD=$ETC/setup.record # what was chosen, and what is done only once
readonly PROGRAMS=(gateway worker operator)
readonly STEPS=(account choice passwords redis rabbitmq postgresql tables code_keys settings
	programs key coupon)
readonly UNITS=(coupon-gateway.service coupon-worker@1.service coupon-worker@2.service
	coupon-admin.service couponmq.target)
readonly REDIS_UNIT=redis-server@couponmq.service REDIS_DATA=/var/lib/redis/couponmq
readonly REDIS_CONF=/etc/redis/redis-couponmq.conf REDIS_ACL=/etc/redis/couponmq.acl
readonly REDIS_LOG=/var/log/redis/redis-server-couponmq.log
readonly NAME=couponmq # of the database and of the vhost
readonly WAIT_S=120
readonly NOTHING=3 STOPPED=7
FOLDER=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
readonly FOLDER DATA=$FOLDER/.. # of redis-users.conf and rabbitmq.json
STEP='' # that is being done

say() {
	echo "setup: $*"
}

die() {
	echo "setup: $*" >&2
	exit 1
}

ended() {
	local status=$?
	[[ -n $STEP && $status -ne 0 ]] || return 0
	echo "setup: stopped at: $STEP. What is done stays; run the same again, and it goes on" >&2
	exit "$STOPPED"
}

# quietly WORD..: what it prints is shown only if it fails.
quietly() {
	local printed
	printed=$("$@" 2>&1) || {
		echo "$printed" >&2
		return 1
	}
}

# random_hex BYTES
random_hex() {
	od -An "-N$1" -tx1 /dev/urandom | tr -d ' \n'
}

# file_put PATH MODE USER:GROUP TEXT
file_put() {
	local new=$1.setup
	rm -f "$new"
	(umask 077 && printf %s "$4" >"$new")
	chown "$3" "$new"
	chmod "$2" "$new"
	sync "$new"
	mv -f "$new" "$1"
}

file_text() {
	[[ -e $1 ]] && cat "$1"
}

# ---- the record

# record_get NAME: prints what follows the name.
record_get() {
	local name rest
	[[ -e $RECORD ]] || return 1
	while read -r name rest; do
		[[ $name != "$1" ]] || { echo "$rest" && return; }
	done <"$RECORD"
	return 1
}

record_has() {
	record_get "$1" >/dev/null
}

# record_set NAME TEXT
record_set() {
	local text
	text=$(file_text "$RECORD" | grep -vE "^$1( |\$)" ||
		echo '# What couponctl setup has made on this machine, for its next run.')
	file_put "$RECORD" 600 root:root "$text"$'\n'"$1${2:+ $2}"$'\n'
}

# shellcheck source=deploy/setup/choice.sh
. "$FOLDER/choice.sh"
# shellcheck source=deploy/setup/stores.sh
. "$FOLDER/stores.sh"
# shellcheck source=deploy/setup/programs.sh
. "$FOLDER/programs.sh"
# shellcheck source=deploy/setup/remove.sh
. "$FOLDER/remove.sh"

# ---- the whole

needs_systemd() {
	[[ -d /run/systemd/system ]] ||
		die "this machine does not run systemd: start the programs by hand, as the manual" \
			"says"
}

lock_take() {
	exec 9>/run/couponmq-setup.lock
	flock -w 60 9 || die "another couponctl setup runs on this machine"
}

console_say() {
	local scheme=http
	[[ -z $(setting_of admin COUPON_TLS_CERT '') ]] || scheme=https
	echo "Console: $scheme://$(setting_of admin COUPON_ADMIN_LISTEN 127.0.0.1:7490)/"
}

plan() {
	local step n=0
	! record_has removing ||
		die "couponctl setup --remove was broken off: run it again first"
	needs_systemd
	choices_read
	for step in "${STEPS[@]}"; do
		! "${step}_is_done" || continue
		if [[ $n -eq 0 ]]; then
			echo "couponctl setup will make on this machine what is not there yet:"
			n=1
		fi
		"${step}_what" | sed 's/^/  - /'
	done
	[[ $n -eq 0 ]] || return 0
	echo "Everything is set up, and nothing was changed."
	console_say
	return "$NOTHING"
}

apply() {
	local step
	lock_take
	needs_systemd
	choices_read
	trap ended EXIT
	for step in "${STEPS[@]}"; do
		! "${step}_is_done" || continue
		STEP=$("${step}_what")
		[[ -z $STEP ]] || say "$STEP"
		STEP=${STEP:-$step}
		"${step}_do"
		"${step}_is_done" || die "this is done, but has no effect"
	done
	STEP=''
	console_say
}

case ${1:-} in
plan | apply | remove) "$1" ;;
plan-remove) plan_remove ;;
*)
	echo "usage: ${0##*/} plan|apply|plan-remove|remove" >&2
	exit 2
	;;
esac
