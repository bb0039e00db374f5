# shellcheck shell=bash
# The three stores on this machine: Redis, RabbitMQ, PostgreSQL and its tables. Sourced by setup.sh.
#
# What has a name that setup uses, but not its mark, is somebody else's: setup would give it another
# password, and --remove would remove it. So setup refuses it, and --remove leaves it alone. In a
# store the mark is made first and removed last.

# others_die WHAT SETTINGS
others_die() {
	die "$1 that couponctl setup has not made, and has not changed. Remove it, or name" \
		"another store by its URL ($2)"
}

# others_refuse STEP: before anything is made. A store that does not run is asked when it does.
others_refuse() {
	case $1 in
	redis) redis_others_refuse ;;
	rabbitmq) ! rabbitmq_look || rabbitmq_others_refuse ;;
	postgresql) ! postgresql_answers || postgresql_others_refuse ;;
	esac
}

WHY='' # a store that was asked and does not answer has said

# wait_for STORE COMMAND..: the command sets WHY.
wait_for() {
	local store=$1 deadline=$((SECONDS + WAIT_S))
	shift
	until "$@"; do
		[[ $SECONDS -lt $deadline ]] || die "$store did not answer within $WAIT_S s: $WHY"
		sleep 0.2
	done
}

# ---- Redis: an instance of its own, because Debian's has no folder for additions

# Hashes instead of passwords; for an aclfile, which takes no comments.
redis_acl() {
	local program hash text
	text=$(grep '^user ' "$DATA/redis-users.conf")
	text+=$'\n''user default on >@DEFAULT_PASSWORD@ ~* &* +@all'
	for program in default "${PROGRAMS[@]}"; do
		hash=$(password redis "$program" | tr -d '\n' | sha256sum)
		text=${text/">@${program^^}_PASSWORD@"/"#${hash%% *}"}
	done
	echo "$text"
}

redis_conf() {
	cat <<-TEXT
	# The Redis of couponmq, $MARK. Changes stay.
	bind 127.0.0.1 -::1
	port $PORT_REDIS
	daemonize no
	dir $REDIS_DATA
	pidfile /run/redis-couponmq/redis-server.pid
	logfile $REDIS_LOG
	aclfile $REDIS_ACL

	# accepted means on disk: docs/guides/deploy.md, "What the services must be set to".
	appendonly yes
	appendfsync always
	auto-aof-rewrite-min-size 1gb
	save ""
	maxmemory-policy noeviction
	TEXT
}

# redis_as PROGRAM WORD..
redis_as() {
	local program=$1 user=couponmq_$1
	[[ $program != default ]] || user=default
	shift
	REDISCLI_AUTH=$(password redis "$program") redis-cli --no-auth-warning --user "$user" \
		-h 127.0.0.1 -p "$PORT_REDIS" "$@"
}

# Redis may load its file.
redis_answers() {
	WHY=$(redis_as default PING 2>&1) || true
	[[ $WHY == PONG ]]
}

# The mark is in redis-couponmq.conf, or, when that was removed by hand, the record is the mark.
redis_is_own() {
	if [[ -e $REDIS_CONF ]]; then
		[[ $(file_text "$REDIS_CONF" | head -n 1) == *"$MARK"* ]]
	else
		record_has redis_acl
	fi
}

redis_others_refuse() {
	local path
	! redis_is_own || return 0
	for path in "$REDIS_CONF" "$REDIS_ACL" "$REDIS_DATA"; do
		[[ ! -e $path ]] || others_die "Redis has $path" --redis-url
	done
}

redis_mark() {
	redis_acl | sha256sum | cut -d ' ' -f 1
}

# The record has the file that Redis has loaded: a run may end before that.
redis_is_done() {
	local program
	is_local redis || return 0
	[[ -e $REDIS_CONF && $(file_text "$REDIS_ACL") == "$(redis_acl)" ]] || return 1
	[[ $(record_get redis_acl) == "$(redis_mark)" ]] || return 1
	systemctl -q is-enabled "$REDIS_UNIT" && systemctl -q is-active "$REDIS_UNIT" || return 1
	for program in default "${PROGRAMS[@]}"; do
		[[ $(redis_as "$program" PING 2>/dev/null) == PONG ]] || return 1
	done
}

redis_what() {
	echo "Redis: a separate instance, $REDIS_UNIT on 127.0.0.1:$PORT_REDIS, that syncs each" \
		"write to disk, with a user for each program"
}

