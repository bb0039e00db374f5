#include "common/changes.h"

#include "common/log/log.h"
#include "common/redis/redis.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLLOWED "followed:" /* the field of a cluster, which its system identifier follows */

static void installation_take(struct changes *changes, const char *text)
{
	if (strlen(text) < INSTALLATION_SIZE)
		strcpy(changes->installation, text);
}

/* -1 when it is malformed: then no server is known. */
static int server_part_take(struct postgres_server *server, const char *name, const char *text)
{
	if (strcmp(name, "timeline") == 0)
		return number_parse(text, UINT32_MAX, &server->timeline);
	if (strlen(text) >= SYSTEM_SIZE)
		return -1;
	strcpy(server->system, text);
	return 0;
}

int server_equals(const struct postgres_server *server, const struct postgres_server *other)
{
	return server->timeline == other->timeline && strcmp(server->system, other->system) == 0;
}

const char *server_text(const struct postgres_server *server, char text[SERVER_TEXT_SIZE])
{
	if (server->timeline == 0 || !*server->system)
		*text = '\0';
	else
		snprintf(text, SERVER_TEXT_SIZE, "%s:%" PRId64, server->system, server->timeline);
	return text;
}

/* 0, or -1 when it is malformed. */
static int pair_take(struct changes *changes, const char *stripe_text, const char *num_text)
{
	int64_t stripe, num;

	if (number_parse(stripe_text, CHANGES_STRIPES - 1, &stripe) ||
	    number_parse(num_text, INT64_MAX, &num))
		return -1;
	if (changes->num[stripe] < num)
		changes->num[stripe] = num;
	return 0;
}

int changes_add(struct changes *changes, const char *text)
{
	char stripe_text[NUMBER_SIZE] = "";
	size_t len = strcspn(text, ":");

	if (text[len] != ':' || len >= sizeof(stripe_text))
		return -1;
	memcpy(stripe_text, text, len);
	return pair_take(changes, stripe_text, text + len + 1);
}

void changes_raise(struct changes *changes, const struct changes *by)
{
	for (int i = 0; i < CHANGES_STRIPES; i++)
		if (changes->num[i] < by->num[i])
			changes->num[i] = by->num[i];
	if (*by->installation)
		installation_take(changes, by->installation);
	if (*by->server.system)
		changes->server = by->server;
}

/* Whether Redis refuses to read the key because it is of another type. */
static int is_no_copy(const char *error)
{
	return strncmp(error, "WRONGTYPE", strlen("WRONGTYPE")) == 0;
}

int changes_copy_take(struct changes *copy, const redisReply *reply)
{
	memset(copy, 0, sizeof(*copy));
	if (reply->type == REDIS_REPLY_ERROR)
		return is_no_copy(reply->str) ? 0 : -1;
	for (size_t i = 0; i + 1 < reply->elements; i += 2) {
		const char *name = reply->element[i]->str, *value = reply->element[i + 1]->str;

		if (strcmp(name, "installation") == 0) {
			installation_take(copy, value);
		} else if (strcmp(name, "system") == 0 || strcmp(name, "timeline") == 0) {
			server_part_take(&copy->server, name, value);
		} else if (strcmp(name, "former") == 0) {
			snprintf(copy->former, sizeof(copy->former), "%s", value);
		} else if (strncmp(name, FOLLOWED, strlen(FOLLOWED)) == 0) {
			struct postgres_server server = { .timeline = 0 };

			if (copy->highest_n < CLUSTERS_MAX &&
			    server_part_take(&server, "system", name + strlen(FOLLOWED)) == 0 &&
			    server_part_take(&server, "timeline", value) == 0)
				copy->highest[copy->highest_n++] = server;
		} else {
			pair_take(copy, name, value);
		}
	}
	return 0;
}

