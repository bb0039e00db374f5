-- What orders do with receives: hold, use, give back.

-- A receive that was ever named by an order, as it is now. user_coupon is not touched: its rows
-- are only inserted. No index may cover `state`, in its columns or in its predicate: then a use
-- without a hold is a HOT update.
CREATE TABLE receive_use (
	coupon_id  bigint NOT NULL,
	batch      uuid NOT NULL,
	idx        smallint NOT NULL,
	user_id    text COLLATE "C" NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	state      text NOT NULL DEFAULT 'free' CHECK (state IN ('free', 'held', 'used')),
	order_id   text COLLATE "C" CHECK (octet_length(order_id) BETWEEN 1 AND 64),
	until      timestamptz,                   -- of a hold; from then on the receive is free
	amount_off bigint CHECK (amount_off >= 0), -- NULL: not known
	budget     text COLLATE "C",              -- that amount_off is held in, or was taken from
	PRIMARY KEY (coupon_id, batch, idx),
	CONSTRAINT receive_use_order CHECK ((order_id IS NULL) = (state = 'free')
		AND (until IS NULL) = (state <> 'held')
		AND (budget IS NULL OR (state <> 'free' AND amount_off IS NOT NULL)))
) WITH (fillfactor = 60);

-- For ends of holds.
CREATE INDEX receive_use_until ON receive_use (until) WHERE until IS NOT NULL;

-- Every operation on a receive, also one that was refused: a late copy of its message finds it
-- here, and does nothing. Rows are only added, and refusals removed again after some days.
CREATE TABLE use_operation (
	coupon_id  bigint NOT NULL,
	batch      uuid NOT NULL,
	idx        smallint NOT NULL,
	action     text NOT NULL CHECK (action IN ('hold', 'use', 'release', 'rollback', 'expire')),
	key        text COLLATE "C" NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
	num        bigint GENERATED ALWAYS AS IDENTITY, -- of a receive: in the order of commits
	at         timestamptz NOT NULL,
	user_id    text COLLATE "C" NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	by_key     text,                       -- the id of the API key; NULL: none
	order_id   text COLLATE "C" NOT NULL CHECK (octet_length(order_id) BETWEEN 1 AND 64),
	-- What became of it: 'held', 'used', 'released', 'rolled_back', or why it was refused;
	-- 'kept': because of another receive of the request.
	result     text NOT NULL CHECK (result IN ('held', 'used', 'released', 'rolled_back',
		'kept', 'not_found', 'held_by_other', 'already_used', 'expired', 'not_valid_yet',
		'voided', 'budget_spent', 'below_threshold', 'amount_needed', 'currency_wrong',
		'not_used', 'amount_exceeded')),
	from_state text CHECK (from_state IN ('free', 'held', 'used')), -- NULL: no such receive
	to_state   text CHECK (to_state IN ('free', 'held', 'used')),   -- NULL: it did not change
	until      timestamptz,
	-- The amount of the order; of a rollback what it gives back of the discount, NULL: all.
	amount     bigint CHECK (amount >= 0),
	currency   text CHECK (currency ~ '^[A-Z]{3}$'),
	amount_off bigint CHECK (amount_off >= 0), -- the discount, as it is then
	budget     text COLLATE "C",
	reason     text CHECK (length(reason) <= 200),
	nth        smallint NOT NULL DEFAULT 0, -- which receive of the operation it is
	PRIMARY KEY (coupon_id, batch, idx, action, key)
);

-- For a key that is used again for another request: two of them on different receives, which are
-- executed at the same time, wait for each other here.
CREATE UNIQUE INDEX use_operation_key ON use_operation (key, action, by_key, nth)
	NULLS NOT DISTINCT WHERE action <> 'expire';

-- For the removal of those that changed nothing.
CREATE INDEX use_operation_unchanged ON use_operation (at) WHERE to_state IS NULL;

-- What Redis has as well, by number; the statements uses_latest and uses_page repeat the predicate.
CREATE INDEX use_operation_num ON use_operation (num)
	WHERE to_state IS NOT NULL AND action <> 'expire';
