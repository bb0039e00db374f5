-- version: 1
-- function: campaign_state(text,timestamptz,timestamptz,timestamptz)
--
-- The state of a campaign at a moment. PostgreSQL stores what operators decide; when a campaign
-- opens and ends within that, the clock decides.
CREATE OR REPLACE FUNCTION campaign_state(
	status   text,
	begin_at timestamptz,
	end_at   timestamptz,
	at       timestamptz)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
	SELECT CASE
		WHEN status = 'draft' THEN 'draft'
		WHEN status = 'closed' OR end_at <= at THEN 'ended'
		WHEN status = 'paused' THEN 'paused'
		WHEN begin_at > at THEN 'scheduled'
		ELSE 'issuing' END
$$;
