-- The role of each program, which it logs in as, and all that it may do, in one place. couponctl
-- migrate applies this file whenever it, or a right in the database, has changed. Whatever is not
-- granted here is taken away. A test compares it with the tables, sequences and functions that
-- there are.
--
-- Functions that change more than their caller may are SECURITY DEFINER, with a fixed search_path:
-- user coupons, rejections, voids, events and the history of campaigns are written only by them.

-- The administrator gives each role LOGIN and a password. couponmq_app has all three: for people,
-- and for installations with one login.
DO $$
DECLARE
	role text;
BEGIN
	FOREACH role IN ARRAY ARRAY['couponmq_app', 'couponmq_gateway', 'couponmq_worker',
			'couponmq_operator'] LOOP
		BEGIN
			IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
				EXECUTE format('CREATE ROLE %I NOLOGIN', role);
			END IF;
		EXCEPTION
			-- Roles belong to the cluster: another database may be migrated now.
			WHEN duplicate_object OR unique_violation THEN NULL;
			WHEN insufficient_privilege THEN
				RAISE EXCEPTION 'run as a superuser: CREATE ROLE %', role;
		END;
		BEGIN
			IF NOT pg_has_role('couponmq_app', role, 'member') THEN
				EXECUTE format('GRANT %I TO couponmq_app', role);
			END IF;
		EXCEPTION
			WHEN unique_violation THEN NULL;
			WHEN insufficient_privilege THEN
				RAISE WARNING 'run as a superuser: GRANT % TO couponmq_app', role;
		END;
	END LOOP;
	-- What a synchronous standby has; see the statement commit_check. Members of pg_monitor, as
	-- the owner may be, have it already.
	FOREACH role IN ARRAY ARRAY['couponmq_gateway', 'couponmq_worker', 'couponmq_operator',
			current_user::text] LOOP
		BEGIN
			IF NOT pg_has_role(role, 'pg_read_all_stats', 'usage') THEN
				EXECUTE format('GRANT pg_read_all_stats TO %I', role);
			END IF;
		EXCEPTION
			WHEN unique_violation THEN NULL;
			WHEN insufficient_privilege THEN
				RAISE WARNING 'run as a superuser: GRANT pg_read_all_stats TO %',
					role;
		END;
	END LOOP;
	-- See the function worker_sessions().
	IF NOT pg_has_role(current_user, 'couponmq_worker', 'usage') THEN
		EXECUTE format('GRANT couponmq_worker TO %I', current_user);
	END IF;
EXCEPTION
	WHEN unique_violation THEN NULL;
	WHEN insufficient_privilege THEN
		RAISE WARNING 'run as a superuser: GRANT couponmq_worker TO %', current_user;
END
$$;

DO $$
DECLARE
	roles CONSTANT text := 'PUBLIC, couponmq_app, couponmq_gateway, couponmq_worker,'
		' couponmq_operator';
	object text;
BEGIN
	FOR object IN
		SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END
			|| c.oid::regclass
		FROM pg_class AS c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
			AND c.relowner = current_user::regrole
		UNION ALL
		SELECT 'FUNCTION ' || p.oid::regprocedure
		FROM pg_proc AS p
		WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f'
			AND p.proowner = current_user::regrole
	LOOP
		EXECUTE format('REVOKE ALL ON %s FROM %s', object, roles);
	END LOOP;
END
$$;

REVOKE CREATE ON SCHEMA public
	FROM PUBLIC, couponmq_app, couponmq_gateway, couponmq_worker, couponmq_operator;
GRANT USAGE ON SCHEMA public
	TO couponmq_app, couponmq_gateway, couponmq_worker, couponmq_operator;

-- ---- the gateway: answers from PostgreSQL, and writes nothing but that it is there

GRANT SELECT ON api_key, api_key_version, budget, change_count, code, code_key, code_set,
	code_space, coupon, coupon_void, installation, keeper, receive_rejected, receive_use,
	user_coupon
	TO couponmq_gateway;
GRANT EXECUTE ON FUNCTION api_key_records(bigint, int),
	discount(bigint, numeric, bigint, bigint, bigint), gateway_alive(uuid, text, boolean),
	gateway_gone(uuid), use_shown(text, text, timestamptz) TO couponmq_gateway;

-- ---- workers, and the keeper, relay and webhooks in them

