-- The gateway processes that there are, or may be: after a restart of Redis the keeper waits until
-- each of them has reported what it has seen; see docs/lifecycle.md.
CREATE TABLE gateway (
	id      uuid PRIMARY KEY,
	place   text NOT NULL CHECK (length(place) <= 1024),
	seen_at timestamptz NOT NULL DEFAULT now(),
	-- from then on it is gone: it has ended, or another process has taken its place
	gone_at timestamptz
);
