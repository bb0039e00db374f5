-- This gateway process is there.
-- $1 its id, $2 its place, $3 true if it has not been recorded since its start
SELECT gateway_alive($1::uuid, $2::text, $3::boolean)