GRANT SELECT ON api_key, api_key_version, budget, campaign_transition, change_count, code,
	code_revocation, code_set, coupon, coupon_curve, coupon_generation, coupon_late,
	coupon_refusal, coupon_void, event_log, expiry_late, expiry_notice, expiry_part, gateway,
	installation, keeper, receive_rejected, receive_use, use_operation, user_coupon, webhook,
	webhook_delivery, webhook_secret
	TO couponmq_worker;
-- The keeper's part.
GRANT UPDATE (status, pause_reason, version, updated_at, settled_at, expires_at, rebuild_done,
	rebuild_told) ON coupon TO couponmq_worker;
GRANT UPDATE (seq_seen) ON coupon_generation TO couponmq_worker;
GRANT DELETE ON coupon_late TO couponmq_worker;
GRANT INSERT, DELETE ON coupon_curve TO couponmq_worker;
GRANT INSERT, UPDATE (num) ON coupon_refusal TO couponmq_worker;
GRANT UPDATE (freed_at) ON receive_rejected TO couponmq_worker;
GRANT UPDATE (generation, seq) ON code_revocation TO couponmq_worker;
GRANT UPDATE (fence, run_id) ON keeper TO couponmq_worker;
GRANT EXECUTE ON FUNCTION api_key_records(bigint, int),
	coupon_generation_open(bigint, int, int, bigint) TO couponmq_worker;
-- Settling.
GRANT EXECUTE ON FUNCTION
	settle(bigint[], int[], bigint[], uuid[], smallint[], text[], smallint[], text[], text[],
		bigint[], text[]),
	change_note(boolean) TO couponmq_worker;
-- What orders do with receives.
GRANT EXECUTE ON FUNCTION
	use(text[], text[], text[], text[], int[], bigint[], text[], text[], int[], bigint[],
		text[], uuid[], smallint[], text[]),
	use_free(text[], int), use_forget(int, int) TO couponmq_worker;
-- Recovery after PostgreSQL was put back: couponctl recover --tail.
GRANT EXECUTE ON FUNCTION
	coupon_recover_rejected(bigint, uuid[], smallint[], text[], smallint[], text[], bigint[],
		smallint[]),
	coupon_recover_end(bigint, int, int[], bigint[], bigint, bigint),
	coupon_recover_done(smallint[], bigint[], text, bigint, text, text),
	use_recover(text[]), use_recover_end(), command_begin(text, text, text),
	command_end(bigint, smallint, text) TO couponmq_worker;
-- Events and webhooks.
GRANT EXECUTE ON FUNCTION event_log_remove(bigint[], bigint[], text[], text[]),
	expiring_tell(bigint, int),
	webhook_lease(int, int, bigint),
	webhook_finish(bigint, int, text, int, text, bigint, bigint, bigint, bigint)
	TO couponmq_worker;
GRANT UPDATE (state), DELETE ON webhook_delivery TO couponmq_worker;
GRANT DELETE ON webhook_secret TO couponmq_worker;

-- ---- operators: couponctl

GRANT SELECT ON api_key, api_key_version, approval, budget, budget_history, campaign_history,
	campaign_transition, change_count, code, code_key, code_revocation, code_set, code_space,
	command_history, coupon, coupon_curve, coupon_generation, coupon_late, coupon_refusal,
	coupon_void, event_log, gateway, installation, keeper, receive_rejected, receive_use,
	recovery, schema_function, schema_migration, use_operation, user_coupon, webhook,
	webhook_delivery, webhook_secret
	TO couponmq_operator;
-- What they ask for is recorded, and not by themselves.
GRANT EXECUTE ON FUNCTION command_begin(text, text, text), command_end(bigint, smallint, text),
	command_key_take(text, text, text), command_key_answer(text, text) TO couponmq_operator;
-- What waits for a second person; couponctl itself does not ask.
GRANT INSERT (command, request, asked_by, expires_at), DELETE,
	UPDATE (state, decided_by, decided_at) ON approval TO couponmq_operator;
