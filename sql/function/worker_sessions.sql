-- version: 1
-- function: worker_sessions()
--
-- What the sessions of workers do, for couponctl audit: a role sees this of its own sessions only.
-- The owner of this function is a member of couponmq_worker (sql/roles.sql).
CREATE OR REPLACE FUNCTION worker_sessions()
RETURNS TABLE (pid int, name text, state text, xact_start timestamptz, state_change timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
	SELECT a.pid, a.application_name, a.state, a.xact_start, a.state_change
	FROM pg_stat_activity AS a
	WHERE a.application_name LIKE 'coupon-worker%' AND a.state IS NOT NULL
$$;
