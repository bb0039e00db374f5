/* The lines of PostgreSQL: the server, the schema, the logins, and which programs are connected. */
#include "common/changes.h"
#include "common/log/log.h"
#include "common/program/program.h"
#include "common/program/weak_settings.h"
#include "common/resolving.h"
#include "ctl/doctor/doctor.h"
#include "ctl/doctor/vitals.h"
#include "embed.h"

#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_SIZE 512
#define PING_MOST_MS 20
#define SYNC_MOST_MS 50
#define HEARD_S 7 /* a process of the gateway writes its row every 5 s */
#define CONNECTIONS_MEND "raise max_connections, or lower COUPON_READ_CONNECTIONS of the gateways"

static enum health ask_once(struct doctor *doctor, const void *sql, char *why, size_t size)
{
	PGresult *rows = db_ask_try(doctor->db, sql);

	PQclear(rows);
	if (!rows)
		snprintf(why, size, "%s", db_error(doctor->db));
	return rows ? HEALTH_OK : HEALTH_UNKNOWN;
}

/* The settings of this session, and whether COMMIT waits for the disk. */
static int settings_say(struct doctor *doctor)
{
	struct durability durability = { .is_silent = 1 };
	PGresult *rows = db_ask_try(doctor->db, sql_query_durability);
	struct durability_setting one;
	int is_synced = 1;
	char name[64], mend[160];

	if (rows)
		vitals_postgresql_settings(rows, &durability);
	PQclear(rows);
	for (int i = 0; durability_setting_read(&durability, i, &one) == 0; i++) {
		if (one.part != DURABILITY_POSTGRESQL)
			continue;
		snprintf(name, sizeof(name), "postgresql.%s", one.name);
		snprintf(mend, sizeof(mend), "ALTER SYSTEM SET %s = %s; SELECT pg_reload_conf()",
			 one.name, one.wanted);
		is_synced &= *one.value && !one.is_weak;
		if (*one.value)
			durability_say(doctor, name, &one, mend);
		else
			doctor_unknown(doctor, name, NULL, "%s", db_error(doctor->db));
	}
	return is_synced;
}

static void server_say(struct doctor *doctor)
{
	PGresult *rows = db_ask_try(doctor->db, sql_query_doctor_server);
	const char *host = PQhost(db_libpq(doctor->db)), *folder, *weak;

	if (!rows) {
		doctor_unknown(doctor, "postgresql.descriptors", "couponctl migrate", "%s",
			       db_error(doctor->db));
		return;
	}
	folder = column_text(rows, 0, "folder");
	weak = column_text(rows, 0, "weak");
	if (*weak)
		doctor_say(doctor,
			   &(struct sign){ .name = "postgresql.synchronous_commit",
					   .health = HEALTH_WRONG,
					   .wanted = "on",
					   .why = "the last committed user coupons are lost when "
						  "PostgreSQL dies, although their messages were "
						  "acked",
					   .mend = "ALTER ROLE NAME RESET synchronous_commit" },
			   "%s", weak);
	share_say(doctor, "postgresql.descriptors", column_number(rows, 0, "sessions_num"),
		  column_number(rows, 0, "sessions_max"),
		  "PostgreSQL refuses further connections of the programs", CONNECTIONS_MEND);
	if (!host || !host_is_loopback(host))
		doctor_unknown(doctor, "postgresql.disk", NULL,
			       "PostgreSQL runs on another machine, and does not tell the space");
	else if (*folder)
		disk_say(doctor, "postgresql.disk", folder);
	else
		doctor_unknown(doctor, "postgresql.disk",
			       "GRANT pg_read_all_settings TO couponmq_operator",
			       "the login may not see where the data is (data_directory)");
	PQclear(rows);
}

