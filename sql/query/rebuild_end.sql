-- Ends the transaction that rebuild_begin began.
COMMIT
