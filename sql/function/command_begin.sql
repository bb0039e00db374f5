-- version: 1
-- function: command_begin(text,text,text)
--
-- Records a command that is about to change something, and who makes the changes of this session
-- (couponmq.by, for the histories). Returns its id. The last 100,000 are kept.
CREATE OR REPLACE FUNCTION command_begin(
	command_by text,
	name       text,
	its_words  text)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
DECLARE
	kept CONSTANT int := 100000;
	new_id bigint;
BEGIN
	PERFORM set_config('couponmq.by', command_by, false);
	INSERT INTO command_history (made_by, command, words)
	VALUES (command_by, name, left(its_words, 4000))
	RETURNING id INTO new_id;
	DELETE FROM command_history WHERE id <= new_id - kept;
	RETURN new_id;
END
$$;