/* With COUPON_DATABASE_SYNCHRONOUS: whether a COMMIT waits for a synchronous standby. */
static void standby_say(struct doctor *doctor)
{
	PGresult *rows = db_ask_try(doctor->db, sql_query_commit_check, postgres_text(NULL));
	const char *why = rows ? column_text(rows, 0, "why") : "";

	if (rows)
		doctor_say(doctor,
			   &(struct sign){ .name = "postgresql.standby",
					   .health = *why ? HEALTH_WRONG : HEALTH_OK,
					   .wanted = "a COMMIT waits for a synchronous standby",
					   .why = why,
					   .mend = "see docs/guides/high-availability.md, "
						   "PostgreSQL with a standby" },
			   "%s", *why ? "no" : "yes");
	else
		doctor_unknown(doctor, "postgresql.standby", NULL, "%s", db_error(doctor->db));
	PQclear(rows);
}

/* Whether the tables and functions are those that this program brings. */
static void schema_say(struct doctor *doctor)
{
	PGresult *rows = db_ask_try(doctor->db, sql_query_migration_list);
	int64_t version = 0;
	int newest = 0, differing = 0, n;
	char wanted[32];

	if (!rows) {
		doctor_unknown(doctor, "postgresql.schema", "couponctl migrate", "%s",
			       db_error(doctor->db));
		return;
	}
	n = PQntuples(rows);
	if (n > 0)
		version = column_number(rows, n - 1, "version");
	PQclear(rows);
	for (const struct migration *m = migrations; m->name; m++)
		newest = m->version;
	snprintf(wanted, sizeof(wanted), "version %d", newest);
	if (version > newest) {
		doctor_say(doctor,
			   &(struct sign){ .name = "postgresql.schema",
					   .health = HEALTH_WARNING,
					   .wanted = wanted,
					   .why = "this couponctl is older than the database",
					   .mend = "use the couponctl of the newest program" },
			   "version %lld", (long long)version);
		return;
	}
	for (const struct function *f = functions; version == newest && f->name; f++) {
		PGresult *state = db_ask_try(doctor->db, sql_query_function_state,
					     postgres_text(f->name), postgres_text(f->signature));

		differing += !state || PQntuples(state) == 0 ||
			     column_number(state, 0, "version") < f->version ||
			     !db_is_true(state, 0, "is_live");
		PQclear(state);
	}
	doctor_say(doctor,
		   &(struct sign){ .name = "postgresql.schema",
				   .health = version < newest || differing > 0 ? HEALTH_WRONG
									       : HEALTH_OK,
				   .wanted = wanted,
				   .why = differing > 0 ? "functions differ from those of this "
							  "program"
							: "the programs find tables of another "
							  "version",
				   .mend = "couponctl migrate" },
		   differing > 0 ? "version %lld, %d functions differ" : "version %lld",
		   (long long)version, differing);
}

/*
 * What a login of the program may do. Each program needs its own role; for people, couponmq_app has
 * all three. More than that is more than its machine should be trusted with.
 */
static void login_say(struct doctor *doctor, const PGresult *rows, int row)
{
	static const char *const roles[] = { "gateway", "worker", "operator" };
	const char *program = column_text(rows, row, "program"),
		   *login = column_text(rows, row, "login");
	int is_owner = db_is_true(rows, row, "is_owner"), has_own = 0, more_n = 0;
	char name[64], wanted[64], mend[320], has[160] = "", *quoted;
	struct sign sign = { .name = name, .wanted = wanted, .mend = mend };

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		int is_own = strcmp(program, roles[i]) == 0, is_had;

		is_had = db_is_true(rows, row, roles[i]);
		has_own |= is_own && is_had;
		more_n += !is_own && is_had;
		if (is_had)
			snprintf(has + strlen(has), sizeof(has) - strlen(has), "%scouponmq_%s",
				 *has ? ", " : "", roles[i]);
	}
	snprintf(name, sizeof(name), "postgresql.login.%s", program);
	snprintf(wanted, sizeof(wanted), "couponmq_%s", program);
	snprintf(mend, sizeof(mend), "give it a login that has only couponmq_%s, in DATABASE_URL",
		 program);
	if (is_owner) {
		sign.health = HEALTH_WARNING;
		sign.why = "it is a superuser or owns the tables, and may do everything";
	} else if (!has_own) {
		sign.health = HEALTH_WRONG;
		sign.why = "it lacks the rights that this program needs";
		quoted = PQescapeIdentifier(db_libpq(doctor->db), login, strlen(login));
		snprintf(mend, sizeof(mend), "GRANT couponmq_%s TO %s", program,
			 quoted ? quoted : "it");
		PQfreemem(quoted);
	} else if (more_n > 0 && strcmp(program, "operator") != 0) {
		sign.health = HEALTH_WARNING;
		sign.why = "it may do more than this program needs";
	}
	doctor_say(doctor, &sign, "%s (%s)", login, is_owner ? "owner" : *has ? has : "no role");
}

