-- What operators ask for.

-- Each command that changes something, from before it does, in the order of the ids. It is written
-- by command_begin() and command_end(). What it changed of a campaign or a budget is in their own
-- histories.
CREATE TABLE command_history (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	made_by text NOT NULL,
	command text NOT NULL, -- 'webhook edit'
	words   text NOT NULL, -- its arguments and options, without exchange codes
	status  smallint,      -- of its exit; NULL: it has not ended, or was killed
	why     text           -- the last sentence about a failure; NULL: there is none
);

-- What waits until a second person has agreed, or has waited: see couponctl approval. The last
-- 100,000 are kept.
CREATE TABLE approval (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	command    text NOT NULL,            -- 'close'
	request    json NOT NULL,            -- of couponctl --api, without by and key
	asked_by   text NOT NULL,
	asked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
	expires_at timestamptz NOT NULL,     -- after that it cannot be given
	state      text NOT NULL DEFAULT 'waiting'
		CHECK (state IN ('waiting', 'given', 'done', 'refused')), -- done: it was run
	decided_by text,
	decided_at timestamptz,
	CHECK ((state = 'waiting') = (decided_by IS NULL)
		AND (decided_by IS NULL) = (decided_at IS NULL)),
	CHECK (state NOT IN ('given', 'done') OR decided_by <> asked_by)
);

-- The keys of commands (--key, Idempotency-Key), each written in the transaction of what its
-- command makes, by command_key_take() and command_key_answer(): a copy of the command finds it,
-- and makes nothing.
CREATE TABLE command_key (
	key     text COLLATE "C" PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 255),
	id      bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order
	made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	command text NOT NULL, -- 'budget create'
	words   text NOT NULL, -- the SHA-256 of its arguments and options, in hexadecimal
	answer  text           -- what it printed, as JSON, without secrets; NULL: it may run again
);
