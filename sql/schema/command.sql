-- What operators ask for.

-- Each command that changes something, from before it does, in the order of the ids. It is written
-- by command_begin() and command_end(). What it changed of a campaign or a budget is in their own
-- histories.
CREATE TABLE command_history (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	made_by text NOT NULL,
	command text NOT NULL, -- 'webhook disable'
	words   text NOT NULL, -- its arguments and options, without exchange codes
	status  smallint       -- of its exit; NULL: it has not ended, or was killed
);
