# shellcheck shell=bash
# couponctl setup --remove. Sourced by setup.sh.

unknown() {
	die "nothing was removed: $1 cannot say whether there are receives"
}

# Ends the process if anything but what setup itself has issued would be lost.
receives_refuse() {
	local own found
	own=$(record_get coupon) || own=0
	[[ $own =~ ^[0-9]+$ ]] || die "$RECORD has no number as the coupon: $own"
	if is_local postgresql; then
		found=$(postgres -d postgres \
			-c "SELECT 1 FROM pg_database WHERE datname = '$NAME'") ||
			unknown PostgreSQL
		[[ -z $found ]] || found=$(postgres -d "$NAME" <<-SQL
			SELECT to_regclass('user_coupon') IS NOT NULL AS has_tables \gset
			\if :has_tables
			SELECT (SELECT count(*) FROM user_coupon
					WHERE coupon_id <> $own OR user_id <> 'setup')
				+ (SELECT count(*) FROM receive_rejected
					WHERE coupon_id <> $own OR user_id <> 'setup');
			\endif
			SQL
		) || unknown PostgreSQL
		[[ ${found:-0} -eq 0 ]] || refused "PostgreSQL has $found receives"
	fi
	if is_local redis && [[ -n $(ls -A "$REDIS_DATA" 2>/dev/null) ]]; then
		found=$(redis_as default --scan --pattern 'coupon:{*}:users' &&
			redis_as default --scan --pattern 'coupon:{*}:outbox') ||
			unknown Redis
		found=$(grep -cvE "^(coupon:\{$own\}:.*)?\$" <<<"$found") || true
		[[ $found -eq 0 ]] || refused "Redis has receives"
	fi
	if is_local rabbitmq; then
		found=$(rabbitmqctl -s list_vhosts) || unknown RabbitMQ
		! grep -qx "$NAME" <<<"$found" ||
			found=$(rabbitmqctl -s list_queues -p "$NAME" name messages) ||
			unknown RabbitMQ
		found=$(awk '$1 ~ /^coupon\./ { n += $2 } END { print n + 0 }' <<<"$found")
		[[ $found -eq 0 ]] || refused "RabbitMQ has $found messages"
	fi
}

refused() {
	die "nothing was removed: $1 that are not of couponctl setup itself. If they are to go," \
		"keep what is needed of them (couponctl export, pg_dump), and remove by hand the" \
		"database (dropdb $NAME), the vhost (rabbitmqctl delete_vhost $NAME) and what" \
		"Redis has (redis-cli FLUSHALL)"
}

plan_remove() {
	record_has stores || {
		echo "couponctl setup has made nothing on this machine, and nothing was changed."
		return "$NOTHING"
	}
	needs_systemd
	choices_read
	record_has removing || receives_refuse
	echo "couponctl setup --remove will remove from this machine:"
	echo "  - the programs: stop them, and start them no more"
	! is_local rabbitmq || echo "  - RabbitMQ: the vhost $NAME and the users of the programs"
	! is_local redis || echo "  - Redis: $REDIS_UNIT with its data in $REDIS_DATA"
	! is_local postgresql ||
		echo "  - PostgreSQL: the database $NAME, with all campaigns, and its roles"
	echo "  - in $ETC: the settings and passwords that setup has made"
	is_local redis && is_local rabbitmq && is_local postgresql ||
		echo "Stores whose URLs were given keep what they have."
}

remove() {
	local file name value text program
	lock_take
	needs_systemd
	record_has stores || return 0
	choices_read
	if ! record_has removing; then
		receives_refuse
		systemctl stop "${UNITS[@]}"
		# A last client may have got one.
		(receives_refuse) || {
			systemctl start "${UNITS[@]}"
			exit 1
		}
		record_set removing
	fi
	trap ended EXIT
	STEP=removing
	systemctl disable --quiet --now "${UNITS[@]}"
	say "the programs are stopped"

	if is_local rabbitmq; then
		! rabbitmqctl -s list_vhosts | grep -qx "$NAME" ||
			rabbitmqctl -q delete_vhost "$NAME"
		for program in $(rabbitmqctl -s list_users | cut -f 1 |
			grep -xE 'couponmq_(gateway|worker|operator)'); do
			rabbitmqctl -q delete_user "$program"
		done
		say "RabbitMQ: the vhost and its users are removed"
	fi
	if is_local redis; then
		systemctl disable --quiet --now "$REDIS_UNIT"
		rm -rf "$REDIS_DATA"
		rm -f "$REDIS_ACL" "$REDIS_CONF" "$REDIS_LOG"
		say "Redis: $REDIS_UNIT is removed"
	fi
	if is_local postgresql; then
		postgres -d postgres <<-SQL
		DROP DATABASE IF EXISTS $NAME WITH (FORCE);
		SQL
		# The owner last: it has granted the others.
		for program in app gateway worker operator owner; do
			postgres -d postgres <<-SQL || say "the role couponmq_$program stays"
			DROP ROLE IF EXISTS couponmq_$program;
			SQL
		done
		say "PostgreSQL: the database and its roles are removed"
	fi

	# Settings first: they name the files.
	for file in couponmq gateway worker worker-1 worker-2 admin couponctl; do
		[[ -e $ETC/$file.conf ]] || continue
		text=$(file_text "$ETC/$file.conf")$'\n'
		while read -r _ name value; do
			text=$(grep -vxF "$name=$value" <<<"$text" || true)
		done < <(settings | grep "^$file ")
		if [[ -z ${text//[[:space:]]/} ]]; then
			rm -f "$ETC/$file.conf"
		else
			settings_put "$file" "$text"$'\n'
		fi
	done
	while read -r name _; do
		rm -f "$SECRETS/$name"
	done < <(secrets)
	if is_local postgresql; then
		rm -f "$SECRETS/code-keys"
	else
		rm -f "$SECRETS/owner-postgresql-url"
	fi
	rm -f "$SECRETS"/*.setup "$ETC"/*.setup
	[[ ! -d $SECRETS ]] || rmdir --ignore-fail-on-non-empty "$SECRETS"
	rm -f "$RECORD"
	STEP=''
	say "everything that setup has made is removed"
}
