-- Revocations of exchange codes have numbers, by which Redis is compared with PostgreSQL; see
-- docs/lifecycle.md. The new columns lock tables, for a moment. Settling queues behind a request
-- for such a lock, so it is given up soon and requested again.
DO $$
DECLARE
	holders text;
BEGIN
	PERFORM set_config('lock_timeout', '500', true);
	FOR i IN 1 .. 5 LOOP
		BEGIN
			LOCK TABLE code, coupon IN ACCESS EXCLUSIVE MODE;
			RETURN;
		EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
			PERFORM pg_sleep(0.2 * i);
		END;
	END LOOP;
	SELECT string_agg(DISTINCT format('%s (%s)', a.pid, a.application_name), ', ')
	INTO holders
	FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
	WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
		AND l.database = (SELECT d.oid FROM pg_database AS d
			WHERE d.datname = current_database())
		AND l.relation IN ('code'::regclass, 'coupon'::regclass);
	RAISE EXCEPTION 'code and coupon cannot be locked: they are used by the processes %',
			coalesce(holders, 'that have ended meanwhile')
		USING HINT = 'End their transactions, then run couponctl migrate again.';
END
$$;
SET LOCAL lock_timeout = 0;

-- The number of the last revocation of codes of the coupon.
ALTER TABLE coupon ADD COLUMN revocation_num bigint NOT NULL DEFAULT 0;
GRANT UPDATE (revocation_num) ON coupon TO couponmq_app;

-- Which revocation it was; NULL: the code or set is not revoked. A used code may have one too: it
-- was redeemed before, and is revoked as soon as its receive loses it.
ALTER TABLE code ADD COLUMN revocation_num bigint;
ALTER TABLE code_set ADD COLUMN revocation_num bigint;
GRANT UPDATE (revocation_num) ON code, code_set TO couponmq_app;

-- What was accepted before a revocation: the receives of lower generations, and of this one those
-- with a number up to `seq`; NULL: all of them.
CREATE TABLE code_revocation (
	coupon_id  bigint NOT NULL,
	num        bigint NOT NULL CHECK (num > 0),
	generation int NOT NULL,
	seq        bigint,
	PRIMARY KEY (coupon_id, num)
);
GRANT SELECT, INSERT, UPDATE (generation, seq) ON code_revocation TO couponmq_app;

-- Those from before are one revocation for each coupon.
UPDATE code SET revocation_num = 1 WHERE state = 'revoked';
DO $$
BEGIN
	-- Its trigger calls a function that a new database does not have yet.
	IF EXISTS (SELECT FROM code_set WHERE revoked_at IS NOT NULL) THEN
		UPDATE code_set SET revocation_num = 1 WHERE revoked_at IS NOT NULL;
	END IF;
END
$$;
INSERT INTO code_revocation (coupon_id, num, generation)
SELECT c.id, 1, c.generation
FROM coupon AS c
WHERE c.id IN (SELECT s.coupon_id FROM code_set AS s WHERE s.revocation_num > 0
	UNION SELECT o.coupon_id FROM code AS o WHERE o.revocation_num > 0);
UPDATE coupon AS c SET revocation_num = 1
WHERE EXISTS (SELECT FROM code_revocation AS r WHERE r.coupon_id = c.id);

-- NOT VALID: the rows that exist satisfy them.
ALTER TABLE code DROP CONSTRAINT code_revoked;
ALTER TABLE code ADD CONSTRAINT code_revoked CHECK (
	(revoked_at IS NULL) = (revocation_num IS NULL)
	AND CASE state WHEN 'revoked' THEN revoked_at IS NOT NULL
		WHEN 'unused' THEN revoked_at IS NULL ELSE true END) NOT VALID;
ALTER TABLE code_set ADD CONSTRAINT code_set_revoked
	CHECK ((revoked_at IS NULL) = (revocation_num IS NULL)) NOT VALID;

-- Loading a coupon reads these.
DROP INDEX code_revoked;
CREATE INDEX code_revoked ON code (set_id, revocation_num) WHERE revocation_num > 0;

-- Of another signature now.
DROP FUNCTION IF EXISTS code_take(bigint[], bigint[], uuid[], smallint[], text[], text[]);