int changes_copy_read(struct changes *copy, struct redis_client *redis)
{
	const char *hgetall[] = { "HGETALL", CHANGES_KEY };
	redisReply *reply = redis_client_call(redis, 2, hgetall);
	int rc;

	memset(copy, 0, sizeof(*copy));
	if (!reply)
		return redis_client_is_open(redis) && is_no_copy(redis_client_error(redis)) ? 0
											    : -1;
	rc = changes_copy_take(copy, reply);
	freeReplyObject(reply);
	return rc;
}

enum relation changes_replied(const char *word)
{
	if (strcmp(word, "ok") == 0)
		return RELATION_OWN;
	if (strcmp(word, "foreign") == 0)
		return RELATION_FOREIGN;
	if (strcmp(word, "old") == 0)
		return RELATION_OLD;
	if (strcmp(word, "other") == 0)
		return RELATION_OTHER;
	return strcmp(word, "unadopted") == 0 ? RELATION_UNADOPTED : RELATION_UNKNOWN;
}

static enum relation changes_eval(struct redis_client *redis, int argc, const char **argv)
{
	char word[REDIS_WORD_SIZE];

	redis_word_take(redis_client_eval(redis, lua_changes, 1, (const char *[]){ CHANGES_KEY },
					  argc, argv),
			word);
	return changes_replied(word);
}

enum relation changes_copy(struct redis_client *redis, const struct changes *changes,
			   const struct changes *copy)
{
	char texts[CHANGES_STRIPES][2][NUMBER_SIZE], server[SERVER_TEXT_SIZE];
	const char *argv[4 + 2 * CHANGES_STRIPES] = { changes->installation, "",
						      server_text(&changes->server, server),
						      "newer" };
	int n = 4;

	for (int i = 0; i < CHANGES_STRIPES; i++) {
		if (changes->num[i] <= copy->num[i])
			continue;
		argv[n++] = number_text(i, texts[i][0]);
		argv[n++] = number_text(changes->num[i], texts[i][1]);
	}
	if (n == 4 && server_equals(&changes->server, &copy->server))
		return RELATION_OWN;
	return changes_eval(redis, n, argv);
}

int changes_copy_raise(struct redis_client *redis, const struct changes *changes,
		       const struct changes *copy)
{
	enum relation relation = changes_copy(redis, changes, copy);

	if (relation == RELATION_FOREIGN || relation == RELATION_OLD || relation == RELATION_OTHER)
		return -1;
	return relation != RELATION_UNKNOWN || redis_client_is_open(redis) ? 0 : -1;
}

enum relation changes_adopt(struct redis_client *redis, const char *installation,
			    const char *instead_of)
{
	return changes_eval(redis, 4,
			    (const char *[]){ installation, instead_of ? instead_of : "none", "",
					      "newer" });
}

enum relation changes_follow(struct redis_client *redis, const struct changes *changes,
			     enum follow follow)
{
	static const char *const words[] = {
		[FOLLOW_NEWER] = "newer", [FOLLOW_OTHER] = "other", [FOLLOW_ANY] = "any"
	};
	char server[SERVER_TEXT_SIZE];

	return changes_eval(redis, 4,
			    (const char *[]){ changes->installation, "",
					      server_text(&changes->server, server),
					      words[follow] });
}

void changes_take(struct changes *changes, const PGresult *rows)
{
	memset(changes, 0, sizeof(*changes));
	for (int i = 0; i < PQntuples(rows); i++)
		pair_take(changes, PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 1));
	if (PQntuples(rows) == 0)
		return;
	installation_take(changes, PQgetvalue(rows, 0, 3));
	server_part_take(&changes->server, "system", PQgetvalue(rows, 0, 5));
	changes->server.timeline = strtoll(PQgetvalue(rows, 0, 6), NULL, 10);
}

enum relation changes_relate(enum relation before, const struct changes *changes,
			     const struct changes *copy)
{
	if (!*changes->installation)
		return RELATION_UNKNOWN;
	if (!*copy->installation)
		return before == RELATION_FOREIGN ? RELATION_FOREIGN : RELATION_UNADOPTED;
	return strcmp(changes->installation, copy->installation) == 0 ? RELATION_OWN
								      : RELATION_FOREIGN;
}

