# shellcheck shell=bash
# PostgreSQL: its folder, the process, the roles and the migration. Sourced by scripts/stack.sh.

# Several functions take the NAME of the process, whose folder has the data; it is `postgres` in the
# stack of one machine.

# postgres_bin NAME: sets PG_BIN to the folder of the version that made the database, else of the
# newest.
postgres_bin() {
	local version=''
	[[ -z ${PG_BIN:-} ]] || return 0
	read -r version 2>/dev/null <"$(postgres_data "$1")/PG_VERSION" || true
	PG_BIN=$(postgres_bin_find "${version:-*}")
	[[ -n $PG_BIN || -z $version ]] ||
		die "PostgreSQL $version, which made the database in $RUN_DIR, is not installed;" \
			"start again with: make clean RUN_DIR=$RUN_DIR"
	[[ -x $PG_BIN/postgres ]] || die "there is no PostgreSQL server; run scripts/packages.sh"
}

postgres_data() {
	readlink -f "$RUN_DIR/$1/data"
}

# PostgreSQL refuses to run as root: root runs it as the owner of its files, `postgres` for new
# ones.
postgres_user() {
	local user
	if [[ $(id -u) -ne 0 ]]; then
		id -un
		return
	fi
	user=$(stat -c %U "$(postgres_data "$1")" 2>/dev/null) || user=root
	[[ $user != root ]] || user=postgres
	echo "$user"
}

# Sets AS to what a command is prefixed with to run as that user.
postgres_as() {
	AS=()
	[[ $(id -u) -ne 0 ]] || AS=(setpriv "--reuid=$1" "--regid=$(id -g "$1")" --init-groups --)
}

# postgres_folder NAME USER
postgres_folder() {
	local folder=$RUN_DIR/$1 user=$2 elsewhere
	if [[ -L $folder && ! -d $folder ]]; then
		die "the database's folder $(readlink "$folder") does not exist;" \
			"start again with: make clean RUN_DIR=$RUN_DIR"
	fi
	[[ ! -d $folder ]] || return 0
	mkdir -m 700 "$folder"
	[[ $(id -u) -eq 0 ]] || return 0
	chown "$user:" "$folder"
	postgres_as "$user"
	if ! "${AS[@]}" test -x "$folder/."; then
		# A parent folder is closed to that user, for instance a home of mode 700.
		rmdir "$folder"
		elsewhere=$(mktemp -d /var/tmp/couponmq-postgres.XXXXXXXX)
		chown "$user:" "$elsewhere"
		ln -s "$elsewhere" "$folder"
		say "user $user cannot enter $RUN_DIR: the database is in $elsewhere"
	fi
}

# postgres_remove NAME: its folder, also where that is elsewhere.
postgres_remove() {
	local data
	data=$(readlink "$RUN_DIR/$1" || true)
	[[ $data != /var/tmp/couponmq-postgres.* ]] || rm -rf "$data"
	rm -rf "${RUN_DIR:?}/$1"
}

postgres_init() {
	local user=$1 data pwfile
	data=$(readlink -f "$RUN_DIR/postgres")/data
	[[ ! -e $data/couponmq.conf ]] || return 0
	rm -rf "${data:?}"
	pwfile=$(dirname "$data")/password
	(umask 077 && echo "$STACK_PG_PASSWORD" >"$pwfile")
	[[ $(id -u) -ne 0 ]] || chown "$user:" "$pwfile"
	postgres_as "$user"
	(
		cd "$RUN_DIR/postgres/"
		"${AS[@]}" "$PG_BIN/initdb" -D "$data" -U postgres -A scram-sha-256 \
			--pwfile="$pwfile" --encoding=UTF8 --locale=C.UTF-8 \
			>>"$RUN_DIR/postgres.log" 2>&1
	) || start_failed postgres "could not make its database"
	rm -f "$pwfile"
	echo "include 'couponmq.conf'" >>"$data/postgresql.conf"
}

postgres_spawn() {
	local user data sockets
	postgres_bin postgres
	user=$(postgres_user postgres)
	postgres_folder postgres "$user"
	postgres_init "$user"
	data=$(postgres_data postgres)
	sockets=$(dirname "$data")
	[[ $((${#sockets} + 15)) -le $SOCKET_PATH_MAX ]] || sockets=
	cat >"$data/couponmq.conf" <<-TEXT
	listen_addresses = '127.0.0.1'
	port = $PORT_POSTGRES
	unix_socket_directories = '$sockets'
	max_connections = 200
	fsync = on
	synchronous_commit = on
	shared_buffers = 256MB
	max_wal_size = 4GB
	checkpoint_timeout = 15min
	wal_compression = lz4
	jit = off
	log_line_prefix = '%m [%p] %u '
	TEXT
	postgres_as "$user"
	LC_ALL=C.UTF-8 process_spawn postgres "${AS[@]}" "$PG_BIN/postgres" -D "$data"
}

# psql as the superuser, on the server of POSTGRES_HOSTS that takes writes; passwords are passed by
# environment and standard input, never as arguments.
postgres_sql() {
	PGOPTIONS="-c client_min_messages=warning" PGPASSWORD=$STACK_PG_PASSWORD \
		PGTARGETSESSIONATTRS=read-write "$PG_BIN/psql" -X -q -A -t -v ON_ERROR_STOP=1 \
		-h "${POSTGRES_HOSTS:-127.0.0.1}" -p "$PORT_POSTGRES" -U postgres -d "$1"
}

postgres_ready() {
	postgres_bin postgres
	"$PG_BIN/pg_isready" -q -h 127.0.0.1 -p "$PORT_POSTGRES" -d postgres
}

# The owner migrates. couponmq is for people, and has the rights of all programs (couponmq_app).
postgres_roles() {
	local found
	found=$(postgres_sql postgres <<<"SELECT 1 FROM pg_database WHERE datname = 'couponmq'")
	[[ -z $found ]] || return 0
	postgres_sql postgres <<-SQL
	SELECT 'CREATE ROLE ' || name FROM unnest(ARRAY['couponmq_owner', 'couponmq']) name
	WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
	ALTER ROLE couponmq_owner LOGIN CREATEROLE PASSWORD '$STACK_PG_OWNER_PASSWORD';
	ALTER ROLE couponmq LOGIN PASSWORD '$STACK_PG_APP_PASSWORD';
	GRANT pg_monitor, pg_signal_backend TO couponmq_owner;
	GRANT pg_read_all_stats TO couponmq_owner WITH ADMIN OPTION;
	CREATE DATABASE couponmq OWNER couponmq_owner;
	SQL
}

postgres_migrate() {
	env_load
	"$BUILD_DIR/couponctl" migrate || die "couponctl migrate failed"
	postgres_sql couponmq <<-SQL
	GRANT couponmq_app TO couponmq;
	ALTER ROLE couponmq_gateway LOGIN PASSWORD '$STACK_GATEWAY_PASSWORD';
	ALTER ROLE couponmq_worker LOGIN PASSWORD '$STACK_WORKER_PASSWORD';
	ALTER ROLE couponmq_operator LOGIN PASSWORD '$STACK_OPERATOR_PASSWORD';
	SQL
}
