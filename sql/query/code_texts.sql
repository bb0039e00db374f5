-- Of these texts, those that are codes that others made, or words.
-- $1 texts
SELECT g.ord, c.set_id, c.serial, c.coupon_id
FROM unnest($1::text[]) WITH ORDINALITY AS g (text, ord) JOIN code AS c ON c.text = g.text
ORDER BY g.ord
