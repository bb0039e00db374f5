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
