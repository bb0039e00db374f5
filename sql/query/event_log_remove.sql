-- Removes published rows of the event log; see sql/function/event_log_remove.sql.
-- $1 their ids, $2 coupons, $3 types, $4 events for webhooks
SELECT event_log_remove($1::bigint[], $2::bigint[], $3::text[], $4::text[])
