#!/bin/sh
# As the official image: it runs the command that it is given; the first start makes POSTGRES_DB,
# owned by POSTGRES_USER with POSTGRES_PASSWORD.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	password_file=$(mktemp)
	printf '%s\n' "$POSTGRES_PASSWORD" >"$password_file"
	initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile="$password_file" \
		--auth-local=trust --auth-host=scram-sha-256 >/dev/null
	rm "$password_file"
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	echo "CREATE DATABASE $POSTGRES_DB OWNER $POSTGRES_USER" |
		postgres --single -D "$PGDATA" -j postgres >/dev/null
fi
exec "$@" -c listen_addresses='*'
