-- The next page of rebuild_revoked.
FETCH 512 FROM rebuild_revoked
