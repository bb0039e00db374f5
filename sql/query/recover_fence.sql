-- Raises the fence above those in Redis.
-- $1 the highest fence in Redis
UPDATE keeper SET fence = greatest(fence, $1::bigint) + 1
