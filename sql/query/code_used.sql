-- Of these codes, those that are used.
-- LATERAL with OFFSET 0: by the index, whatever the statistics say.
-- $1 sets, $2 serials: arrays of one length
SELECT g.ord, c.user_id
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS g (set_id, serial, ord),
	LATERAL (SELECT * FROM code WHERE code.set_id = g.set_id AND code.serial = g.serial
		OFFSET 0) AS c
WHERE c.state = 'used'
ORDER BY g.ord
