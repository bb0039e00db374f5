-- version: 1
-- function: coupon_recover_done(smallint[],bigint[],text,bigint,text,text)
--
-- Ends a recovery, and records it: raises the numbers of change_count above those in Redis, so that
-- PostgreSQL is not behind any more. It lowers none.
CREATE OR REPLACE FUNCTION coupon_recover_done(
	stripes      smallint[],
	nums         bigint[],
	how          text,
	transactions bigint,
	server       text,
	former       text)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
	INSERT INTO recovery (made_by, how, transactions, server, former)
	VALUES (coalesce(nullif(current_setting('couponmq.by', true), ''), session_user),
		coupon_recover_done.how, coupon_recover_done.transactions,
		coupon_recover_done.server, nullif(coupon_recover_done.former, ''));
	INSERT INTO change_count AS c (stripe, num)
	SELECT r.stripe, r.num + 1 FROM unnest(stripes, nums) AS r (stripe, num)
	ON CONFLICT (stripe) DO UPDATE SET num = greatest(c.num + 1, excluded.num);
$$;
