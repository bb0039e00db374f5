-- The installation, its processes, and what they agree on.

-- Which installation this database is of: Redis and the messages of the queue carry the same id, by
-- which a program notices that its PostgreSQL and its Redis do not belong together. A backup that
-- is restored keeps it.
CREATE TABLE installation (
	is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
	id     uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO installation DEFAULT VALUES;

-- How many transactions have changed something. The numbers only grow, and each is copied to Redis
-- after its COMMIT: a PostgreSQL whose numbers are below the copy was put back to an earlier
-- moment. There are many rows, so that no transaction waits for another one to count. Those from 64
-- on are of transactions of settle(): what they wrote, Redis has, too.
CREATE TABLE change_count (
	stripe smallint PRIMARY KEY,
	num    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO change_count (stripe) SELECT generate_series(0, 127);

-- Each recovery after PostgreSQL was put back: by couponctl recover, or the keeper.
CREATE TABLE recovery (
	id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	ended_at     timestamptz NOT NULL DEFAULT now(),
	made_by      text NOT NULL,
	how          text NOT NULL CHECK (how IN ('all', 'tail', 'accept-loss')),
	transactions bigint NOT NULL, -- that were missing, at least
	-- 'SYSTEM:TIMELINE': this one, and the one that Redis followed before, if that is known
	server       text NOT NULL,
	former       text
);

-- The gateway processes that there are, or may be: after a restart of Redis the keeper waits until
-- each of them has reported what it has seen; see docs/about/lifecycle.md.
CREATE TABLE gateway (
	id      uuid PRIMARY KEY,
	place   text NOT NULL CHECK (length(place) <= 1024),
	seen_at timestamptz NOT NULL DEFAULT now(),
	-- from then on it is gone: it has ended, or another process has taken its place
	gone_at timestamptz
);

CREATE TABLE keeper (
	only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
	fence    bigint NOT NULL,
	-- the process of Redis that it follows: what another one was told to free may be lost
	run_id   text
);
INSERT INTO keeper (fence) VALUES (0);

-- The fences of locks in PostgreSQL; sql/function/lock_fence.sql draws from it.
CREATE SEQUENCE lock_fence_seq;
