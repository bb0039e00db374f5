# shellcheck shell=bash
# The three stores on this machine: Redis, RabbitMQ, PostgreSQL and its tables. Sourced by setup.sh.

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
	# The Redis of couponmq, made by couponctl setup. Changes stay.
	bind 127.0.0.1 -::1
	port $PORT_REDIS
	daemonize no
	dir $REDIS_DATA
	pidfile /run/redis-couponmq/redis-server.pid
	logfile $REDIS_LOG
	aclfile $REDIS_ACL

	# accepted means on disk: the manual, "What the services must be set to".
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
		-h 127.0.0.1 -p "$PORT_REDIS" "$@" 2>/dev/null
}

# Redis may load its file.
redis_answers() {
	[[ $(redis_as default PING) == PONG ]]
}

redis_is_done() {
	local program
	is_local redis || return 0
	[[ -e $REDIS_CONF && $(file_text "$REDIS_ACL") == "$(redis_acl)" ]] || return 1
	systemctl -q is-enabled "$REDIS_UNIT" && systemctl -q is-active "$REDIS_UNIT" || return 1
	for program in default "${PROGRAMS[@]}"; do
		[[ $(redis_as "$program" PING) == PONG ]] || return 1
	done
}

redis_what() {
	echo "Redis: an instance of its own, $REDIS_UNIT on 127.0.0.1:$PORT_REDIS," \
		"which syncs each write; a user for each program"
}

redis_do() {
	local acl
	install -d -m 750 -o redis -g redis "$REDIS_DATA"
	acl=$(redis_acl)
	[[ $(file_text "$REDIS_ACL") == "$acl" ]] ||
		file_put "$REDIS_ACL" 640 redis:redis "$acl"$'\n'
	[[ -e $REDIS_CONF ]] ||
		file_put "$REDIS_CONF" 640 redis:redis "$(redis_conf)"$'\n'
	systemctl enable --quiet --now "$REDIS_UNIT"
	# One that runs with the passwords of an earlier installation.
	redis_answers || systemctl restart "$REDIS_UNIT"
	wait_for "$REDIS_UNIT answers" redis_answers
	redis_as default ACL LOAD >/dev/null
}

# wait_for WHAT COMMAND..
wait_for() {
	local what=$1 deadline=$((SECONDS + WAIT_S))
	shift
	until "$@"; do
		[[ $SECONDS -lt $deadline ]] || die "not within $WAIT_S s: $what"
		sleep 0.2
	done
}

# ---- RabbitMQ

# deploy/rabbitmq.json without its administrator, in the vhost.
rabbitmq_definitions() {
	# shellcheck disable=SC2030 # for awk alone
	(
		for program in "${PROGRAMS[@]}"; do
			export "${program^^}_PASSWORD=$(password rabbitmq "$program")"
		done
		PASSWORD='' awk -f "$DATA/fill.awk" "$DATA/rabbitmq.json"
	) | grep -v '": "couponmq"[,}]' |
		sed "s#\(\"vhost\": \"\|{\"name\": \"\)/\"#\1$NAME\"#"
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
	systemctl start rabbitmq-server.service
	quietly rabbitmqctl -q await_startup --timeout "$WAIT_S"
	rabbitmq_definitions | quietly rabbitmqctl -q import_definitions
	record_set rabbitmq_definitions "$(rabbitmq_mark)"
}

# ---- PostgreSQL

# psql as the superuser.
postgres() {
	PGOPTIONS='-c client_min_messages=warning' \
		setpriv --reuid=postgres --regid=postgres --init-groups \
		psql -X -q -A -t -w -v ON_ERROR_STOP=1 -p "$PORT_POSTGRESQL" "$@"
}

# Whether PROGRAM can log in with its password.
postgresql_login() {
	[[ $(PGPASSWORD=$(password postgresql "$1") psql -X -A -t -w -h 127.0.0.1 \
		-p "$PORT_POSTGRESQL" -U "couponmq_$1" -d "$NAME" -c 'SELECT 1' 2>/dev/null) == 1 ]]
}

postgresql_answers() {
	postgres -d postgres -c '' 2>/dev/null
}

postgresql_is_done() {
	! is_local postgresql || postgresql_login owner
}

postgresql_what() {
	echo "PostgreSQL on 127.0.0.1:$PORT_POSTGRESQL: the database $NAME and its owner," \
		"couponmq_owner"
}

postgresql_do() {
	local owner
	systemctl start postgresql.service
	wait_for "PostgreSQL answers on port $PORT_POSTGRESQL" postgresql_answers
	postgres -d postgres <<-SQL
	SELECT 'CREATE ROLE couponmq_owner'
	WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'couponmq_owner') \gexec
	ALTER ROLE couponmq_owner LOGIN CREATEROLE PASSWORD '$(password postgresql owner)';
	GRANT pg_monitor, pg_signal_backend TO couponmq_owner;
	GRANT pg_read_all_stats TO couponmq_owner WITH ADMIN OPTION;
	SELECT 'CREATE DATABASE $NAME OWNER couponmq_owner ENCODING ''UTF8'' TEMPLATE template0'
	WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '$NAME') \gexec
	SQL
	owner=$(postgres -d postgres -c "SELECT datdba::regrole FROM pg_database
		WHERE datname = '$NAME'")
	[[ $owner == couponmq_owner ]] ||
		die "PostgreSQL has a database $NAME that belongs to $owner"
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
			die "the login of DATABASE_URL needs the rights of the programs; as the" \
				"owner of the tables: GRANT couponmq_app TO it"
		return
	fi
	for program in "${PROGRAMS[@]}"; do
		postgresql_login "$program" || postgres -d "$NAME" <<-SQL
		ALTER ROLE couponmq_$program LOGIN PASSWORD '$(password postgresql "$program")';
		SQL
	done
}
