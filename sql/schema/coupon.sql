-- The coupon: its terms, its counts, and those of its generations.

CREATE SEQUENCE coupon_id_seq AS bigint START WITH 1001;

-- One row of this table is as hot as its campaign: every settlement updates it. No index may cover
-- issued_num, seq_seen, settled_num or outcome_at, in its columns or in its predicate, and the
-- pages keep room: then every such update is a HOT one.
CREATE TABLE coupon (
	id          bigint PRIMARY KEY CHECK (id > 0),
	name        text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
	total_num   bigint NOT NULL CHECK (total_num >= 0),
	issued_num  bigint NOT NULL DEFAULT 0,
	user_limit  int NOT NULL DEFAULT 1 CHECK (user_limit BETWEEN 1 AND 100),
	begin_at    timestamptz CHECK (isfinite(begin_at)),
	end_at      timestamptz CHECK (isfinite(end_at)),
	-- The validity of a receive: so many days from the receive, or two dates, or (all NULL)
	-- from the receive without an end. Nobody could use what is issued after valid_to. So
	-- issuing ends at least(end_at, valid_to), which is the end that Redis and the keeper have.
	valid_days  int CHECK (valid_days BETWEEN 1 AND 36500),
	valid_from  timestamptz CHECK (isfinite(valid_from)),
	valid_to    timestamptz CHECK (isfinite(valid_to)),
	valid_xid   xid8,          -- the transaction that last set it; NULL: none since creation
	zone        text NOT NULL DEFAULT 'UTC'                -- in which people write these times
		CHECK (zone ~ '^[A-Za-z0-9_+/-]{1,64}$'),
	-- What a user gets; see discount(). Amounts are in the smallest unit of the currency.
	currency    text CHECK (currency ~ '^[A-Z]{3}$'),      -- ISO 4217
	amount_off  bigint CHECK (amount_off > 0),
	percent_off numeric(5,2) CHECK (percent_off > 0 AND percent_off <= 100),
	threshold   bigint CHECK (threshold > 0),              -- for purchases from this on
	cap         bigint CHECK (cap > 0),                    -- the most that is taken off
	budget      text COLLATE "C",                          -- that pays for it
	metadata    jsonb CHECK (jsonb_typeof(metadata) = 'object'
		AND octet_length(metadata::text) <= 8192),
	-- Whether a voided receive gives back its piece of the stock and its slot: both or neither.
	void_returns boolean NOT NULL DEFAULT true,
	events_on   boolean NOT NULL DEFAULT false,
	tell_before bigint CHECK (tell_before BETWEEN 60 AND 31536000), -- s: coupon.expiring
	hidden      boolean NOT NULL DEFAULT false,          -- no offer: only who knows it asks
	tags        text[] COLLATE "C" NOT NULL DEFAULT '{}' -- by which it is found
		CHECK (cardinality(tags) <= 16
			AND array_to_string(tags, ',', '') ~ '^([a-z0-9._-]{1,32}(,|$))*$'),
	status      text NOT NULL DEFAULT 'draft'
		CHECK (status IN ('draft', 'published', 'paused', 'closed')),
	pause_reason text CHECK (pause_reason = 'budget'), -- NULL: not paused, or by an operator
	version     int NOT NULL DEFAULT 1,     -- of the terms
	created_at  timestamptz NOT NULL DEFAULT now(),
	updated_at  timestamptz NOT NULL DEFAULT now(),

	generation  int NOT NULL DEFAULT 0,     -- 0: never loaded into Redis
	generation_folded int NOT NULL DEFAULT 0, -- the highest one that is folded: see below
	seq_seen    bigint NOT NULL DEFAULT 0,  -- the highest number of a settled receive of it
	settled_num bigint NOT NULL DEFAULT 0,  -- how many receives of it have their outcome
	outcome_at  timestamptz,                -- the last outcome
	late_num    bigint NOT NULL DEFAULT 0,  -- outcomes of receives of other generations
	settled_at  timestamptz,                -- closed, and nothing is in flight any more
	expires_at  timestamptz,                -- when its keys in Redis expire; NULL: never
	revocation_num bigint NOT NULL DEFAULT 0, -- of the last revocation of its codes
	rebuild_asked int NOT NULL DEFAULT 0,   -- how often couponctl asked for a rebuild
	rebuild_done  int NOT NULL DEFAULT 0,   -- how many of these the keeper has answered
	rebuild_told  text,                     -- its last answer

	CONSTRAINT coupon_never_oversold CHECK (issued_num BETWEEN 0 AND total_num),
	CONSTRAINT coupon_window CHECK (begin_at < end_at),
	CONSTRAINT coupon_validity CHECK (
		(valid_from IS NULL) = (valid_to IS NULL)
		AND (valid_days IS NULL OR valid_from IS NULL)
		AND coalesce(valid_from < valid_to, true)),
	CONSTRAINT coupon_discount CHECK (
		(amount_off IS NULL OR percent_off IS NULL)
		AND (cap IS NULL OR percent_off IS NOT NULL)
		AND (currency IS NOT NULL
			OR (amount_off IS NULL AND threshold IS NULL AND cap IS NULL))),
	CONSTRAINT coupon_budget FOREIGN KEY (budget, currency) REFERENCES budget (name, currency),
	CONSTRAINT coupon_budget_discount CHECK (budget IS NULL
		OR (currency IS NOT NULL AND coalesce(amount_off, percent_off) IS NOT NULL)),
	CONSTRAINT coupon_tell_before CHECK (tell_before IS NULL OR events_on),
	CONSTRAINT coupon_pause_reason CHECK (pause_reason IS NULL OR status = 'paused'),
	CONSTRAINT coupon_counts CHECK (generation >= 0 AND seq_seen >= 0 AND settled_num >= 0)
) WITH (fillfactor = 25);

