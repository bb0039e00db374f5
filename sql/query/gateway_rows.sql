-- The gateway processes: whether each is gone.
-- $1 how many at most
SELECT id, coalesce(gone_at <= now(), false) FROM gateway
ORDER BY gone_at DESC NULLS FIRST
LIMIT $1::int
