-- Records the end of an attempt; see sql/function/webhook_finish.sql.
-- $1 delivery, $2 lease, $3 result, $4 status, $5 why; milliseconds: $6 until the next attempt, $7
-- of a pause that the endpoint asks for, $8 of the first own pause; $9 seconds
SELECT is_own, disabled_why
FROM webhook_finish($1::bigint, $2::int, $3::text, $4::int, $5::text, $6::bigint, $7::bigint,
	$8::bigint, $9::bigint)
