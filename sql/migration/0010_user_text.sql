-- User ids become text: opaque, and compared byte by byte. The type of a partition key cannot be
-- changed, so the user coupons are copied to a new table. All in one transaction: if it ends early,
-- nothing has changed. Meanwhile other programs wait for the tables or give up after their own
-- lock_timeout; nothing is settled and no look-up is answered.
--
-- Notices of the form `progress STEP DONE ALL` are for couponctl migrate.
SET LOCAL statement_timeout = 0;
SET LOCAL maintenance_work_mem = '256MB';

-- Others queue behind a request for this lock. So it is given up soon and requested again, but not
-- before deadlock_timeout: only then PostgreSQL cancels an autovacuum of the tables.
DO $$
DECLARE
	holders text;
BEGIN
	PERFORM set_config('lock_timeout', least(5000,
			500 + 1000 * extract(epoch FROM timeout::interval))::int::text, true)
	FROM current_setting('deadlock_timeout') AS timeout;
	FOR i IN 1 .. 5 LOOP
		BEGIN
			LOCK TABLE user_coupon, receive_rejected, coupon_late
				IN ACCESS EXCLUSIVE MODE;
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
		AND l.relation IN (SELECT 'receive_rejected'::regclass
			UNION ALL SELECT 'coupon_late'::regclass
			UNION ALL SELECT relid FROM pg_partition_tree('user_coupon'));
	RAISE EXCEPTION 'user_coupon cannot be locked: it is used by the processes %',
			coalesce(holders, 'that have ended meanwhile')
		USING HINT = 'End their transactions, then run couponctl migrate again.';
END
$$;
SET LOCAL lock_timeout = 0;

-- What an operator added to the table would be lost with it.
DO $$
DECLARE
	added text;
BEGIN
	WITH part AS (SELECT relid FROM pg_partition_tree('user_coupon'))
	SELECT string_agg(what, ', ') INTO added
	FROM (SELECT 'index ' || i.indexrelid::regclass AS what
			FROM part JOIN pg_index AS i ON i.indrelid = part.relid
			WHERE i.indexrelid <> 'user_coupon_pkey'::regclass
				AND i.indexrelid <> 'user_coupon_by_coupon'::regclass
				AND NOT EXISTS (SELECT FROM pg_inherits AS h
					WHERE h.inhrelid = i.indexrelid)
		UNION ALL SELECT 'trigger ' || t.tgname
			FROM part JOIN pg_trigger AS t ON t.tgrelid = part.relid
			WHERE NOT t.tgisinternal AND t.tgparentid = 0
		UNION ALL SELECT 'publication ' || p.pubname
			FROM part JOIN pg_publication_rel AS r ON r.prrelid = part.relid
				JOIN pg_publication AS p ON p.oid = r.prpubid
		UNION ALL SELECT 'policy ' || p.polname
			FROM part JOIN pg_policy AS p ON p.polrelid = part.relid) AS found;
	IF added IS NOT NULL THEN
		RAISE EXCEPTION 'user_coupon has what its new form would lose: %', added
			USING HINT = 'Drop it, run couponctl migrate, and create it again.';
	END IF;
	-- A view, a function or a foreign key that depends on the table makes this fail, before the
	-- rows are copied.
	BEGIN
		DROP TABLE user_coupon;
		RAISE EXCEPTION USING ERRCODE = 'ZZ001';
	EXCEPTION WHEN SQLSTATE 'ZZ001' THEN
		NULL;
	END;
END
$$;

-- These are written anew as a whole: the bar moves once for each.
DO $$
DECLARE
	refused text;
	done    int := 0;