-- What the keeper has to look at; the statements coupon_page and coupon_expiring_page repeat the
-- predicates.
CREATE INDEX coupon_watched ON coupon (id)
	WHERE status IN ('published', 'paused')
		OR (status = 'closed' AND (settled_at IS NULL OR expires_at IS NULL));
CREATE INDEX coupon_expiring ON coupon (expires_at, id)
	WHERE settled_at IS NOT NULL AND expires_at IS NOT NULL;

-- Serves the keeper's statement budget_due.
CREATE INDEX coupon_budget ON coupon (budget)
	WHERE (budget IS NOT NULL AND status = 'published') OR pause_reason IS NOT NULL;

-- Serves the statement expiring_due.
CREATE INDEX coupon_telling ON coupon (id) WHERE tell_before IS NOT NULL;

-- The counts of generations that are no longer current. The oldest ones of a coupon are folded into
-- one row of generation 0, with the sums: see sql/function/coupon_generation_open.sql.
CREATE TABLE coupon_generation (
	coupon_id   bigint NOT NULL,
	generation  int NOT NULL,
	seq_seen    bigint NOT NULL,
	settled_num bigint NOT NULL,
	outcome_at  timestamptz NOT NULL DEFAULT now(), -- no earlier than the generation's end
	PRIMARY KEY (coupon_id, generation)
) WITH (fillfactor = 50);

CREATE TRIGGER coupon_insert_wait BEFORE INSERT ON coupon
	FOR EACH STATEMENT EXECUTE FUNCTION coupon_insert_wait();

CREATE TRIGGER coupon_unsettle AFTER UPDATE OF issued_num, settled_num ON coupon
	FOR EACH ROW WHEN (NEW.settled_at IS NOT NULL)
	EXECUTE FUNCTION coupon_unsettle();

-- settle() sets none of the columns of the next three, and does not pay for them.
CREATE TRIGGER coupon_changing BEFORE UPDATE OF status, valid_days, valid_from, valid_to ON coupon
	FOR EACH ROW EXECUTE FUNCTION coupon_changing();

CREATE TRIGGER coupon_changed
	AFTER INSERT OR UPDATE OF name, total_num, user_limit, begin_at, end_at, valid_days,
		valid_from, valid_to, status, version, currency, amount_off, percent_off, threshold,
		cap, budget, metadata, void_returns, events_on, tell_before, zone, tags, hidden
		ON coupon
	FOR EACH ROW EXECUTE FUNCTION coupon_changed();

CREATE TRIGGER coupon_change_count
	AFTER INSERT OR UPDATE OF name, total_num, user_limit, begin_at, end_at, valid_days,
		valid_from, valid_to, status, version, generation, settled_at ON coupon
	FOR EACH STATEMENT EXECUTE FUNCTION coupon_change_count();
