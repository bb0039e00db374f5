-- version: 1
-- function: command_key_answer(text,text)
--
-- Records what the command with this key prints. Only once.
CREATE OR REPLACE FUNCTION command_key_answer(
	its_key    text,
	its_answer text)
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
	UPDATE command_key SET answer = its_answer WHERE key = its_key AND answer IS NULL
$$;
