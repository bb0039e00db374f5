-- The next page of rebuild_rows.
FETCH 512 FROM rebuild_rows
