-- This gateway process is there.
-- $1 texts: its id, its place, and 'true' if it has not been recorded since its start
SELECT gateway_alive(($1::text[])[1]::uuid, ($1::text[])[2], ($1::text[])[3]::boolean)
