-- Ends the recovery: PostgreSQL is not behind any more.
-- $1 stripes, $2 their numbers in Redis: arrays of one length
INSERT INTO change_count AS c (stripe, num)
SELECT stripe, num + 1 FROM unnest($1::smallint[], $2::bigint[]) AS r (stripe, num)
ON CONFLICT (stripe) DO UPDATE SET num = greatest(c.num + 1, excluded.num)
