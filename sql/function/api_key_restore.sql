-- version: 1
-- function: api_key_restore(text[],bigint)
--
-- Takes keys back from Redis, in the JSON of api_key_records(), after PostgreSQL was put back to an
-- earlier moment: those that PostgreSQL does not have, those of which Redis has a later state, and
-- those that are revoked in Redis. Who is revoked here stays so. The number of changes is raised to
-- that of Redis first, and each key that changes here takes a higher one. So does a key that Redis
-- seems to have by its number, but has in an earlier state: its change, while Redis was away, took
-- a number anew that Redis knew from before. Then Redis is told of it like of any other change.
--
-- Returns a row for each of them: its place in the array, from 1, and whether it was 'created',
-- 'changed' or 'revoked', is to be 'told' to Redis, or is 'unreadable', and was left out.
CREATE OR REPLACE FUNCTION api_key_restore(
	records       text[],
	redis_version bigint)
RETURNS TABLE (ord int, what text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	made_by text := coalesce(nullif(current_setting('couponmq.by', true), ''), session_user);
	own     record;
	there   record;
BEGIN
	-- Nothing else changes until the end of the transaction.
	PERFORM FROM api_key_version FOR UPDATE;
	UPDATE api_key_version SET num = redis_version WHERE num < redis_version;
	FOR i IN 1 .. cardinality(records) LOOP
		ord := i;
		what := NULL;
		-- One that cannot be read must not keep back the others.
		BEGIN
			SELECT r.*, decode(r.sha256, 'hex') AS hash,
				timestamptz 'epoch' + r.expires_ms * interval '1 ms' AS expires_at,
				decode(r.previous ->> 'sha256', 'hex') AS previous_hash,
				timestamptz 'epoch' + (r.previous ->> 'until_ms')::bigint
					* interval '1 ms' AS previous_until
			INTO STRICT own
			FROM jsonb_to_record(records[i]::jsonb) AS r (id text, name text,
				version bigint, roles text[], coupons bigint[], budgets text[],
				expires_ms bigint, rate int, sha256 text, previous jsonb,
				revoked boolean);
			IF own.version IS NULL OR own.revoked IS NULL THEN
				RAISE invalid_parameter_value;
			END IF;
			SELECT k.version, k.revoked_at INTO there FROM api_key AS k
			WHERE k.id = own.id;
			what := CASE WHEN NOT FOUND THEN 'created'
				WHEN own.revoked THEN
					CASE WHEN there.revoked_at IS NULL THEN 'revoked' END
				WHEN there.revoked_at IS NULL AND there.version < own.version
					THEN 'changed'
				WHEN (there.revoked_at IS NOT NULL OR there.version > own.version)
					AND there.version <= redis_version THEN 'told' END;
			CONTINUE WHEN what IS NULL;
			IF what = 'told' THEN
				UPDATE api_key AS k SET version = api_key_next()
				WHERE k.id = own.id;
				RETURN NEXT;
				CONTINUE;
			END IF;
			UPDATE api_key_version SET num = greatest(num, own.version);
			INSERT INTO api_key AS k (id, name, roles, coupons, budgets, expires_at,
				rate, sha256, previous_sha256, previous_until, revoked_at, version,
				created_by, by)
			VALUES (own.id, own.name, own.roles, own.coupons, own.budgets,
				own.expires_at, own.rate, own.hash, own.previous_hash,
				own.previous_until,
				CASE WHEN own.revoked THEN now() END, api_key_next(), made_by,
				made_by)
			ON CONFLICT (id) DO UPDATE
			SET name = excluded.name, roles = excluded.roles,
				coupons = excluded.coupons, budgets = excluded.budgets,
				expires_at = excluded.expires_at,
				rate = excluded.rate, sha256 = excluded.sha256,
				previous_sha256 = excluded.previous_sha256,
				previous_until = excluded.previous_until,
				revoked_at = excluded.revoked_at, version = excluded.version,
				by = excluded.by;
		EXCEPTION
			WHEN data_exception OR integrity_constraint_violation THEN
				what := 'unreadable';
		END;
		RETURN NEXT;
	END LOOP;
END
$$;
