-- Of codes that were to be stored, those whose text another row has.
-- LATERAL with OFFSET 0: by the index, whatever the statistics say.
-- $1 set, $2 serials, $3 texts: arrays of one length
SELECT g.serial, c.set_id, c.serial AS other_serial, c.coupon_id
FROM unnest($2::bigint[], $3::text[]) AS g (serial, text),
	LATERAL (SELECT * FROM code WHERE code.text = g.text OFFSET 0) AS c
WHERE (c.set_id, c.serial) <> ($1::bigint, g.serial)
ORDER BY g.serial
