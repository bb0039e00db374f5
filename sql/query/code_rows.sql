-- The rows of the codes of a set, in order.
-- $1 set, $2 whether also those that are not used
SELECT c.serial, coalesce(c.spelling, c.text) AS spelling, c.state, c.user_id, c.batch::text, c.idx,
	c.metadata::text,
	to_char(c.used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS used_at
FROM code AS c
WHERE c.set_id = $1::bigint AND ($2::boolean OR c.state = 'used')
ORDER BY c.serial
