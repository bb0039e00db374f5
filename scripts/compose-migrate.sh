#!/usr/bin/env bash
# Inside the image, as the service migrate: creates the tables and the roles of the programs, which
# then can log in.
set -euo pipefail
: "${GATEWAY_PASSWORD:?is not set}" "${WORKER_PASSWORD:?is not set}" \
	"${OPERATOR_PASSWORD:?is not set}"

# Nobody else makes the database under Patroni. A standby that does not have it yet would be asked
# before the primary.
database_make() {
	psql -X -q -v ON_ERROR_STOP=1 postgres <<-'SQL' && psql -X -q </dev/null
	\getenv database PGDATABASE
	SELECT format('CREATE DATABASE %I', :'database')
	WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec
	SQL
}

# Where Patroni has just started, no server leads.
deadline=$((SECONDS + 120))
until database_make; do
	[[ $SECONDS -lt $deadline ]] || exit 1
	sleep 1
done
couponctl migrate

# At each start, so that new passwords take effect.
psql -X -q -v ON_ERROR_STOP=1 <<'SQL'
\getenv gateway GATEWAY_PASSWORD
\getenv worker WORKER_PASSWORD
\getenv operator OPERATOR_PASSWORD
ALTER ROLE couponmq_gateway LOGIN PASSWORD :'gateway';
ALTER ROLE couponmq_worker LOGIN PASSWORD :'worker';
ALTER ROLE couponmq_operator LOGIN PASSWORD :'operator';
SQL
echo 'migrate: gateway, worker and operator can log in'