BEGIN
	FOREACH refused IN ARRAY ARRAY['receive_rejected', 'coupon_late'] LOOP
		EXECUTE format('ALTER TABLE %1$I
			ALTER COLUMN user_id TYPE text COLLATE "C" USING user_id::text,
			ADD CONSTRAINT %1$s_user_id_check
				CHECK (octet_length(user_id) BETWEEN 1 AND 64)', refused);
		done := done + 1;
		IF EXISTS (SELECT FROM receive_rejected) OR EXISTS (SELECT FROM coupon_late) THEN
			RAISE INFO 'progress rejections % %', done, 2;
		END IF;
	END LOOP;
END
$$;

-- With their indexes, whose names become free so.
CREATE SCHEMA couponmq_user_number;
DO $$
DECLARE
	part regclass;
BEGIN
	FOR part IN SELECT relid FROM pg_partition_tree('user_coupon') LOOP
		EXECUTE format('ALTER TABLE %s SET SCHEMA couponmq_user_number', part);
	END LOOP;
END
$$;

-- As in 0001, but for the user. The primary key follows when the rows are there.
CREATE TABLE user_coupon (
	user_id     text COLLATE "C" NOT NULL
		CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	coupon_id   bigint NOT NULL,
	slot        smallint NOT NULL CHECK (slot > 0),
	idx         smallint NOT NULL CHECK (idx >= 0),
	batch       uuid NOT NULL,
	received_at timestamptz NOT NULL,
	valid_from  timestamptz NOT NULL,
	valid_to    timestamptz,
	key         text CHECK (length(key) BETWEEN 1 AND 64)
) PARTITION BY HASH (user_id);

CREATE TABLE user_coupon_0 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 0);
CREATE TABLE user_coupon_1 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 1);
CREATE TABLE user_coupon_2 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 2);
CREATE TABLE user_coupon_3 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 3);
CREATE TABLE user_coupon_4 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 4);
CREATE TABLE user_coupon_5 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 5);
CREATE TABLE user_coupon_6 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 6);
CREATE TABLE user_coupon_7 PARTITION OF user_coupon FOR VALUES WITH (MODULUS 8, REMAINDER 7);

-- The rights of the old table, also those that an operator has granted.
DO $$
DECLARE
	granted record;
BEGIN
	FOR granted IN
		SELECT a.privilege_type, a.is_grantable,
			CASE WHEN a.grantee = 0 THEN 'PUBLIC'
				ELSE quote_ident(r.rolname) END AS grantee
		FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
			LEFT JOIN pg_roles AS r ON r.oid = a.grantee
		WHERE c.oid = 'couponmq_user_number.user_coupon'::regclass
			AND a.grantee <> c.relowner
	LOOP
		EXECUTE format('GRANT %s ON user_coupon TO %s %s', granted.privilege_type,
			granted.grantee,
			CASE WHEN granted.is_grantable THEN 'WITH GRANT OPTION' END);
	END LOOP;
END
$$;

-- In the order in which the rows lie, so that those of one campaign still lie together.
DO $$
DECLARE
	pages_max CONSTANT bigint := 4096;
	part      record;
	page      bigint;
	done      bigint := 0;
	total     bigint;
BEGIN
	SELECT coalesce(sum(pg_relation_size(relid)), 0) / current_setting('block_size')::int
	INTO total
	FROM pg_partition_tree('couponmq_user_number.user_coupon') WHERE isleaf;
	FOR part IN
		SELECT relid::regclass AS id,
			pg_relation_size(relid) / current_setting('block_size')::int AS pages
		FROM pg_partition_tree('couponmq_user_number.user_coupon') WHERE isleaf
		ORDER BY relid
	LOOP
		page := 0;
		WHILE page < part.pages LOOP
			EXECUTE format('INSERT INTO user_coupon
				SELECT user_id::text, coupon_id, slot, idx, batch, received_at,
					valid_from, valid_to, key
				FROM %s WHERE ctid >= %L AND ctid < %L', part.id,
				format('(%s,0)', page), format('(%s,0)', page + pages_max));
			done := done + least(pages_max, part.pages - page);
			page := page + pages_max;
			RAISE INFO 'progress rows % %', done, total;
		END LOOP;
	END LOOP;
END
$$;

-- Each partition's first: so the bar moves, and the table's own are then only attached to them.
DO $$
BEGIN
	FOR i IN 0 .. 7 LOOP
		EXECUTE format('ALTER TABLE user_coupon_%s
			ADD PRIMARY KEY (user_id, coupon_id, slot)', i);
		IF EXISTS (SELECT FROM user_coupon) THEN
			RAISE INFO 'progress indexes % %', i + 1, 8;
		END IF;
	END LOOP;
END
$$;
ALTER TABLE user_coupon ADD PRIMARY KEY (user_id, coupon_id, slot);
CREATE INDEX user_coupon_by_coupon ON user_coupon USING brin (coupon_id)
	WITH (pages_per_range = 32, autosummarize = on);

DROP TABLE couponmq_user_number.user_coupon;
DROP SCHEMA couponmq_user_number;
ANALYZE user_coupon, receive_rejected;

