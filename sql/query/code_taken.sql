-- Of codes that were to be stored, those whose text another row has.
-- $1 set, $2 serials, $3 texts: arrays of one length
SELECT g.serial, c.set_id, c.serial AS other_serial, c.coupon_id
FROM unnest($2::bigint[], $3::text[]) AS g (serial, text) JOIN code AS c ON c.text = g.text
WHERE (c.set_id, c.serial) <> ($1::bigint, g.serial)
ORDER BY g.serial
