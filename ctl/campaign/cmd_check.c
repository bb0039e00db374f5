/*
 * couponctl check: whether a campaign is ready to open. The command checks what is needed when the
 * users come, and changes nothing.
 */
#include "common/log/log.h"
#include "common/message/json.h"
#include "coupon/redis_coupon.h"
#include "ctl/doctor/vitals.h"
#include "ctl/output.h"
#include "ctl/rabbit.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

struct readiness {
	struct ctl *ctl;
	int64_t coupon;
	struct db *db;
	struct redis_client *redis;
	PGresult *row; /* of sql_query_coupon_show */
	int as_json;
	struct durability durability;
	cJSON *checks;
	int failed_n;
	cJSON *reasons; /* sentences, why the present check fails; empty: it does not */
	int warnings_n; /* of them, which do not make it fail */
};

/* Ends a check, which has passed if its reasons are only warnings. */
static void verdict_add(struct readiness *ready, const char *check)
{
	cJSON *object = output_object(), *sentence;
	struct text_buffer reason = { 0 };
	int is_failed = cJSON_GetArraySize(ready->reasons) > ready->warnings_n;

	cJSON_ArrayForEach(sentence, ready->reasons)
	{
		text_add_string(&reason, reason.len > 0 ? "; " : "");
		text_add_string(&reason, sentence->valuestring);
	}
	output_text(object, "check", check);
	output_bool(object, "passed", !is_failed);
	output_text(object, "reason", reason.data);
	ready->failed_n += is_failed;
	ready->warnings_n = 0;
	text_buffer_fini(&reason);
	cJSON_Delete(ready->reasons);
	ready->reasons = cJSON_CreateArray();
	if (!ready->as_json)
		output_template("[passed [reason warn ][!reason ok   ]][!passed FAIL ] {check:-11} "
				"{reason}\n",
				object);
	cJSON_AddItemToArray(ready->checks, object);
}

static void redis_check(struct readiness *ready)
{
	struct redis_coupon c;
	int loaded = redis_coupon_read(ready->redis, ready->coupon, &c);

	store_redis_check(ready->redis, loaded >= 0);
	if (loaded == 0) {
		json_sentence_add(ready->reasons,
				  "Redis does not have it: is a coupon-worker running?");
	} else {
		const struct {
			const char *name;
			int64_t redis, postgres;
		} terms[] = {
			{ "version", c.version,
			  column_number(ready->row, 0, "postgresql.version") },
			{ "total", c.total, column_number(ready->row, 0, "postgresql.total") },
			{ "limit", c.limit, column_number(ready->row, 0, "limit") },
			{ "generation", c.generation,
			  column_number(ready->row, 0, "postgresql.generation") },
		};

		for (size_t i = 0; i < sizeof(terms) / sizeof(terms[0]); i++)
			if (terms[i].redis != terms[i].postgres)
				json_sentence_add(ready->reasons,
						  "its %s is %lld in Redis but %lld in PostgreSQL",
						  terms[i].name, (long long)terms[i].redis,
						  (long long)terms[i].postgres);
		if (!redis_coupon_is_verified(ready->redis, &c))
			json_sentence_add(ready->reasons,
					  "no keeper has verified it on this Redis process");
		if (c.stock == 0)
			json_sentence_add(ready->reasons, "its stock is 0");
	}
	if (behind_read(ready->db, ready->redis) > 0)
		json_sentence_add(ready->reasons, "PostgreSQL was put back to an earlier moment");
	verdict_add(ready, "redis");
}

static int64_t clock_ahead_ms(struct readiness *ready, int is_redis)
{
	int64_t ahead_ms;
	int rc = is_redis ? vitals_clock_ahead(ready->redis, NULL, &ahead_ms)
			  : vitals_clock_ahead(NULL, ready->db, &ahead_ms);

	if (is_redis)
		store_redis_check(ready->redis, rc == 0);
	else if (rc)
		log_fatal_as(CTL_AWAY, "PostgreSQL: %s", db_error(ready->db));
	return ahead_ms;
}

