#!/usr/bin/env bash
# Sets this machine up as a service, for couponctl setup:
#   setup.sh plan           prints what apply will do; exit status 3: nothing
#   setup.sh apply          does it; 7: stopped, and the next run goes on
#   setup.sh fits           for an upgrade: prints what stores, settings and secrets lack for this
#                           version; exit status 0: nothing
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
exec </dev/null # rabbitmqctl reads what is typed for the question

readonly ETC=/etc/couponmq SECRETS=/etc/couponmq/secrets
readonly RECORD=$ETC/setup.record # what was chosen, and what is done only once
readonly PROGRAMS=(gateway worker operator)
readonly NEEDED_STEPS=(account choice passwords redis rabbitmq postgresql tables code_keys settings)
readonly STEPS=("${NEEDED_STEPS[@]}" programs key coupon)
readonly PROGRAM_UNITS=(coupon-gateway.service coupon-worker@1.service coupon-worker@2.service
	coupon-admin.service)
readonly UNITS=("${PROGRAM_UNITS[@]}" couponmq.target)
readonly REDIS_UNIT=redis-server@couponmq.service REDIS_DATA=/var/lib/redis/couponmq
readonly REDIS_CONF=/etc/redis/redis-couponmq.conf REDIS_ACL=/etc/redis/couponmq.acl
readonly REDIS_LOG=/var/log/redis/redis-server-couponmq.log
readonly NAME=couponmq # of the database and of the vhost
readonly MARK='made by couponctl setup' # of what may be changed and removed
readonly WAIT_S=120 KEEPER_WAIT_S=15
readonly NOTHING=3 STOPPED=7
FOLDER=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
readonly FOLDER DATA=$FOLDER/.. # of redis-users.conf and rabbitmq.json
STEP='' # that is being done
UNDONE=()

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
	echo "setup: stopped at this step: $STEP. Run the same command again to go on from here" >&2
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

# file_put PATH MODE USER:GROUP TEXT. The temporary file is in a folder of root alone: the owner of
# another folder could put a link in its place.
file_put() {
	local new=$ETC/${1##*/}.setup
	rm -f "$new"
	(umask 077 && printf %s "$4" >"$new")
	chown "$3" "$new"
	chmod "$2" "$new"
	sync "$new"
	mv -fT "$new" "$1"
	sync "${1%/*}"
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
		die "this machine does not run systemd: start the programs by hand, as" \
			"docs/guides/deploy.md says under \"Processes\""
}

lock_take() {
	exec 9>/run/couponmq-setup.lock
	flock -w 60 9 || die "another couponctl setup is running on this machine"
}

console_say() {
	local scheme=http
	[[ -z $(setting_of admin COUPON_TLS_CERT '') ]] || scheme=https
	echo "Console: $scheme://$(setting_of admin COUPON_ADMIN_LISTEN 127.0.0.1:7490)/"
}

# Shows what couponctl doctor finds wrong, and its warnings, with what mends them. Workers that were
# started just now need a moment to elect the keeper; nothing else is waited for.
findings_say() {
	local told deadline=$((SECONDS + KEEPER_WAIT_S))
	until told=$(ctl doctor 2>&1) || ! grep -q '^wrong  *program\.keeper ' <<<"$told" ||
		[[ $SECONDS -ge $deadline ]]; do
		sleep 1
	done
	say "couponctl doctor: $(tail -n 1 <<<"$told")"
	awk '/^[a-z]/ { is_shown = /^(warning|wrong) / } /^$/ { is_shown = 0 } is_shown' <<<"$told"
}

# Sets UNDONE: of the STEPS those that are to be done.
undone_find() {
	local step
	! record_has removing ||
		die "couponctl setup --remove has begun and not finished: run it again first"
	needs_systemd
	choices_read
	UNDONE=()
	for step in "$@"; do
		"${step}_is_done" || UNDONE+=("$step")
	done
}

undone_print() {
	local step
	for step in "${UNDONE[@]}"; do
		"${step}_what" | sed 's/^/  - /'
	done
}

plan() {
	local step
	undone_find "${STEPS[@]}"
	if [[ ${#UNDONE[@]} -eq 0 ]]; then
		echo "Everything is set up, and nothing was changed."
		console_say
		return "$NOTHING"
	fi
	for step in "${UNDONE[@]}"; do
		others_refuse "$step"
	done
	echo "couponctl setup will make what is missing on this machine:"
	undone_print
}

# The programs are not asked: one that an operator has stopped must not keep the others back.
fits() {
	undone_find "${NEEDED_STEPS[@]}"
	[[ ${#UNDONE[@]} -gt 0 ]] || return 0
	echo "This version of couponmq needs the following, which is missing or did not answer:"
	undone_print
	return 1
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
		"${step}_is_done" || die "the step has no effect: what it makes is still missing"
	done
	STEP=''
	findings_say
	console_say
}

case ${1:-} in
plan | apply | fits | remove) "$1" ;;
plan-remove) plan_remove ;;
*)
	echo "usage: ${0##*/} plan|apply|fits|plan-remove|remove" >&2
	exit 2
	;;
esac