/* Which programs are connected, in which versions. */
static void program_say(struct doctor *doctor, const PGresult *rows, const char *program)
{
	char name[64], mend[64], versions[256] = "";
	int is_there = 0;

	snprintf(name, sizeof(name), "program.%s", program);
	for (int row = 0; row < PQntuples(rows); row++) {
		const char *told = column_text(rows, row, "versions");

		if (strcmp(column_text(rows, row, "program"), program) != 0)
			continue;
		is_there = 1;
		if (*told && !strstr(versions, told))
			snprintf(versions + strlen(versions), sizeof(versions) - strlen(versions),
				 "%s%s", *versions ? ", " : "", told);
	}
	if (is_there && !*versions) {
		doctor_unknown(doctor, name, NULL, "its sessions of PostgreSQL have no version");
		return;
	}
	snprintf(mend, sizeof(mend),
		 is_there ? "restart each coupon-%s with this version" : "start a coupon-%s",
		 program);
	doctor_say(doctor,
		   &(struct sign){ .name = name,
				   .health = !is_there ? HEALTH_WRONG
					     : strcmp(versions, PROGRAM_VERSION) != 0
						     ? HEALTH_WARNING
						     : HEALTH_OK,
				   .wanted = PROGRAM_VERSION,
				   .why = is_there ? "it is of another version than this couponctl"
						   : "none is connected to PostgreSQL",
				   .mend = mend },
		   "%s", versions);
}

/* The rows of the processes of the gateway. */
static void gateways_say(struct doctor *doctor)
{
	PGresult *rows = db_ask_try(doctor->db, sql_query_gateway_running);

	if (!rows)
		doctor_unknown(doctor, "program.gateway.process", NULL, "%s", db_error(doctor->db));
	for (int row = 0; rows && row < PQntuples(rows); row++) {
		int64_t silent_s = column_number(rows, row, "silent_s");

		doctor_say(doctor,
			   &(struct sign){
				   .name = "program.gateway.process",
				   .health = silent_s > HEARD_S ? HEALTH_WARNING : HEALTH_OK,
				   .wanted = "heard of within 7 s",
				   .why = "it has ended without a word, or is cut off; after "
					  "a restart of Redis the keeper waits for it",
				   .mend = "start it again at this place, or wait: after 24 "
					   "hours it counts as gone" },
			   "%s, heard of %lld s ago", column_text(rows, row, "place"),
			   (long long)silent_s);
	}
	PQclear(rows);
}

/* Whether the stores are of one installation, and PostgreSQL has what Redis has seen. */
static void installation_say(struct doctor *doctor)
{
	static const char *const whys[] = {
		[RELATION_UNADOPTED] = "Redis belongs to no installation yet: a gateway or worker "
				       "adopts it",
		[RELATION_BEHIND] = "PostgreSQL was put back to an earlier moment",
		[RELATION_FOREIGN] = RELATION_FOREIGN_TEXT,
		[RELATION_OLD] = RELATION_OLD_TEXT,
		[RELATION_STANDBY] = SERVER_STANDBY_TEXT,
	};
	static const char *const mends[] = {
		[RELATION_UNADOPTED] = "start a coupon-worker",
		[RELATION_BEHIND] = "couponctl recover",
		[RELATION_FOREIGN] =
			"correct REDIS_URL or DATABASE_URL; see couponctl installation",
		[RELATION_OLD] = SERVER_OLD_MEND,
		[RELATION_STANDBY] = "let DATABASE_URL name the primary, or all servers and "
				     "target_session_attrs=read-write",
	};
	struct changes changes, copy;
	struct standing standing;
	PGresult *rows;

	if (!doctor->redis || redis_client_open(doctor->redis) ||
	    changes_copy_read(&copy, doctor->redis)) {
		doctor_unknown(doctor, "installation", NULL, "Redis cannot be read");
		return;
	}
	rows = db_ask_try(doctor->db, sql_query_change_counts);
	if (!rows || PQntuples(rows) == 0) {
		doctor_unknown(doctor, "installation", "couponctl migrate", "%s",
			       rows ? "PostgreSQL has no installation id" : db_error(doctor->db));
		PQclear(rows);
		return;
	}
	changes_take(&changes, rows);
	PQclear(rows);
	standing = changes_stand(RELATION_UNKNOWN, &changes, &copy);
	doctor_say(doctor,
		   &(struct sign){ .name = "installation",
				   .health = standing.relation == RELATION_OWN ? HEALTH_OK
					     : standing.relation == RELATION_UNADOPTED
						     ? HEALTH_WARNING
						     : HEALTH_WRONG,
				   .wanted = "one of both stores",
				   .why = whys[standing.relation],
				   .mend = mends[standing.relation] },
		   "%s", changes.installation);
}

