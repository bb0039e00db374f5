-- Ends what rebuild_begin began.
COMMIT
