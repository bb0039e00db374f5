-- The tables, and the role that gateways and workers log in through.
--
-- Run by the owner of the database. The group role has DML and nothing else; the login roles are made by whoever sets
-- the installation up, and are granted this one.

DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'couponmq_app') THEN
		CREATE ROLE couponmq_app NOLOGIN;
	END IF;
EXCEPTION
	-- Roles belong to the whole cluster: another database may be migrating at this moment.
	WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO couponmq_app;

CREATE TABLE IF NOT EXISTS schema_migration (
	version    int PRIMARY KEY,
	name       text NOT NULL,
	applied_at timestamptz NOT NULL DEFAULT now()
);

CREATE SEQUENCE coupon_id_seq AS bigint START WITH 1001;

-- One row of this table is as hot as its campaign: every settlement updates it. No index may cover issued_num, seq_seen
-- or settled_num, in its columns or in its predicate, and the pages keep room: then every such update is a HOT one.
CREATE TABLE coupon (
	id          bigint PRIMARY KEY CHECK (id > 0),
	name        text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
	total_num   bigint NOT NULL CHECK (total_num >= 0),
	issued_num  bigint NOT NULL DEFAULT 0,
	user_limit  int NOT NULL DEFAULT 1 CHECK (user_limit BETWEEN 1 AND 100),
	begin_at    timestamptz CHECK (isfinite(begin_at)),
	end_at      timestamptz CHECK (isfinite(end_at)),
	-- Of what a user gets: so many days from the receive, or two dates, or (all NULL) from the receive without an end.
	valid_days  int CHECK (valid_days BETWEEN 1 AND 36500),
	valid_from  timestamptz CHECK (isfinite(valid_from)),
	valid_to    timestamptz CHECK (isfinite(valid_to)),
	status      text NOT NULL DEFAULT 'draft' CHECK (status IN ('draft', 'published', 'paused', 'closed')),
	version     int NOT NULL DEFAULT 1,          -- of the terms
	generation  int NOT NULL DEFAULT 0,          -- 0: never loaded into Redis
	seq_seen    bigint NOT NULL DEFAULT 0,       -- highest receive number of this generation that was settled
	settled_num bigint NOT NULL DEFAULT 0,       -- how many of this generation have their outcome
	settled_at  timestamptz,                     -- closed, and the keeper found nothing in flight any more
	created_at  timestamptz NOT NULL DEFAULT now(),
	updated_at  timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT coupon_never_oversold CHECK (issued_num BETWEEN 0 AND total_num),
	CONSTRAINT coupon_window CHECK (begin_at < end_at),
	CONSTRAINT coupon_validity CHECK (
		(valid_from IS NULL) = (valid_to IS NULL)
		AND (valid_days IS NULL OR valid_from IS NULL)
		AND coalesce(valid_from < valid_to, true)),
	CONSTRAINT coupon_counts CHECK (generation >= 0 AND seq_seen >= 0 AND settled_num >= 0)
) WITH (fillfactor = 25);

-- What the keeper has to look at; see query/coupon_page.sql, which repeats the predicate.
CREATE INDEX coupon_watched ON coupon (id)
	WHERE status IN ('published', 'paused') OR (status = 'closed' AND settled_at IS NULL);

-- The two counts of generations that are no longer current.
CREATE TABLE coupon_generation (
	coupon_id   bigint NOT NULL,
	generation  int NOT NULL,
	seq_seen    bigint NOT NULL,
	settled_num bigint NOT NULL,
	PRIMARY KEY (coupon_id, generation)
) WITH (fillfactor = 50);

-- The primary key is the limit guard, the duplicate guard and the index by user. There is no index by coupon: it would
-- double the work of the one statement that has to be fast, for readers (loading Redis, audits) that can scan.
-- No foreign key to coupon: it would lock the hot row before everything is inserted.
CREATE TABLE user_coupon (
	user_id     bigint NOT NULL CHECK (user_id > 0),
	coupon_id   bigint NOT NULL,
	slot        smallint NOT NULL CHECK (slot > 0),
	idx         smallint NOT NULL CHECK (idx >= 0),
	batch       uuid NOT NULL,
	received_at timestamptz NOT NULL,
	valid_from  timestamptz NOT NULL,
	valid_to    timestamptz,
	key         text CHECK (length(key) BETWEEN 1 AND 64),
	PRIMARY KEY (user_id, coupon_id, slot)
) PARTITION BY HASH (user_id);