redis_do() {
	local acl loaded
	redis_others_refuse
	[[ -e $REDIS_CONF ]] ||
		file_put "$REDIS_CONF" 640 redis:redis "$(redis_conf)"$'\n'
	# As the owner of the folder above, who could put a link in its place.
	[[ -d $REDIS_DATA ]] || setpriv --reuid=redis --regid=redis --init-groups \
		mkdir -m 750 "$REDIS_DATA"
	acl=$(redis_acl)
	[[ $(file_text "$REDIS_ACL") == "$acl" ]] ||
		file_put "$REDIS_ACL" 640 redis:redis "$acl"$'\n'
	systemctl enable --quiet --now "$REDIS_UNIT"
	# One that runs with the passwords of an earlier installation.
	redis_answers || systemctl restart "$REDIS_UNIT"
	wait_for "$REDIS_UNIT" redis_answers
	loaded=$(redis_as default ACL LOAD)
	[[ $loaded == OK ]] || die "Redis does not load $REDIS_ACL: $loaded"
	record_set redis_acl "$(redis_mark)"
}

# ---- RabbitMQ

# The definitions while they are imported, with passwords: in memory, for RabbitMQ's user alone.
readonly RABBITMQ_FILE=/run/couponmq-rabbitmq.json

RABBITMQ_VHOSTS='' RABBITMQ_USERS=''

# Sets RABBITMQ_VHOSTS, with their descriptions, and RABBITMQ_USERS, those of the programs; or WHY.
rabbitmq_look() {
	local users
	RABBITMQ_VHOSTS=$(rabbitmqctl -s list_vhosts name description 2>&1) ||
		{ WHY=$RABBITMQ_VHOSTS && return 1; }
	users=$(rabbitmqctl -s list_users 2>&1) || { WHY=$users && return 1; }
	RABBITMQ_USERS=$(cut -f 1 <<<"$users" |
		grep -xE "couponmq_($(IFS='|' && echo "${PROGRAMS[*]}"))" | sort) || true
}

rabbitmq_has_vhost() {
	cut -f 1 <<<"$RABBITMQ_VHOSTS" | grep -qx "$NAME"
}

rabbitmq_vhost_is_own() {
	grep -qx "$NAME"$'\t'"$MARK" <<<"$RABBITMQ_VHOSTS"
}

# The users have the mark of the vhost, or, when that was removed by hand, the record.
rabbitmq_users_are_own() {
	rabbitmq_vhost_is_own || record_has rabbitmq_definitions
}

rabbitmq_others_refuse() {
	rabbitmq_vhost_is_own || ! rabbitmq_has_vhost ||
		others_die "RabbitMQ has a vhost $NAME" --amqp-url
	rabbitmq_users_are_own || [[ -z $RABBITMQ_USERS ]] ||
		others_die "RabbitMQ has the users ${RABBITMQ_USERS//$'\n'/, }" --amqp-url
}

# deploy/rabbitmq.json without its administrator and its vhost, in the vhost of setup.
rabbitmq_definitions() {
	# shellcheck disable=SC2030 # for awk alone
	(
		for program in "${PROGRAMS[@]}"; do
			export "${program^^}_PASSWORD=$(password rabbitmq "$program")"
		done
		PASSWORD='' awk -f "$DATA/fill.awk" "$DATA/rabbitmq.json"
	) | grep -ve '": "couponmq"[,}]' -e '"vhosts":' |
		sed "s#\(\"vhost\": \"\)/\"#\1$NAME\"#"
}

rabbitmq_mark() {
	rabbitmq_definitions | sha256sum | cut -d ' ' -f 1
}

rabbitmq_is_done() {
	local users
	is_local rabbitmq || return 0
	[[ $(record_get rabbitmq_definitions) == "$(rabbitmq_mark)" ]] || return 1
	users=$(rabbitmqctl -s list_permissions -p "$NAME" 2>/dev/null |
		cut -f 1 | sort) || return 1
	[[ $users == $'couponmq_gateway\ncouponmq_operator\ncouponmq_worker' ]]
}

rabbitmq_what() {
	echo "RabbitMQ: the vhost $NAME, with a user for each program"
}

rabbitmq_do() {
	local failed=
	systemctl start rabbitmq-server.service
	wait_for RabbitMQ rabbitmq_look
	rabbitmq_others_refuse
	rabbitmq_has_vhost ||
		quietly rabbitmqctl -q add_vhost "$NAME" --description "$MARK"
	# rabbitmqctl of RabbitMQ 4 does not read definitions from standard input.
	(umask 077 && rabbitmq_definitions >"$RABBITMQ_FILE")
	chown rabbitmq: "$RABBITMQ_FILE"
	quietly rabbitmqctl -q import_definitions "$RABBITMQ_FILE" || failed=yes
	rm -f "$RABBITMQ_FILE"
	[[ -z $failed ]] || die "RabbitMQ does not take its users"
	record_set rabbitmq_definitions "$(rabbitmq_mark)"
}

# ---- PostgreSQL

# psql as the superuser.
postgres() {
	PGOPTIONS='-c client_min_messages=warning' \
		setpriv --reuid=postgres --regid=postgres --init-groups \
		psql -X -q -A -t -w -v ON_ERROR_STOP=1 -p "$PORT_POSTGRESQL" "$@"
}

