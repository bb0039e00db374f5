#include "common/program/durability.h"

#include "common/log/log.h"
#include "common/message/json.h"

#include <stdio.h>
#include <string.h>

/*
 * How the services must be set for the promises to hold.
 * `values` are the sufficient ones, the recommended one first; `lost` is what a weaker one loses.
 * docs/operations.md describes them in full.
 *
 * RabbitMQ is not listed, because AMQP does not report settings. The programs declare its queues,
 * and RabbitMQ refuses a declaration that differs.
 */
static const struct {
	enum durability_part part;
	const char *setting;
	const char *values[4];
	const char *lost;
} table[] = {
	{ DURABILITY_REDIS,
	  "appendonly",
	  { "yes" },
	  "accepted receives are only in memory, and are lost when Redis ends" },
	{ DURABILITY_REDIS,
	  "appendfsync",
	  { "always" },
	  "about the last second of accepted receives is lost when the machine dies" },
	{ DURABILITY_REDIS,
	  "maxmemory-policy",
	  { "noeviction" },
	  "a full Redis may evict a coupon and the slots of its users" },
	{ DURABILITY_POSTGRESQL,
	  "fsync",
	  { "on" },
	  "committed user coupons are lost, or the database is corrupt, when the machine dies" },
	{ DURABILITY_POSTGRESQL,
	  "synchronous_commit",
	  { "on", "remote_apply", "remote_write", "local" },
	  "the last committed user coupons are lost when PostgreSQL dies, although their messages "
	  "were acked" },
	{ DURABILITY_POSTGRESQL,
	  "full_page_writes",
	  { "on" },
	  "the database may be corrupt after the machine dies during a write" },
};

_Static_assert(sizeof(table) / sizeof(table[0]) == DURABILITY_N,
	       "DURABILITY_N counts the table's lines");

static const char *const part_names[] = { "redis", "postgresql" };

enum durability_part durability_part(int i)
{
	return table[i].part;
}

const char *durability_setting(int i)
{
	return table[i].setting;
}

static int is_weak(int i, const char *value)
{
	for (int k = 0; k < 4 && table[i].values[k]; k++)
		if (strcmp(table[i].values[k], value) == 0)
			return 0;
	return 1;
}

void durability_begin(struct durability *durability, enum durability_part part)
{
	durability->unknown[part] = 0;
	for (int i = 0; i < DURABILITY_N; i++)
		if (table[i].part == part)
			memset(&durability->states[i], 0, sizeof(durability->states[i]));
}

static void state_tell(struct durability_state *state, int i, const char *value)
{
	if (strcmp(state->value, value) != 0)
		state->logged = 0;
	snprintf(state->value, sizeof(state->value), "%s", value);
	if (state->logged)
		return;
	state->logged = 1;
	if (!is_weak(i, value))
		return;
	log_warn("weak_setting", LOG_S("part", part_names[table[i].part]),
		 LOG_S("setting", table[i].setting), LOG_S("value", value),
		 LOG_S("wanted", table[i].values[0]), LOG_S("effect", table[i].lost));
}

void durability_tell(struct durability *durability, enum durability_part part, const char *setting,
		     const char *value)
{
	for (int i = 0; i < DURABILITY_N; i++)
		if (table[i].part == part && strcmp(table[i].setting, setting) == 0)
			state_tell(&durability->states[i], i, value);
}

void durability_unknown(struct durability *durability, enum durability_part part, const char *why)
{
	durability->unknown[part] = 1;
	if (durability->unknown_logged[part])
		return;
	durability->unknown_logged[part] = 1;
	log_warn("setting_unknown", LOG_S("part", part_names[part]), LOG_S("error", why));
}

void durability_warnings(const struct durability *durability, cJSON *array)
{
	for (int i = 0; i < DURABILITY_N; i++) {
		const char *value = durability->states[i].value;

		if (*value && is_weak(i, value))
			json_sentence_add(array, "%s: %s is %s, wanted %s: %s",
					  part_names[table[i].part], table[i].setting, value,
					  table[i].values[0], table[i].lost);
	}
	for (int part = DURABILITY_REDIS; part <= DURABILITY_POSTGRESQL; part++)
		if (durability->unknown[part])
			json_sentence_add(array,
					  "%s: does not show its settings: it is unknown whether "
					  "the promises hold",
					  part_names[part]);
}

int durability_warnings_n(const struct durability *durability)
{
	int n = durability->unknown[DURABILITY_REDIS] + durability->unknown[DURABILITY_POSTGRESQL];

	for (int i = 0; i < DURABILITY_N; i++)
		n += *durability->states[i].value && is_weak(i, durability->states[i].value);
	return n;
}
