-- What became of receives: issued, rejected, late, voided.

-- The primary key is the limit guard, the duplicate guard and the index by user. There is no B-tree
-- by coupon: it would double the work of the one statement that has to be fast, for readers
-- (loading Redis, audits) that can scan. No foreign key to coupon: it would lock the hot row before
-- everything is inserted.
CREATE TABLE user_coupon (
	user_id     text COLLATE "C" NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	coupon_id   bigint NOT NULL,
	slot        smallint NOT NULL CHECK (slot > 0),
	idx         smallint NOT NULL CHECK (idx >= 0),
	batch       uuid NOT NULL,
	received_at timestamptz NOT NULL,
	valid_from  timestamptz NOT NULL,
	valid_to    timestamptz,
	key         text CHECK (length(key) BETWEEN 1 AND 255),
	-- 'SET.SERIAL' of a code for one use, which has a row in `code`; 'SET' of a word.
	code        text COLLATE "C",
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

-- For reading one coupon's rows, or its latest. A campaign's rows were written in one stretch of
-- time, so they lie together.
CREATE INDEX user_coupon_by_coupon ON user_coupon USING brin (coupon_id, received_at)
	WITH (pages_per_range = 32, autosummarize = on);

-- The tombstones: a receive that is here is never issued, however late another copy of its message
-- arrives.
CREATE TABLE receive_rejected (
	coupon_id   bigint NOT NULL,
	batch       uuid NOT NULL,
	idx         smallint NOT NULL,
	user_id     text COLLATE "C" NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	slot        smallint NOT NULL,
	reason      text NOT NULL CHECK (reason IN ('unknown_coupon', 'slot_taken', 'slot_invalid',
		'out_of_stock', 'key_taken', 'lost', 'voided', 'code_used', 'code_invalid')),
	received_at timestamptz NOT NULL,
	rejected_at timestamptz NOT NULL DEFAULT now(),
	-- When what it holds in Redis was given back. NULL: not yet, or nobody knows.
	freed_at timestamptz,
	trace       text, -- as in event_log; NULL: none
	PRIMARY KEY (coupon_id, batch, idx)
);

CREATE INDEX receive_rejected_user ON receive_rejected (coupon_id, user_id);
-- The statement slot_free_pending repeats the predicate.
CREATE INDEX receive_rejected_pending ON receive_rejected (coupon_id, batch, idx)
	WHERE freed_at IS NULL;

CREATE TRIGGER event_rejected_add AFTER INSERT ON receive_rejected
	REFERENCING NEW TABLE AS added
	FOR EACH STATEMENT EXECUTE FUNCTION event_rejected_add();

-- The outcomes of receives of older generations that Redis has not counted yet, numbered densely
-- for each coupon. Those before the first are counted.
CREATE TABLE coupon_late (
	coupon_id  bigint NOT NULL,
	num        bigint NOT NULL,
	generation int NOT NULL,
	seq        bigint NOT NULL,
	user_id    text COLLATE "C" NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	slot       smallint NOT NULL,
	batch      uuid NOT NULL,
	idx        smallint NOT NULL,
	key        text NOT NULL,  -- '' is none
	reason     text,           -- of a rejected one; NULL: issued
	PRIMARY KEY (coupon_id, num)
);

-- User coupons that were taken back after they were issued. If their stock and their slot came back
-- as well, the row of user_coupon is gone, and receive_rejected has the receive; otherwise the row
-- stays, and counts.
CREATE TABLE coupon_void (
	coupon_id   bigint NOT NULL,
	batch       uuid NOT NULL,
	idx         smallint NOT NULL,
	user_id     text COLLATE "C" NOT NULL,
	slot        smallint NOT NULL,
	is_returned boolean NOT NULL,
	key         text, -- for couponctl distribute: what was given by it is not given again
	why         text,
	voided_by   text NOT NULL,
	voided_at   timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (coupon_id, batch, idx)
);

CREATE INDEX coupon_void_user ON coupon_void (coupon_id, user_id);

CREATE TRIGGER event_voided_add AFTER INSERT ON coupon_void
	FOR EACH ROW EXECUTE FUNCTION event_voided_add();
