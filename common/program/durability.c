#include "common/program/durability.h"

#include "common/log/log.h"
#include "common/message/json.h"

#include <stdio.h>
#include <string.h>

#define OF_SENTINELS "min-replicas-to-write" /* the last one of Redis */

/*
 * How the services must be set for the promises to hold, those of Redis first. `values` are the
 * sufficient ones, the recommended one first; `lost` is what a weaker one loses. docs/operations.md
 * describes them in full.
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
	{ DURABILITY_REDIS,
	  OF_SENTINELS,
	  { "1", "2", "3", "4" },
	  "a master that is cut off accepts receives until its lease ends, which are lost" },
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

const char *durability_redis_setting(int i, int has_sentinels)
{
	if (i >= DURABILITY_N || table[i].part != DURABILITY_REDIS)
		return NULL;
	return has_sentinels || strcmp(table[i].setting, OF_SENTINELS) != 0 ? table[i].setting
									    : NULL;
}

int durability_is_synchronous(const struct config *config)
{
	const char *text = config->database_synchronous;

	if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
		log_fatal("COUPON_DATABASE_SYNCHRONOUS is \"%s\": allowed are yes and no", text);
	return *text == 'y';
}

int durability_is_acknowledged(const struct config *config)
{
	const char *text = config->redis_durability;

	if (strcmp(text, "read") != 0 && strcmp(text, "acknowledged") != 0)
		log_fatal("COUPON_REDIS_DURABILITY is \"%s\": allowed are read and acknowledged",
			  text);
	return *text == 'a';
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
			durability->values[i][0] = '\0';
}

void durability_tell(struct durability *durability, const char *setting, const char *value)
{
	for (int i = 0; i < DURABILITY_N; i++) {
		char *known = durability->values[i];

		if (strcmp(table[i].setting, setting) != 0 || strcmp(known, value) == 0)
			continue;
		snprintf(known, DURABILITY_VALUE_SIZE, "%s", value);
		if (is_weak(i, value))
			log_warn("weak_setting", LOG_S("part", part_names[table[i].part]),
				 LOG_S("setting", table[i].setting), LOG_S("value", value),
				 LOG_S("wanted", table[i].values[0]),
				 LOG_S("effect", table[i].lost));
	}
}

void durability_unknown(struct durability *durability, enum durability_part part, const char *why)
{
	if (part == DURABILITY_REDIS && durability->is_acknowledged)
		return;
	durability->unknown[part] = 1;
	if (durability->unknown_logged[part])
		return;
	durability->unknown_logged[part] = 1;
	log_warn("setting_unknown", LOG_S("part", part_names[part]), LOG_S("error", why));
}

int durability_warnings(const struct durability *durability, cJSON *array)
{
	int n = 0;

	for (int i = 0; i < DURABILITY_N; i++) {
		const char *value = durability->values[i];

		if (!*value || !is_weak(i, value))
			continue;
		n++;
		if (array)
			json_sentence_add(array, "%s: %s is %s, wanted %s: %s",
					  part_names[table[i].part], table[i].setting, value,
					  table[i].values[0], table[i].lost);
	}
	for (int part = DURABILITY_REDIS; part <= DURABILITY_POSTGRESQL; part++) {
		n += durability->unknown[part];
		if (array && durability->unknown[part])
			json_sentence_add(array,
					  "%s: does not show its settings: it is unknown whether "
					  "the promises hold%s",
					  part_names[part],
					  part == DURABILITY_REDIS
						  ? "; check them another way, then set "
						    "COUPON_REDIS_DURABILITY=acknowledged"
						  : "");
	}
	return n;
}
