-- version: 1
-- function: command_end(bigint,smallint,text)
--
-- Records how a command ended, and why it failed. Only once.
CREATE OR REPLACE FUNCTION command_end(
	command_id  bigint,
	exit_status smallint,
	sentence    text)
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
	UPDATE command_history SET status = exit_status, why = sentence
	WHERE id = command_id AND status IS NULL
$$;