-- Campaigns. Not their counts, and not their history.
GRANT INSERT (id, name, total_num, user_limit, begin_at, end_at, valid_days, valid_from, valid_to,
		zone, currency, amount_off, percent_off, threshold, cap, budget, metadata,
		void_returns, events_on, tell_before, tags, hidden, status, pause_reason, version,
		created_at, updated_at),
	UPDATE (name, total_num, user_limit, begin_at, end_at, valid_days, valid_from, valid_to,
		zone, currency, amount_off, percent_off, threshold, cap, budget, metadata,
		void_returns, events_on, tell_before, tags, hidden, status, pause_reason, version,
		updated_at, rebuild_asked, revocation_num)
	ON coupon TO couponmq_operator;
GRANT SELECT, USAGE ON SEQUENCE coupon_id_seq TO couponmq_operator;
GRANT EXECUTE ON FUNCTION campaign_state(text, timestamptz, timestamptz, timestamptz),
	coupon_id_next(), coupon_void(bigint, uuid, smallint, text, text), change_note(boolean),
	use_shown(text, text, timestamptz), zone_text(timestamptz, text) TO couponmq_operator;
GRANT UPDATE (freed_at) ON receive_rejected TO couponmq_operator;
GRANT INSERT (name, currency, amount), UPDATE (amount, updated_at) ON budget TO couponmq_operator;
-- Exchange codes.
GRANT INSERT ON code_key, code_space, code_set TO couponmq_operator;
GRANT INSERT (set_id, serial, coupon_id, text, spelling, metadata, state, user_id, used_at,
	for_user, valid_to, revoked_at, revoked_by, revocation_num) ON code TO couponmq_operator;
GRANT UPDATE (completed_at, valid_to, edit_num) ON code_set TO couponmq_operator;
GRANT EXECUTE ON FUNCTION code_revoke(bigint[], bigint[], bigint[]) TO couponmq_operator;
GRANT UPDATE (generation, seq) ON code_revocation TO couponmq_operator;
-- API keys: each change takes the next number, and none is undone.
GRANT EXECUTE ON FUNCTION
	api_key_create(text, text, text[], bigint[], text[], timestamptz, int, bytea),
	api_key_records(bigint, int), api_key_restore(text[], bigint), api_key_revoke(text),
	api_key_rotate(text, bytea, bigint) TO couponmq_operator;
-- Webhooks: not their address, nor what is sent.
GRANT INSERT, DELETE, UPDATE (state, state_why, state_by, state_at, failures_num, failing_since,
	pause_until) ON webhook TO couponmq_operator;
GRANT INSERT, UPDATE (expires_at) ON webhook_secret TO couponmq_operator;
GRANT UPDATE (state, attempts, next_at) ON webhook_delivery TO couponmq_operator;
-- Audit, locks, rebuild, and recover after PostgreSQL was put back.
GRANT EXECUTE ON FUNCTION worker_sessions(), lock_fence(),
	receive_lost(bigint, int[], uuid[], smallint[], text[], smallint[], bigint[]),
	settle(bigint[], int[], bigint[], uuid[], smallint[], text[], smallint[], text[], text[],
		bigint[], text[]),
	coupon_recover_begin(bigint, int),
	coupon_recover_rejected(bigint, uuid[], smallint[], text[], smallint[], text[], bigint[],
		smallint[]),
	coupon_recover_end(bigint, int, int[], bigint[], bigint, bigint),
	coupon_recover_done(smallint[], bigint[], text, bigint, text, text),
	use_recover(text[]), use_recover_end() TO couponmq_operator;
GRANT UPDATE (seq_seen, settled_num) ON coupon_generation TO couponmq_operator;
GRANT UPDATE (fence) ON keeper TO couponmq_operator;

-- ---- for no program by itself
--
-- command_key is written by functions.
-- Partitions are read through user_coupon: user_coupon_0 to user_coupon_7. Numbers of rows:
-- approval_id_seq, budget_history_id_seq, campaign_history_id_seq, code_space_id_seq,
-- command_history_id_seq, command_key_id_seq, event_log_id_seq, lock_fence_seq, recovery_id_seq,
-- use_operation_num_seq, webhook_delivery_id_seq, webhook_id_seq, webhook_secret_id_seq. Triggers:
-- budget_changed(), coupon_change_count(), coupon_changed(), coupon_changing(),
-- coupon_insert_wait(), coupon_unsettle(), event_changed_add(), event_rejected_add(),
-- event_voided_add(). Called by other functions: api_key_next(), code_free(), code_take(),
-- coupon_generation_fold(), event_add(), event_expiring_add(), event_used_add(), use_begin(),
-- use_expire().
