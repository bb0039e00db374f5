-- version: 1
-- function: command_end(bigint,smallint)
--
-- Records how a command ended. Only once.
CREATE OR REPLACE FUNCTION command_end(
	command_id  bigint,
	exit_status smallint)
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
	UPDATE command_history SET status = exit_status
	WHERE id = command_id AND status IS NULL
$$;
