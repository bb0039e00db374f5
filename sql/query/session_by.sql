-- Who makes the changes of this session, for campaign_history.
-- $1 a name
SELECT set_config('couponmq.by', $1::text, false)
