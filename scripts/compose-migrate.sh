#!/usr/bin/env bash
# Inside the image, as the service migrate: creates the tables, then the role that the programs log
# in as.
set -euo pipefail
: "${COUPON_DATABASE_PASSWORD:?is not set}"

couponctl migrate

# At each start, so that a new COUPON_DATABASE_PASSWORD takes effect.
PGOPTIONS='-c client_min_messages=warning' psql -X -q -v ON_ERROR_STOP=1 <<'SQL'
\getenv password COUPON_DATABASE_PASSWORD
SELECT 'CREATE ROLE couponmq'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'couponmq') \gexec
ALTER ROLE couponmq LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'password';
GRANT couponmq_app TO couponmq;
SQL
echo 'migrate: the role couponmq can log in'
