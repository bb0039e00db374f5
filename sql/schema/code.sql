-- Exchange codes; see docs/guides/codes.md.

-- Which keys have made codes. The keys are in a file, never here: by its fingerprint a file with
-- other keys is refused.
CREATE TABLE code_key (
	version     int PRIMARY KEY CHECK (version BETWEEN 1 AND 32767),
	fingerprint text NOT NULL UNIQUE CHECK (length(fingerprint) = 32),
	created_at  timestamptz NOT NULL DEFAULT now()
);

-- A form of codes, its pattern without dashes, under a key.
CREATE TABLE code_space (
	id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	form        text COLLATE "C" NOT NULL,
	alphabet    text COLLATE "C" NOT NULL,
	key_version int NOT NULL REFERENCES code_key,
	created_at  timestamptz NOT NULL DEFAULT now(),
	UNIQUE (form, alphabet, key_version)
);

-- Codes of one coupon. Generated ones are a range of positions in a space. The ranges of a space do
-- not overlap: the statement code_set_generate sees to that, under a lock. No foreign key to
-- coupon: coupons are never deleted.
CREATE TABLE code_set (
	id             bigint PRIMARY KEY CHECK (id > 0),
	coupon_id      bigint NOT NULL,
	kind           text NOT NULL CHECK (kind IN ('generated', 'imported', 'word')),
	space_id       int REFERENCES code_space,
	first_position bigint CHECK (first_position >= 0),
	code_num       bigint CHECK (code_num > 0),
	pattern        text,                       -- with its dashes
	for_user       text COLLATE "C"            -- who alone may claim them; NULL: anybody
		CHECK (octet_length(for_user) BETWEEN 1 AND 64),
	valid_to       timestamptz,                -- until when; NULL: as the campaign
	request        text UNIQUE,                -- by which a repeated command finds its set
	source         text,                       -- the name of the file
	completed_at   timestamptz,                -- the file is written, or read to its end
	edit_num       int NOT NULL DEFAULT 0,     -- how often valid_to was changed
	created_by     text NOT NULL,
	created_at     timestamptz NOT NULL DEFAULT now(),
	revoked_by     text,
	revoked_at     timestamptz,
	revocation_num bigint,                     -- which revocation; NULL: it is not revoked
	UNIQUE (space_id, first_position),
	CONSTRAINT code_set_range CHECK ((kind = 'generated') = (space_id IS NOT NULL)
		AND (space_id IS NULL) = (first_position IS NULL)
		AND (space_id IS NULL) = (code_num IS NULL)
		AND (space_id IS NULL) = (pattern IS NULL)
		AND first_position + code_num > first_position),
	CONSTRAINT code_set_revoked CHECK ((revoked_at IS NULL) = (revocation_num IS NULL))
);

CREATE INDEX code_set_coupon ON code_set (coupon_id);

CREATE TRIGGER code_set_change_count
	AFTER INSERT OR UPDATE ON code_set
	FOR EACH STATEMENT EXECUTE FUNCTION coupon_change_count();

-- A code that was used or revoked, and every code that others made. A generated code without a row
-- is unused. `serial` is the number of the code in its set, from 0; of an imported code that of its
-- row in the file.
-- No foreign keys: this table is written together with user coupons.
CREATE TABLE code (
	set_id         bigint NOT NULL,
	serial         bigint NOT NULL CHECK (serial >= 0),
	coupon_id      bigint NOT NULL,
	text           text COLLATE "C"    -- of those that others made: the one spelling
		CHECK (length(text) BETWEEN 1 AND 64),
	spelling       text,               -- as in the file; NULL: as `text`
	state          text NOT NULL CHECK (state IN ('unused', 'used', 'revoked')),
	user_id        text COLLATE "C" CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	batch          uuid,               -- with idx, coupon and user: the receive
	idx            smallint CHECK (idx >= 0),
	used_at        timestamptz,
	revoked_by     text,
	revoked_at     timestamptz,
	metadata       jsonb,
	for_user       text COLLATE "C"    -- of those that others made, as of a set; NULL: as it
		CHECK (octet_length(for_user) BETWEEN 1 AND 64),
	valid_to       timestamptz,
	-- Which revocation; NULL: the code is not revoked; 0: it was revoked when it was imported.
	-- A used code may have one too: it was claimed before, and is revoked as soon as its
	-- receive loses it.
	revocation_num bigint,
	PRIMARY KEY (set_id, serial),
	-- A code that was used when it was imported has no receive; when it was used, and by whom,
	-- may not be known.
	CONSTRAINT code_used CHECK ((batch IS NULL) = (idx IS NULL)
		AND CASE WHEN state <> 'used' THEN num_nonnulls(used_at, user_id, batch) = 0
			WHEN batch IS NULL THEN text IS NOT NULL
			ELSE used_at IS NOT NULL AND user_id IS NOT NULL END),
	CONSTRAINT code_revoked CHECK ((revoked_at IS NULL) = (revocation_num IS NULL)
		AND CASE state WHEN 'revoked' THEN revoked_at IS NOT NULL
			WHEN 'unused' THEN revoked_at IS NULL ELSE true END)
) WITH (fillfactor = 70); -- an imported code is changed once

-- Also who may have which word: no two sets have codes with one text.
CREATE UNIQUE INDEX code_text ON code (text) WHERE text IS NOT NULL;

-- Loading a coupon reads these.
CREATE INDEX code_revoked ON code (set_id, revocation_num) WHERE revocation_num > 0;

-- Revocations have numbers, by which Redis is compared with PostgreSQL; see
-- docs/about/lifecycle.md. What was accepted before a revocation: the receives of lower
-- generations, and of this one those with a number up to `seq`; NULL: all of them.
CREATE TABLE code_revocation (
	coupon_id  bigint NOT NULL,
	num        bigint NOT NULL CHECK (num > 0),
	generation int NOT NULL,
	seq        bigint,
	PRIMARY KEY (coupon_id, num)
);
