-- Events: what happens to receives and campaigns, for other systems; see docs/guides/events.md.

-- Events that are not published yet: a row is events of one type of one transaction. Its id is
-- taken while the transaction holds the locks of all its coupons. So the ids of the rows of a
-- coupon are in the order of its commits, and who sees a row sees all earlier rows of its coupons.
-- That is why the sequence must not have a cache. Orders lock receives, not coupons: the same holds
-- for the rows of a receive.
CREATE TABLE event_log (
	id            bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
	made_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
	type          text NOT NULL CHECK (type IN ('coupon.issued', 'coupon.rejected',
		'coupon.voided', 'coupon.held', 'coupon.used', 'coupon.released',
		'coupon.rolled_back', 'coupon.expiring', 'campaign.changed')),
	num           int NOT NULL CHECK (num > 0), -- how many events
	coupon        bigint[] NOT NULL,            -- of each; a single one: of all of them
	-- Receives: element i of each array is one event.
	batch         uuid[],
	idx           smallint[],
	user_id       text[],
	slot          smallint[],
	key           text[],                       -- '' is none
	at_ms         bigint[],                     -- when it was accepted
	reason        text[],                       -- of a rejection
	trace         text[],                       -- '' is none: see docs/guides/events.md
	-- How long the issued receives of a coupon are valid: those of one time of acceptance, or
	-- (0) of any. From then on (0: from the receive); for so many days (0: not told in days),
	-- or until then (0: no end).
	valid_coupon  bigint[],
	valid_at_ms   bigint[],
	valid_from_ms bigint[],
	valid_days    int[],
	valid_to_ms   bigint[],
	history_id    bigint[],                     -- campaign_history.id, use_operation.num
	detail        jsonb[]                       -- an object: further members of its data
) WITH (
	-- Every row is deleted soon.
	autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
	toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 50000
);

-- Where PostgreSQL has it: the standard method takes as long as all else that a row costs.
DO $$
BEGIN
	ALTER TABLE event_log ALTER coupon SET COMPRESSION lz4, ALTER batch SET COMPRESSION lz4,
		ALTER idx SET COMPRESSION lz4, ALTER user_id SET COMPRESSION lz4,
		ALTER slot SET COMPRESSION lz4, ALTER key SET COMPRESSION lz4,
		ALTER at_ms SET COMPRESSION lz4, ALTER reason SET COMPRESSION lz4,
		ALTER history_id SET COMPRESSION lz4, ALTER detail SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
	NULL;
END
$$;

-- How far coupon.expiring was told of the user coupons of a campaign with tell_before: see
-- expiring_tell(). A table of its own, because the row of the coupon is hot.
CREATE TABLE expiry_notice (
	coupon_id  bigint PRIMARY KEY,
	told_to    timestamptz NOT NULL,  -- user coupons that end by then are told, or in the pass,
	before     interval NOT NULL,     -- if they were received so long before their end
	old_to     timestamptz[] NOT NULL DEFAULT '{}', -- and those that were told by earlier
	old_before interval[] NOT NULL DEFAULT '{}',    -- terms
	pass_from  timestamptz,           -- the pass tells those that end after it; NULL: none
	is_read    boolean NOT NULL DEFAULT false, -- expiry_part has all of them
	next_at    timestamptz NOT NULL,  -- when the next pass is due; 'infinity': never
	valid_days int,                   -- of the coupon, as next_at supposes it
	valid_to   timestamptz,
	issued_num bigint
);

-- The user coupons that a pass still has to tell. Element i of the arrays is one.
CREATE TABLE expiry_part (
	coupon_id  bigint NOT NULL,
	part       int NOT NULL,
	user_id    text[] NOT NULL,
	slot       smallint[] NOT NULL,
	batch      uuid[] NOT NULL,
	idx        smallint[] NOT NULL,
	PRIMARY KEY (coupon_id, part)
);

-- The user coupons that settle() has told by itself before a pass had read all of them, and that it
-- must not tell again.
CREATE TABLE expiry_late (
	coupon_id  bigint NOT NULL,
	user_id    text COLLATE "C" NOT NULL,
	slot       smallint NOT NULL,
	PRIMARY KEY (coupon_id, user_id, slot)
);
