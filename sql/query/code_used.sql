-- Of these codes, those that are used.
-- $1 sets, $2 serials: arrays of one length
SELECT g.ord, c.user_id
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS g (set_id, serial, ord)
	JOIN code AS c ON c.set_id = g.set_id AND c.serial = g.serial
WHERE c.state = 'used'
ORDER BY g.ord
