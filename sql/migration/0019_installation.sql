-- Which installation this database is of: Redis and the messages of the queue carry the same id, by
-- which a program notices that its PostgreSQL and its Redis do not belong together. A backup that
-- is restored keeps it.
CREATE TABLE installation (
	is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
	id     uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO installation DEFAULT VALUES;
GRANT SELECT ON installation TO couponmq_app;
