-- Ends the recovery: PostgreSQL is not behind any more.
-- $1 stripes, $2 their numbers in Redis: arrays of one length
UPDATE change_count AS c
SET num = greatest(c.num, r.num) + 1
FROM unnest($1::smallint[], $2::bigint[]) AS r (stripe, num)
WHERE c.stripe = r.stripe
