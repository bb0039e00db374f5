-- version: 1
-- function: use_forget(integer,integer)
--
-- Removes the rows of operations that changed nothing, at most so many, once they are so many
-- seconds old. Returns how many.
CREATE OR REPLACE FUNCTION use_forget(keep_s int, most int)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
DECLARE
	-- A condition with clock_timestamp(), which is volatile, would read the whole index.
	before  timestamptz := clock_timestamp() - keep_s * interval '1 s';
	removed int;
BEGIN
	DELETE FROM use_operation AS d WHERE d.ctid = ANY (ARRAY(
		SELECT o.ctid FROM use_operation AS o
		WHERE o.to_state IS NULL AND o.at < before
		ORDER BY o.at LIMIT most FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS removed = ROW_COUNT;
	RETURN removed;
END
$$;
