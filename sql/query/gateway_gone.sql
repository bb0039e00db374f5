-- This gateway process ends.
-- $1 texts: its id
SELECT gateway_gone(($1::text[])[1]::uuid)