static int check_run(struct ctl *ctl)
{
	struct readiness ready = { .ctl = ctl,
				   .durability.is_acknowledged = durability_is_acknowledged(
					   &ctl->config),
				   .coupon = args_id_argument(&ctl->args),
				   .db = store_postgres_open(ctl),
				   .redis = store_redis_open(ctl),
				   .as_json = args_has(&ctl->args, "json"),
				   .checks = cJSON_CreateArray(),
				   .reasons = cJSON_CreateArray() };
	struct broker broker = { .url = ctl->config.amqp_url };
	const char *state, *valid_to, *verdict;
	int64_t redis_ms, postgres_ms;
	cJSON *object = output_object();
	struct broker_look look;
	PGresult *rows;

	ready.row = store_coupon_row(ready.db, sql_query_coupon_show, ready.coupon);
	state = column_text(ready.row, 0, "state");
	valid_to = column_text(ready.row, 0, "valid_to");
	if (strcmp(state, "scheduled") != 0 && strcmp(state, "issuing") != 0)
		json_sentence_add(ready.reasons, "it is %s: allowed is scheduled or issuing",
				  state);
	if (column_number(ready.row, 0, "postgresql.total") == 0)
		json_sentence_add(ready.reasons, "its total is 0");
	/* Texts of one format are in the order of their times. */
	if (*valid_to && strcmp(valid_to, column_text(ready.row, 0, "begin")) <= 0)
		json_sentence_add(ready.reasons,
				  "its validity ends at %s, before it begins: nobody could use "
				  "what it issues",
				  column_text(ready.row, 0, "local.valid_to"));
	verdict_add(&ready, "campaign");

	redis_check(&ready);

	verdict = audit_coupon(ctl, ready.coupon);
	if (strcmp(verdict, "PASS") != 0)
		json_sentence_add(ready.reasons, "%s: see couponctl audit %lld", verdict,
				  (long long)ready.coupon);
	verdict_add(&ready, "audit");

	broker_look(&broker, &look);
	if (!look.ok)
		json_sentence_add(ready.reasons, "RabbitMQ cannot be queried: %s", broker.error);
	else if (look.consumers == 0)
		json_sentence_add(ready.reasons, "no coupon-worker consumes coupon.receive.queue");
	rabbit_connection_close(broker.connection);
	verdict_add(&ready, "queue");

	rows = db_ask(ready.db, sql_query_durability);
	vitals_redis_settings(ready.redis, redis_url_has_sentinels(ready.ctl->config.redis_url),
			      &ready.durability);
	store_redis_check(ready.redis, redis_client_is_open(ready.redis));
	vitals_postgresql_settings(rows, &ready.durability);
	durability_warnings(&ready.durability, ready.reasons);
	ready.warnings_n = ready.durability.unknown[DURABILITY_REDIS];
	PQclear(rows);
	verdict_add(&ready, "durability");

	/* A campaign opens by the clock of Redis; its keeper and operators read the others. */
	redis_ms = clock_ahead_ms(&ready, 1);
	postgres_ms = clock_ahead_ms(&ready, 0);
	if (llabs(redis_ms) > CLOCKS_DIFFER_MS)
		json_sentence_add(ready.reasons,
				  "the clock of Redis differs from this machine's by %lld ms",
				  (long long)redis_ms);
	if (llabs(redis_ms - postgres_ms) > CLOCKS_DIFFER_MS)
		json_sentence_add(ready.reasons,
				  "the clock of Redis differs from PostgreSQL's by %lld ms",
				  (long long)(redis_ms - postgres_ms));
	verdict_add(&ready, "clocks");

	output_id(object, "coupon", ready.coupon);
	output_bool(object, "ready", ready.failed_n == 0);
	output_text(object, "begin",
		    column_text(ready.row, 0, ready.as_json ? "begin" : "local.begin"));
	output_text(object, "end", column_text(ready.row, 0, ready.as_json ? "end" : "local.end"));
	output_add(object, "checks", ready.checks);
	output_say(
		object,
		"[ready READY: coupon {coupon} may open[begin  from {begin}][end  until {end}]\n]"
		"[!ready NOT READY: coupon {coupon}\n]",
		ready.as_json);
	cJSON_Delete(ready.reasons);
	PQclear(ready.row);
	redis_client_free(ready.redis);
	db_close(ready.db);
	return ready.failed_n > 0 ? CTL_FAILED : CTL_DONE;
}

const struct command check_command = {
	.name = "check",
	.run = check_run,
	.argument = "ID",
	.summary = "check that a campaign is ready to open",
	.detail =
		"The campaign is ready if it is scheduled or issuing; Redis has the same terms "
		"and\n"
		"is verified; couponctl audit passes; the queue exists and workers consume it;\n"
		"Redis and PostgreSQL are set to keep what they confirm; and their clocks and\n"
		"that of this machine agree within 0.5 s. A Redis that does not show its settings\n"
		"causes a warning, unless COUPON_REDIS_DURABILITY=acknowledged. Nothing is\n"
		"changed. If the campaign is not ready, the command prints the reasons, and the\n"
		"exit status is 1.",
};
