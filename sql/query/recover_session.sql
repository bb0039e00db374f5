-- See change_note(): until its end, nothing that the recovery does may count as a change.
SELECT set_config('couponmq.recovering', 'on', false)
