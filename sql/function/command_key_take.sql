-- version: 1
-- function: command_key_take(text,text,text)
--
-- Records the key of a command, in the transaction of what it makes. Of a key that another command
-- has, once that one has committed, what that was: is_same if it had the same words. The last
-- 100,000 are kept.
CREATE OR REPLACE FUNCTION command_key_take(
	its_key   text,
	name      text,
	its_words text)
RETURNS TABLE (is_new boolean, is_same boolean, made_by text, answer text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
DECLARE
	kept CONSTANT int := 100000;
	new_id bigint;
BEGIN
	INSERT INTO command_key (key, command, words) VALUES (its_key, name, its_words)
	ON CONFLICT (key) DO NOTHING
	RETURNING id INTO new_id;
	IF new_id IS NOT NULL THEN
		DELETE FROM command_key AS k WHERE k.id <= new_id - kept;
		RETURN QUERY SELECT true, true, name, NULL::text;
	ELSE
		-- A separate statement: it sees the row of the one that this has waited for.
		RETURN QUERY SELECT false, k.command = name AND k.words = its_words, k.command,
			k.answer
		FROM command_key AS k
		WHERE k.key = its_key;
	END IF;
END
$$;
