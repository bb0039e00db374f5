-- Takes deliveries to send; see sql/function/webhook_claim.sql.
-- $1 how many at most, $2 of one webhook at most, $3 for how many milliseconds
SELECT delivery, lease, webhook, url, secrets, message, attempts, body
FROM webhook_claim($1::int, $2::int, $3::bigint)
