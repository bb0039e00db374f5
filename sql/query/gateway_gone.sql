-- This gateway process ends.
-- $1 its id
SELECT gateway_gone($1::uuid)
