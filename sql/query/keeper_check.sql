-- Whether nobody was elected since.
-- $1 fence
SELECT fence = $1::bigint AS is_current FROM keeper
