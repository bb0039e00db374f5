-- Sessions, processes and the installation.

-- change_counts: The numbers that only grow (see change_note()), the fence of the keeper, the id of
-- the installation, the number of the last change of an API key, and the server: its cluster, and
-- its timeline, NULL on a standby. pg_control_checkpoint() would return the timeline of the last
-- checkpoint, for minutes after a promotion the one before. `started` tells two starts of a server
-- apart. The columns are known by their order.
SELECT c.stripe, c.num, (SELECT fence FROM keeper) AS fence, i.id AS installation,
	(SELECT num FROM api_key_version) AS keys_version,
	(SELECT system_identifier FROM pg_control_system()) AS system,
	(SELECT CASE WHEN NOT pg_is_in_recovery()
		THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END)
		AS timeline,
	extract(epoch FROM pg_postmaster_start_time()) AS started
FROM installation AS i LEFT JOIN change_count AS c ON true
ORDER BY c.stripe

-- clock: The server's clock, in ms since the epoch.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms

-- commit_check: Whether a COMMIT waits for a standby, with COUPON_DATABASE_SYNCHRONOUS=yes: `why`
-- is why not, and '' if it does. A standby shows nothing: it may have a COMMIT for which its
-- primary still waits. `loaded` is when the server has read its settings. `is_reached`: each
-- synchronous standby has flushed the position, which is the present one with ''; what this role
-- may not see is NULL, and does not count.
-- $1 a position of the WAL, or ''; NULL: the standbys are not asked
SELECT CASE WHEN pg_is_in_recovery()
			THEN 'this server is a standby, and may have what the synchronous one lacks'
		WHEN current_setting('max_wal_senders') = '0'
			THEN 'max_wal_senders is 0: no COMMIT waits for a standby'
		WHEN current_setting('synchronous_standby_names') = ''
			THEN 'synchronous_standby_names is empty, and COUPON_DATABASE_SYNCHRONOUS'
				' is yes'
		WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
			THEN 'synchronous_commit is ' || current_setting('synchronous_commit')
				|| ', and with COUPON_DATABASE_SYNCHRONOUS=yes it must be on or'
				' remote_apply'
		WHEN NOT pg_has_role('pg_read_all_stats', 'usage')
			THEN 'the role ' || current_user || ' lacks pg_read_all_stats, which'
				' couponctl migrate grants: it cannot see what a standby has'
		ELSE '' END AS why,
	pg_conf_load_time() AS loaded, p.position,
	CASE WHEN p.position IS NOT NULL THEN
		(SELECT coalesce(bool_and(coalesce(r.flush_lsn >= p.position, false)), false)
		FROM pg_stat_replication AS r WHERE r.sync_state IN ('sync', 'quorum')) END
		AS is_reached
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN NULL
	WHEN $1::text = '' THEN pg_current_wal_flush_lsn() ELSE $1::text::pg_lsn END AS position
	OFFSET 0) AS p

-- doctor_server: How many sessions of clients there are and may be; where the data is, NULL for a
-- role that may not see it; and settings of roles of workers that weaken COMMIT.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
		AS sessions_num,
	current_setting('max_connections')::bigint
		- current_setting('superuser_reserved_connections')::bigint AS sessions_max,
	(SELECT setting FROM pg_settings WHERE name = 'data_directory') AS folder,
	(SELECT string_agg(r.rolname || ' has ' || s.setting, ', ' ORDER BY r.rolname)
	FROM pg_db_role_setting AS d
		CROSS JOIN unnest(d.setconfig) AS s (setting)
		JOIN pg_roles AS r ON r.oid = d.setrole
	WHERE s.setting = 'synchronous_commit=off'
		AND d.setdatabase IN (0, (SELECT oid FROM pg_database
			WHERE datname = current_database()))
		AND pg_has_role(r.oid, 'couponmq_worker', 'member')) AS weak

-- doctor_logins: The logins with which programs are connected to this database, and this session's:
-- the program, the versions that the names of its sessions have, and what the login may do.
SELECT s.program, s.login, string_agg(DISTINCT s.version, ', ') AS versions,
	r.rolsuper OR pg_has_role(r.oid, t.relowner, 'member') AS is_owner,
	pg_has_role(r.oid, 'couponmq_gateway', 'member') AS gateway,
	pg_has_role(r.oid, 'couponmq_worker', 'member') AS worker,
	pg_has_role(r.oid, 'couponmq_operator', 'member') AS operator
FROM (
	SELECT CASE WHEN pid = pg_backend_pid() OR application_name LIKE 'coupon-admin%'
			THEN 'operator'
		WHEN application_name LIKE 'coupon-gateway%' THEN 'gateway'
		WHEN application_name LIKE 'coupon-worker%'
			OR application_name IN ('coupon-keeper', 'coupon-relay', 'coupon-expiry',
				'coupon-webhooks')
			THEN 'worker' END AS program,
		usename AS login, usesysid,
		substring(application_name FROM ' ([0-9]+[.][0-9]+[^ ]*)$') AS version
	FROM pg_stat_activity
	WHERE datname = current_database()
) AS s JOIN pg_roles AS r ON r.oid = s.usesysid
	JOIN pg_class AS t ON t.oid = 'public.coupon'::regclass
