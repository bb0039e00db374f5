-- Stores a word. No row: a code has its text.
-- $1 set, $2 coupon, $3 text, $4 as it is to be shown
INSERT INTO code (set_id, serial, coupon_id, text, spelling, state)
VALUES ($1::bigint, 0, $2::bigint, $3::text, nullif($4::text, $3::text), 'unused')
ON CONFLICT DO NOTHING
RETURNING set_id
