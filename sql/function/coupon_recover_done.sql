-- version: 1
-- function: coupon_recover_done(smallint[],bigint[],text,bigint,text,text)
--
-- Ends a recovery, and records it: raises the numbers of change_count above those in Redis, so that
-- PostgreSQL is not behind any more. It lowers none. Who may not void receives ends only one of the
-- tail, where no transaction is missing that did more than to settle.
CREATE OR REPLACE FUNCTION coupon_recover_done(
	stripes      smallint[],
	nums         bigint[],
	how          text,
	transactions bigint,
	server       text,
	former       text)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	IF NOT has_function_privilege(session_user,
			'coupon_void(bigint,uuid,smallint,text,text)', 'EXECUTE')
		AND (coupon_recover_done.how <> 'tail' OR EXISTS (
			SELECT FROM unnest(stripes, nums) AS r (stripe, num)
				LEFT JOIN change_count AS c USING (stripe)
			WHERE r.stripe < 64 AND r.num > coalesce(c.num, 0))) THEN
		RAISE EXCEPTION 'this recovery is %, and what operators changed may be missing',
			coupon_recover_done.how
			USING ERRCODE = 'insufficient_privilege';
	END IF;
	INSERT INTO recovery (made_by, how, transactions, server, former)
	VALUES (coalesce(nullif(current_setting('couponmq.by', true), ''), session_user),
		coupon_recover_done.how, coupon_recover_done.transactions,
		coupon_recover_done.server, nullif(coupon_recover_done.former, ''));
	INSERT INTO change_count AS c (stripe, num)
	SELECT r.stripe, r.num + 1 FROM unnest(stripes, nums) AS r (stripe, num)
	ON CONFLICT (stripe) DO UPDATE SET num = greatest(c.num + 1, excluded.num);
END
$$;
