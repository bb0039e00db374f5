-- Of these texts, those that are imported codes or words. Whether a code is revoked Redis decides:
-- who has redeemed it before gets the same receive again.
-- LATERAL with OFFSET 0: by the index, whatever the statistics say.
-- $1 texts
SELECT g.ord, c.set_id, c.serial, c.coupon_id, s.kind
FROM unnest($1::text[]) WITH ORDINALITY AS g (text, ord),
	LATERAL (SELECT * FROM code WHERE code.text = g.text OFFSET 0) AS c,
	LATERAL (SELECT * FROM code_set WHERE code_set.id = c.set_id OFFSET 0) AS s
ORDER BY g.ord