void look_postgresql(struct doctor *doctor)
{
	const struct config *config = doctor->config;
	char why[WHY_SIZE], version[SERVICE_VERSION_SIZE];
	int is_synced;
	int64_t ahead_ms;
	PGresult *logins;
	X509 *certificate;
	SSL *session;

	doctor->db = db_open_try("DATABASE_URL", config->database_url, why, sizeof(why));
	if (!doctor->db) {
		store_away(doctor, "postgresql.reached", "", why,
			   "start PostgreSQL (systemctl start postgresql), or correct "
			   "DATABASE_URL");
		return;
	}
	doctor_say(doctor, &(struct sign){ .name = "postgresql.reached" }, "%s:%s",
		   PQhost(db_libpq(doctor->db)), PQport(db_libpq(doctor->db)));
	version_say(doctor, "postgresql.version",
		    service_version_text(SERVICE_POSTGRESQL, version));
	session = PQsslStruct(db_libpq(doctor->db), "OpenSSL");
	certificate = session ? SSL_get1_peer_certificate(session) : NULL;
	if (certificate)
		certificate_say(doctor, "postgresql.certificate", "the server", certificate);
	X509_free(certificate);
	is_synced = settings_say(doctor);
	server_say(doctor);
	if (durability_is_synchronous(config))
		standby_say(doctor);
	time_say(doctor, &(struct timed){ .name = "postgresql.latency",
					  .is_ping = 1,
					  .wanted = "at most 20 ms",
					  .what = "each transaction of a worker takes two round "
						  "trips to PostgreSQL",
					  .mend = LATENCY_MEND,
					  .n = 9,
					  .most_ms = PING_MOST_MS,
					  .once = ask_once,
					  .context = sql_query_clock });
	if (vitals_clock_ahead(NULL, doctor->db, &ahead_ms) == 0)
		clock_say(doctor, "postgresql.clock", ahead_ms);
	else
		doctor_unknown(doctor, "postgresql.clock", NULL, "%s", db_error(doctor->db));
	schema_say(doctor);
	installation_say(doctor);

	logins = db_ask_try(doctor->db, sql_query_doctor_logins);
	for (int row = 0; logins && row < PQntuples(logins); row++)
		login_say(doctor, logins, row);
	if (logins) {
		program_say(doctor, logins, "gateway");
		program_say(doctor, logins, "worker");
		gateways_say(doctor);
	} else {
		doctor_unknown(doctor, "postgresql.login.operator", "couponctl migrate", "%s",
			       db_error(doctor->db));
	}
	PQclear(logins);

	/* It comes last: while a synchronous standby does not answer, the session is lost. */
	if (is_synced)
		time_say(doctor,
			 &(struct timed){ .name = "postgresql.sync",
					  .wanted = "at most 50 ms",
					  .what = "each COMMIT waits so long for the disk of "
						  "PostgreSQL",
					  .mend = SYNC_MEND,
					  .n = 5,
					  .most_ms = SYNC_MOST_MS,
					  .once = ask_once,
					  .context = sql_query_doctor_sync });
	else
		doctor_unknown(doctor, "postgresql.sync", NULL,
			       "a COMMIT does not wait for the disk, or that is not known");
}
