# shellcheck shell=bash
# couponctl setup --remove. Sourced by setup.sh.

# unknown STORE [WHY]
unknown() {
	die "nothing was removed: $1 could not be asked whether it has receives${2:+: $2}"
}

# Ends the process if anything but what setup itself has issued would be lost.
receives_refuse() {
	local own found
	own=$(record_get coupon) || own=0
	[[ $own =~ ^[0-9]+$ ]] || die "$RECORD has no number as the coupon: $own"
	if is_local postgresql; then
		found=$(postgresql_own) || unknown PostgreSQL
		[[ $found != *database* ]] || found=$(postgres -d "$NAME" <<-SQL
			SELECT to_regclass('user_coupon') IS NOT NULL AS has_tables \gset
			\if :has_tables
			SELECT (SELECT count(*) FROM user_coupon
					WHERE coupon_id <> $own OR user_id <> 'setup')
				+ (WITH ended AS (
					SELECT coupon_id, batch, idx, user_id FROM receive_rejected
					UNION
					SELECT coupon_id, batch, idx, user_id FROM coupon_void)
					SELECT count(*) FROM ended
					WHERE coupon_id <> $own OR user_id <> 'setup'),
				(SELECT count(*) FROM code_set);
			\endif
			SQL
		) || unknown PostgreSQL
		[[ $found != *\|* || $found == 0\|* ]] ||
			refused "PostgreSQL has ${found%|*} receives"
		[[ $found != *\|* || $found == *\|0 ]] ||
			refused "PostgreSQL has ${found#*|} sets of exchange codes"
	fi
	if is_local redis && redis_is_own && [[ -n $(ls -A "$REDIS_DATA" 2>/dev/null) ]]; then
		found=$(redis_as default --scan --pattern 'coupon:{*}:users' &&
			redis_as default --scan --pattern 'coupon:{*}:outbox') ||
			unknown Redis
		found=$(grep -cvE "^(coupon:\{$own\}:.*)?\$" <<<"$found") || true
		[[ $found -eq 0 ]] || refused "Redis has receives"
	fi
	if is_local rabbitmq; then
		rabbitmq_look || unknown RabbitMQ "$WHY"
		found=''
		! rabbitmq_vhost_is_own ||
			found=$(rabbitmqctl -s list_queues -p "$NAME" name messages) ||
			unknown RabbitMQ
		found=$(awk '$1 ~ /^coupon\./ { n += $2 } END { print n + 0 }' <<<"$found")
		[[ $found -eq 0 ]] || refused "RabbitMQ has $found messages"
	fi
}

refused() {
	die "nothing was removed: $1 that couponctl setup has not made itself. To remove them" \
		"anyway, first save what you need (couponctl export, pg_dump). Then stop the" \
		"programs and Redis (systemctl stop couponmq.target $REDIS_UNIT), remove the" \
		"database (as postgres: dropdb --force $NAME), the vhost (rabbitmqctl" \
		"delete_vhost $NAME) and the data of Redis (rm -r $REDIS_DATA), and run couponctl" \
		"setup --remove again"
}

plan_remove() {
	local own
	record_has stores || {
		echo "couponctl setup has made nothing on this machine, and nothing was changed."
		return "$NOTHING"
	}
	needs_systemd
	choices_read
	record_has removing || receives_refuse
	echo "couponctl setup --remove will remove from this machine:"
	echo "  - the programs: they are stopped, and no longer started at boot"
	! is_local rabbitmq || ! rabbitmq_users_are_own ||
		echo "  - RabbitMQ: the vhost $NAME and the users of the programs"
	! is_local redis || ! redis_is_own ||
		echo "  - Redis: $REDIS_UNIT with its data in $REDIS_DATA"
	own=''
	! is_local postgresql || own=$(postgresql_own)
	[[ $own != *database* ]] ||
		echo "  - PostgreSQL: the database $NAME, with all campaigns"
	[[ $own != *roles* ]] ||
		echo "  - PostgreSQL: the roles of couponmq; one that another database uses only" \
			"loses its login"
	echo "  - in $ETC: the settings and passwords that setup has made, but not the key for" \
		"exchange codes"
	is_local redis && is_local rabbitmq && is_local postgresql ||
		echo "Stores whose URLs were given keep what they have."
}

# The owner goes last: it has granted the others. A role that another database uses stays, without
# the login that setup has given it.
roles_remove() {
	local role roles
	roles=$(postgres -d postgres <<-SQL
		SELECT rolname FROM pg_roles
		WHERE rolname ~ '^couponmq_(app|gateway|worker|operator|owner)\$'
		ORDER BY rolname = 'couponmq_owner', rolname
	SQL
	)
	for role in $roles; do
		[[ $role == couponmq_app ]] ||
			postgres -d postgres -c "ALTER ROLE $role NOLOGIN PASSWORD NULL"
		if postgres -d postgres -c "DROP ROLE $role"; then
			say "PostgreSQL: the role $role is removed"
		else
			say "PostgreSQL: the role $role stays, without a login"
		fi
	done
}

remove() {
	local file name value text program own
	lock_take
	needs_systemd
	record_has stores || return 0
	choices_read
	if record_has removing; then
		! is_local rabbitmq || rabbitmq_look || die "RabbitMQ does not answer: $WHY"
	else
		# Until they have stopped a client may get a receive.
		trap 'systemctl start "${UNITS[@]}"' EXIT
		systemctl stop "${UNITS[@]}"
		receives_refuse
		record_set removing
	fi
	trap ended EXIT
	STEP=removing
	systemctl disable --quiet --now "${UNITS[@]}"
	say "the programs are stopped"

	if is_local rabbitmq; then
		rm -f "$RABBITMQ_FILE" # setup may have been killed beside it
		! rabbitmq_users_are_own || for program in $RABBITMQ_USERS; do
			rabbitmqctl -q delete_user "$program"
			say "RabbitMQ: the user $program is removed"
		done
		if rabbitmq_vhost_is_own; then
			rabbitmqctl -q delete_vhost "$NAME"
			say "RabbitMQ: the vhost $NAME is removed"
		fi
	fi
	if is_local redis && redis_is_own; then
		systemctl disable --quiet --now "$REDIS_UNIT"
		rm -rf "$REDIS_DATA"
		rm -f "$REDIS_ACL" "$REDIS_LOG"
		rm -f "$REDIS_CONF"
		say "Redis: $REDIS_UNIT and its data are removed"
	fi
	if is_local postgresql; then
		own=$(postgresql_own)
		if [[ $own == *database* ]]; then
			postgres -d postgres -c "DROP DATABASE $NAME WITH (FORCE)"
			say "PostgreSQL: the database $NAME is removed"
		fi
		[[ $own != *roles* ]] || roles_remove
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
	is_local postgresql || rm -f "$SECRETS/owner-postgresql-url"
	rm -f "$ETC"/*.setup
	[[ ! -d $SECRETS ]] || rmdir --ignore-fail-on-non-empty "$SECRETS"
	[[ ! -e $SECRETS/code-keys ]] ||
		say "$SECRETS/code-keys stays: exchange codes of a backup cannot be read without it"
	rm -f "$RECORD"
	STEP=''
	say "the settings and passwords that setup has made are removed"
}
