-- For a session that is to hold a lock: the server ends it when nothing was asked of it for the
-- lease, and waits for the lock no longer than this (0: as long as it takes). Both in ms, as text.
SELECT set_config('idle_session_timeout', $1, false), set_config('lock_timeout', $2, false)