WHERE s.program IS NOT NULL
GROUP BY s.program, s.login, r.oid, r.rolsuper, t.relowner
ORDER BY array_position(ARRAY['gateway', 'worker', 'operator'], s.program), s.login

-- doctor_sync: A COMMIT that the disk must have, and that changes nothing: a message in the WAL,
-- which nobody reads.
SELECT pg_logical_emit_message(true, 'couponctl doctor', '')

-- durability: The settings of this session that common/program/weak_settings.c checks.
SELECT name, setting
FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')

-- gateway_alive: This gateway process is there.
-- $1 its id, $2 its place, $3 true if it has not been recorded since its start
SELECT gateway_alive($1::uuid, $2::text, $3::boolean)

-- gateway_running: The gateway processes that are not gone (as in gateway_rows): id, place, and the
-- seconds since each was heard of.
SELECT id, place, floor(extract(epoch FROM now() - seen_at))::bigint AS silent_s
FROM gateway
WHERE gone_at IS NULL OR gone_at BETWEEN now() AND now() + interval '7 seconds'
ORDER BY place, id

-- gateway_gone: This gateway process ends.
-- $1 its id
SELECT gateway_gone($1::uuid)

-- installation_new: Gives the installation another id.
UPDATE installation SET id = gen_random_uuid() RETURNING id

-- approval_ask: Records what waits for a second person. Its id.
-- $1 the command, $2 the request of couponctl --api, $3 for how many seconds it may be given
INSERT INTO approval (command, request, asked_by, expires_at)
VALUES ($1::text, $2::text::json,
	coalesce(nullif(current_setting('couponmq.by', true), ''), session_user),
	clock_timestamp() + $3::bigint * interval '1 s')
RETURNING id

-- approval_decide: Decides about what waits and has not expired. No row: it does not, or whoever
-- has asked for it would give it.
-- $1 its id, $2 given or refused
UPDATE approval
SET state = $2::text, decided_by = who.by, decided_at = clock_timestamp()
FROM (SELECT coalesce(nullif(current_setting('couponmq.by', true), ''), session_user) AS by)
	AS who
WHERE id = $1::bigint AND state = 'waiting' AND expires_at > clock_timestamp()
	AND ($2::text = 'refused' OR asked_by <> who.by)
RETURNING id

-- approval_done: It was run.
-- $1 its id
UPDATE approval SET state = 'done' WHERE id = $1::bigint AND state = 'given'

-- approval_forget: Removes those up to an id.
-- $1 the id
DELETE FROM approval WHERE id <= $1::bigint

-- approval_list: The newest first.
-- $1 only this one (NULL: all), $2 before this id (NULL: up to the last one), $3 limit (NULL: none)
SELECT id::text AS approval, command, request, asked_by,
	CASE WHEN state = 'waiting' AND expires_at <= clock_timestamp() THEN 'expired'
		ELSE state END AS state,
	to_char(asked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS asked_at,
	to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS expires_at,
	decided_by,
	to_char(decided_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS decided_at
FROM approval
WHERE ($1::bigint IS NULL OR id = $1::bigint) AND ($2::bigint IS NULL OR id < $2::bigint)
ORDER BY id DESC
LIMIT $3::bigint

-- command_begin: Who makes the changes of this session, and by which command. Its id.
-- $1 a name, $2 the command, $3 its words
SELECT command_begin($1::text, $2::text, $3::text)

-- command_end: It has ended; see sql/function/command_end.sql.
-- $1 its id, $2 its exit status
SELECT command_end($1::bigint, $2::smallint, $3::text)

-- command_key_answer: What the command with this key prints.
-- $1 the key, $2 JSON
SELECT command_key_answer($1::text, $2::text)

-- command_key_take: Records the key of a command, or finds it.
-- $1 the key, $2 the command, $3 the digest of its words
SELECT is_new, is_same, made_by, answer FROM command_key_take($1::text, $2::text, $3::text)

-- session_by: Who makes the changes of another session of the same command.
-- $1 a name
SELECT set_config('couponmq.by', $1::text, false)

-- command_list: The last ones that match, the latest first.
-- $1 before this id; NULL: up to the last one, $2 limit, $3 a text in who made it, $4 a text in the
-- command and its words (NULL: any), $5 and $6 from and to, in ms (NULL: any), $7 whether it failed
-- (NULL: any)
SELECT id, to_char(made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at,
	made_by AS by, command, words, status, why
FROM command_history
WHERE id < coalesce($1::bigint, 9223372036854775807)
	AND ($3::text IS NULL OR strpos(lower(made_by), lower($3::text)) > 0)
	AND ($4::text IS NULL OR strpos(lower(command || words), lower($4::text)) > 0)
	AND ($5::bigint IS NULL OR made_at >= timestamptz 'epoch' + $5::bigint * interval '1 ms')
	AND ($6::bigint IS NULL OR made_at <= timestamptz 'epoch' + $6::bigint * interval '1 ms')
	AND ($7::boolean IS NULL OR $7::boolean = (coalesce(status, 0) NOT IN (0, 3)))
ORDER BY id DESC
LIMIT $2::bigint
