-- API keys: who may ask the gateways for what; see docs/guides/security.md. All changes are made by
-- functions, which number them.

-- The secret of a key is not stored, only the SHA-256 of its whole text: 256 random bits need no
-- slower hash. A key is never deleted, so its id is never used again, and that it was revoked is
-- never forgotten.
CREATE TABLE api_key (
	-- ten digits of Crockford's base32, in lower case
	id              text PRIMARY KEY CHECK (id ~ '^[0-9a-hjkmnp-tv-z]{10}$'),
	name            text NOT NULL CHECK (name ~ '^[A-Za-z0-9._-]{1,64}$'),
	roles           text[] NOT NULL CHECK (cardinality(roles) > 0
		AND roles <@ ARRAY['admin', 'campaign', 'issue', 'monitor', 'read', 'use']),
	coupons         bigint[]                -- NULL: every one
		CHECK (cardinality(coupons) BETWEEN 1 AND 256 AND 1 <= ALL (coupons)
			AND array_position(coupons, NULL) IS NULL),
	budgets         text[]                  -- NULL: every one; with coupons: none
		CHECK (budgets IS NULL OR coupons IS NOT NULL
			AND cardinality(budgets) BETWEEN 1 AND 64
			AND array_position(budgets, NULL) IS NULL),
	expires_at      timestamptz,            -- NULL: never
	rate            int                     -- requests per second; NULL: no limit of its own
		CHECK (rate BETWEEN 1 AND 1000000),
	sha256          bytea NOT NULL CHECK (octet_length(sha256) = 32),
	previous_sha256 bytea CHECK (octet_length(previous_sha256) = 32), -- before it was rotated
	previous_until  timestamptz,
	revoked_at      timestamptz,            -- for ever
	version         bigint NOT NULL UNIQUE, -- the number of its last change
	created_at      timestamptz NOT NULL DEFAULT now(),
	created_by      text NOT NULL,
	by              text NOT NULL,          -- who made the last change
	CHECK ((previous_sha256 IS NULL) = (previous_until IS NULL))
);

-- The number of the last change of any key. It only grows, and its row is locked until the change
-- is committed: changes are committed in the order of their numbers, so who has read this number
-- and then all keys above another one has missed none. Redis has a copy of it with the keys: a
-- PostgreSQL whose number is below the copy was put back to an earlier moment. Hence these changes
-- are not counted in change_count, too, and one more revocation cannot hide that there was a loss.
CREATE TABLE api_key_version (
	is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
	num    bigint NOT NULL CHECK (num BETWEEN 0 AND 9007199254740991)
);
INSERT INTO api_key_version (num) VALUES (0);
