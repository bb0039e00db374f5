#!/usr/bin/env bash
# Inside the image, as the service migrate: creates the tables and the roles of the programs, which
# then can log in.
set -euo pipefail
: "${GATEWAY_PASSWORD:?is not set}" "${WORKER_PASSWORD:?is not set}" \
	"${OPERATOR_PASSWORD:?is not set}"

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
