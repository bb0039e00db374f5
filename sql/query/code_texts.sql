-- Of these texts, those that are codes that others made, or words.
-- LATERAL with OFFSET 0: by the index, whatever the statistics say.
-- $1 texts
SELECT g.ord, c.set_id, c.serial, c.coupon_id,
	(SELECT s.kind FROM code_set AS s WHERE s.id = c.set_id) AS kind
FROM unnest($1::text[]) WITH ORDINALITY AS g (text, ord),
	LATERAL (SELECT * FROM code WHERE code.text = g.text OFFSET 0) AS c
ORDER BY g.ord