static int64_t behind_until(const struct changes *changes, const struct changes *copy, int end)
{
	int64_t behind = 0;

	for (int i = 0; i < end; i++)
		if (changes->num[i] < copy->num[i])
			behind += copy->num[i] - changes->num[i];
	return behind;
}

int64_t changes_behind(const struct changes *changes, const struct changes *copy)
{
	return behind_until(changes, copy, CHANGES_STRIPES);
}

int64_t changes_behind_others(const struct changes *changes, const struct changes *copy)
{
	return behind_until(changes, copy, CHANGES_SETTLED);
}

struct standing changes_stand(enum relation before, const struct changes *changes,
			      const struct changes *copy)
{
	const struct postgres_server *server = &changes->server;
	struct standing standing = { .relation = changes_relate(before, changes, copy),
				     .behind = changes_behind(changes, copy) };
	int is_promoted = !*copy->server.system || strcmp(server->system, copy->server.system) == 0;

	/* The id of a standby is that of its primary. */
	if (standing.relation != RELATION_FOREIGN && server->timeline == 0)
		standing.relation = RELATION_STANDBY;
	if (standing.relation != RELATION_OWN)
		return standing;
	if (standing.behind > 0)
		standing.relation = RELATION_BEHIND;
	if (server_equals(server, &copy->server))
		return standing;

	/* As lua/changes.lua, which decides when the server is to be followed. */
	for (size_t i = 0; i < copy->highest_n; i++)
		if (strcmp(server->system, copy->highest[i].system) == 0 &&
		    server->timeline <= copy->highest[i].timeline)
			standing.relation = RELATION_OLD;
	/* One that lacks something takes the place of another cluster by couponctl recover only. */
	if (standing.relation == RELATION_OWN)
		standing.follow = FOLLOW_OTHER;
	else if (standing.relation == RELATION_BEHIND && is_promoted)
		standing.follow = FOLLOW_NEWER;
	return standing;
}

int relation_is_followed(enum relation relation)
{
	return relation == RELATION_OWN || relation == RELATION_BEHIND;
}

void relation_log(enum relation before, enum relation relation, const struct changes *changes,
		  const struct changes *copy)
{
	char server[SERVER_TEXT_SIZE], followed[SERVER_TEXT_SIZE];

	if (relation == before)
		return;
	if (relation == RELATION_FOREIGN)
		log_error("installation_differs", LOG_S("postgresql", changes->installation),
			  LOG_S("redis", copy->installation),
			  LOG_S("why", RELATION_FOREIGN_TEXT "; nothing is issued or changed"),
			  LOG_S("mend", "correct DATABASE_URL or REDIS_URL, or see "
					"couponctl installation"));
	else if (relation == RELATION_OLD)
		log_error("postgresql_old", LOG_S("server", server_text(&changes->server, server)),
			  LOG_S("followed", server_text(&copy->server, followed)),
			  LOG_S("why", RELATION_OLD_TEXT), LOG_S("mend", SERVER_OLD_MEND));
	else if (relation == RELATION_BEHIND)
		log_error("postgresql_behind", LOG_I("transactions", changes_behind(changes, copy)),
			  LOG_S("why", "PostgreSQL was put back to an earlier moment"),
			  LOG_S("mend", "couponctl recover"));
	else if (relation != RELATION_OWN)
		return;
	else if (before == RELATION_FOREIGN)
		log_info("installation_agrees", LOG_S("installation", changes->installation));
	else if (before == RELATION_OLD)
		log_info("postgresql_agrees",
			 LOG_S("server", server_text(&changes->server, server)));
	else if (before == RELATION_BEHIND)
		log_info("postgresql_recovered", LOG_S("by", "couponctl recover"));
}
