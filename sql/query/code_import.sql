-- Stores codes that others made. Those that exist are left out; returns how many were not.
-- In the order of their texts, so that two that do this at once cannot deadlock.
-- $1 set, $2 coupon, $3 serials, $4 texts, $5 spellings ('': the text), $6 metadata ('': none; the
-- member `code` is left out): arrays of one length from $3 on
WITH added AS (
	INSERT INTO code (set_id, serial, coupon_id, text, spelling, state, metadata)
	SELECT $1::bigint, g.serial, $2::bigint, g.text, nullif(g.spelling, ''), 'unused',
		nullif(g.metadata, '')::jsonb - 'code'
	FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[])
		AS g (serial, text, spelling, metadata)
	ORDER BY g.text COLLATE "C", g.serial
	ON CONFLICT (text) WHERE text IS NOT NULL DO NOTHING
	RETURNING 1
)
SELECT count(*) AS added FROM added
