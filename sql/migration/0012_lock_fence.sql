-- The fences of locks in PostgreSQL; sql/function/lock_fence.sql draws from it.
CREATE SEQUENCE lock_fence_seq;
GRANT USAGE, UPDATE ON SEQUENCE lock_fence_seq TO couponmq_app;