CREATE TABLE user_coupon_0 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 0);
CREATE TABLE user_coupon_1 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 1);
CREATE TABLE user_coupon_2 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 2);
CREATE TABLE user_coupon_3 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 3);
CREATE TABLE user_coupon_4 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 4);
CREATE TABLE user_coupon_5 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 5);
CREATE TABLE user_coupon_6 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 6);
CREATE TABLE user_coupon_7 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 7);

-- The tombstones: a receive that is here is never issued, however late another copy of its message arrives.
CREATE TABLE receive_rejected (
	coupon_id   bigint NOT NULL,
	batch       uuid NOT NULL,
	idx         smallint NOT NULL,
	user_id     bigint NOT NULL,
	slot        smallint NOT NULL,
	reason      text NOT NULL CHECK (reason IN ('unknown_coupon', 'slot_taken', 'slot_invalid', 'out_of_stock')),
	received_at timestamptz NOT NULL,
	rejected_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (coupon_id, batch, idx)
);

CREATE INDEX receive_rejected_user ON receive_rejected (coupon_id, user_id);

CREATE TABLE keeper (
	only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
	fence    bigint NOT NULL
);

INSERT INTO keeper (fence) VALUES (0);

-- A receive of an unknown coupon is rejected for ever. Its coupon must not come into being between the moment settle()
-- finds it unknown and the moment that the tombstone can be seen, or a copy could be issued: settle() holds this lock
-- shared meanwhile.
CREATE FUNCTION coupon_insert_wait() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM pg_advisory_xact_lock('coupon'::regclass::int, 0);
	RETURN NULL;
END
$$;

CREATE TRIGGER coupon_insert_wait BEFORE INSERT ON coupon
	FOR EACH STATEMENT EXECUTE FUNCTION coupon_insert_wait();

-- Keepers LISTEN, so that they act on new terms at once. Only statements that name these columns pay for it; settle()
-- does not.
CREATE FUNCTION coupon_terms_notify() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM pg_notify('couponmq_terms', NEW.id::text);
	RETURN NULL;
END
$$;

CREATE TRIGGER coupon_terms_notify AFTER UPDATE OF status, version ON coupon
	FOR EACH ROW
	WHEN (NEW.status <> 'draft' AND (OLD.status, OLD.version) IS DISTINCT FROM (NEW.status, NEW.version))
	EXECUTE FUNCTION coupon_terms_notify();

-- An id that nobody chose by hand yet.
CREATE FUNCTION coupon_id_next() RETURNS bigint LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
DECLARE
	candidate bigint;
BEGIN
	LOOP
		candidate := nextval('coupon_id_seq');
		EXIT WHEN NOT EXISTS (SELECT FROM coupon WHERE id = candidate);
	END LOOP;
	RETURN candidate;
END
$$;

-- Not updatable by the programs: a coupon's id, and the limit that rows already stored were measured by.
GRANT SELECT, INSERT ON coupon TO couponmq_app;
GRANT UPDATE (name, total_num, issued_num, begin_at, end_at, valid_days, valid_from, valid_to, status, version,
	generation, seq_seen, settled_num, settled_at, updated_at) ON coupon TO couponmq_app;
GRANT SELECT, INSERT, UPDATE ON coupon_generation TO couponmq_app;
GRANT SELECT, INSERT, DELETE ON user_coupon TO couponmq_app;
GRANT SELECT, INSERT ON receive_rejected TO couponmq_app;
GRANT SELECT, UPDATE (fence) ON keeper TO couponmq_app;
GRANT SELECT ON schema_migration TO couponmq_app;
GRANT USAGE ON SEQUENCE coupon_id_seq TO couponmq_app;
REVOKE ALL ON FUNCTION coupon_id_next() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION coupon_id_next() TO couponmq_app;