# postgresql_as PROGRAM SQL
postgresql_as() {
	PGPASSWORD=$(password postgresql "$1") psql -X -A -t -w -h 127.0.0.1 \
		-p "$PORT_POSTGRESQL" -U "couponmq_$1" -d "$NAME" -c "$2" 2>/dev/null
}

# Whether PROGRAM can log in with its password.
postgresql_login() {
	[[ $(postgresql_as "$1" 'SELECT 1') == 1 ]]
}

postgresql_answers() {
	WHY=$(postgres -d postgres -c '' 2>&1)
}

postgresql_is_done() {
	! is_local postgresql || postgresql_login owner
}

postgresql_what() {
	echo "PostgreSQL on 127.0.0.1:$PORT_POSTGRESQL: the database $NAME and its owner," \
		"couponmq_owner"
}

readonly POSTGRESQL_OWN="WITH own AS (SELECT oid FROM pg_roles WHERE rolname = 'couponmq_owner'
	AND shobj_description(oid, 'pg_authid') = '$MARK')"

# Prints which of roles and database setup has made.
postgresql_own() {
	postgres -d postgres <<-SQL
	$POSTGRESQL_OWN
	SELECT 'roles' FROM own
	UNION ALL
	SELECT 'database' FROM pg_database
	WHERE datname = '$NAME' AND datdba IN (SELECT oid FROM own)
	SQL
}

postgresql_others_refuse() {
	local found
	found=$(postgres -d postgres <<-SQL
	$POSTGRESQL_OWN
	SELECT 'a database $NAME' FROM pg_database
	WHERE datname = '$NAME' AND datdba NOT IN (SELECT oid FROM own)
	UNION ALL
	-- Without LOGIN they may be the roles of another database of this cluster.
	SELECT 'a login ' || rolname FROM pg_roles
	WHERE (rolname = 'couponmq_owner'
			OR rolname ~ '^couponmq_(gateway|worker|operator)\$' AND rolcanlogin)
		AND NOT EXISTS (SELECT FROM own)
	LIMIT 1
	SQL
	)
	[[ -z $found ]] ||
		others_die "PostgreSQL has $found" '--database-url and --database-admin-url'
}

postgresql_do() {
	systemctl start postgresql.service
	wait_for "PostgreSQL on port $PORT_POSTGRESQL" postgresql_answers
	postgresql_others_refuse
	postgres -d postgres <<-SQL
	BEGIN;
	SELECT 'CREATE ROLE couponmq_owner'
	WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'couponmq_owner') \gexec
	ALTER ROLE couponmq_owner LOGIN CREATEROLE PASSWORD '$(password postgresql owner)';
	GRANT pg_monitor, pg_signal_backend TO couponmq_owner;
	GRANT pg_read_all_stats TO couponmq_owner WITH ADMIN OPTION;
	COMMENT ON ROLE couponmq_owner IS '$MARK';
	COMMIT;
	SELECT 'CREATE DATABASE $NAME OWNER couponmq_owner ENCODING ''UTF8'' TEMPLATE template0'
	WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '$NAME') \gexec
	SQL
}

# ctl_owner WORD..: couponctl as the owner of the tables.
ctl_owner() {
	local owner=$SECRETS/owner-postgresql-url
	[[ -e $owner ]] || owner=$(url_file postgresql operator)
	DATABASE_ADMIN_URL_FILE=$owner ctl "$@"
}

tables_is_done() {
	local told program
	[[ -e $(url_file postgresql operator) ]] || return 1
	! is_local postgresql || postgresql_login owner || return 1
	told=$(ctl_owner migrate --dry-run 2>/dev/null) || return 1
	[[ $told != *'to be applied'* ]] || return 1
	if ! is_local postgresql; then
		ctl list --count 1 >/dev/null 2>&1
		return
	fi
	for program in "${PROGRAMS[@]}"; do
		postgresql_login "$program" || return 1
	done
	[[ $(postgresql_as operator "SELECT pg_has_role('pg_read_all_settings', 'usage')") == t ]]
}

tables_what() {
	if is_local postgresql; then
		echo "the tables of couponmq, and a login for each program"
	else
		echo "the tables of couponmq in the database of DATABASE_ADMIN_URL"
	fi
}

tables_do() {
	local program
	quietly ctl_owner migrate
	if ! is_local postgresql; then
		ctl list --count 1 >/dev/null ||
			die "the login in DATABASE_URL lacks the rights of the programs: GRANT" \
				"couponmq_app TO it, as the owner of the tables"
		return
	fi
	for program in "${PROGRAMS[@]}"; do
		postgresql_login "$program" || postgres -d "$NAME" <<-SQL
		ALTER ROLE couponmq_$program LOGIN PASSWORD '$(password postgresql "$program")';
		SQL
	done
	# couponctl doctor looks where the data is, and how much space is there.
	postgres -d "$NAME" -c 'GRANT pg_read_all_settings TO couponmq_operator'
}
