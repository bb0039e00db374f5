#include "gateway/store_checks.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/program/weak_settings.h"
#include "common/redis/redis.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPARE_AGAIN_MS 500
#define COMPARE_EQUAL_MS 5000
#define LOOK_MS 200      /* between two looks at the id in Redis */
#define ADOPT_NEW_MS 500 /* a gateway that has just learnt its id leaves Redis to others */

static void relation_set(struct comparison *comparison)
{
	struct changes own = { .num = { 0 } };
	enum relation before = comparison->relation;

	memcpy(own.installation, comparison->installation, INSTALLATION_SIZE);
	comparison->relation = changes_relate(before, &own, &comparison->copy);
	if (comparison->relation == RELATION_FOREIGN)
		lookup_trust(comparison->lookup, LOOKUP_FOREIGN);
	if ((comparison->relation == RELATION_FOREIGN) != (before == RELATION_FOREIGN))
		comparison->due_ms = 0; /* PostgreSQL may have got another id, too */
	if (comparison->is_first)
		relation_log(before, comparison->relation, &own, &comparison->copy);
}

static void on_changes(void *context, const PGresult *rows)
{
	struct comparison *comparison = context;
	struct changes changes;
	struct standing standing;
	enum lookup_trust trust = LOOKUP_TRUSTED;

	comparison->is_asking = 0;
	if (!rows || comparison_is_due(comparison))
		return;
	changes_take(&changes, rows);
	if (strcmp(changes.installation, comparison->installation) != 0) {
		memcpy(comparison->installation, changes.installation, INSTALLATION_SIZE);
		comparison->adopt_ms = clock_monotonic_ms() + ADOPT_NEW_MS;
	}
	relation_set(comparison);
	if (comparison->relation == RELATION_FOREIGN)
		return;
	/* A standby that is not behind is trusted; keepers have Redis follow another server. */
	standing = changes_stand(comparison->relation, &changes, &comparison->copy);
	if (standing.relation == RELATION_OLD)
		trust = LOOKUP_OLD;
	else if (standing.behind > 0)
		trust = LOOKUP_PUT_BACK;
	else
		comparison->due_ms = clock_monotonic_ms() + COMPARE_EQUAL_MS;
	lookup_trust(comparison->lookup, trust);
}

static void on_adopt(void *context, const redisReply *reply)
{
	const struct comparison *comparison = context;

	if (reply && reply->type == REDIS_REPLY_STRING &&
	    changes_replied(reply->str) == RELATION_OWN)
		log_info("installation_adopted", LOG_S("installation", comparison->installation));
}

static void on_copy(void *context, const redisReply *reply)
{
	struct comparison *comparison = context;
	const char *adopt[] = { "EVAL", lua_changes, "1",    CHANGES_KEY, comparison->installation,
				"none", "",          "newer" };

	comparison->is_asking = 0;
	if (!reply || changes_copy_take(&comparison->copy, reply))
		return;
	comparison->redis_connects = comparison->asked_connects;
	relation_set(comparison);

	/*
	 * Redis has lost its data, the id too. It gets back the one that PostgreSQL had before
	 * that.
	 */
	if (comparison->is_first && comparison->relation == RELATION_UNADOPTED &&
	    clock_monotonic_ms() >= comparison->adopt_ms)
		redis_pool_query(comparison->redis, 8, adopt, on_adopt, comparison);

	if (!comparison->is_look)
		comparison->is_asking = lookup_ask(comparison->lookup, LOOKUP_CHANGES, 0, NULL,
						   on_changes, comparison) == 0;
}

int comparison_is_due(const struct comparison *comparison)
{
	return comparison->connects != lookup_connects_n(comparison->lookup);
}

int comparison_allows_telling(const struct comparison *comparison)
{
	return comparison->redis_connects == redis_pool_connects(comparison->redis) &&
	       redis_pool_connects(comparison->redis) > 0 &&
	       comparison->relation != RELATION_FOREIGN;
}

/* First the copy: it must not be newer than what it is compared with. */
void comparison_tick(struct comparison *comparison, int64_t now_ms)
{
	const char *argv[] = { "HGETALL", CHANGES_KEY };
	int is_compared = lookup_is_connected(comparison->lookup) &&
			  (comparison_is_due(comparison) || now_ms >= comparison->due_ms),
	    is_look = comparison->is_first &&
		      (now_ms >= comparison->look_ms ||
		       comparison->redis_connects != redis_pool_connects(comparison->redis));

	if (comparison->is_asking || redis_pool_trouble(comparison->redis) ||
	    (!is_compared && !is_look))
		return;
	comparison->look_ms = now_ms + LOOK_MS;
	comparison->asked_connects = redis_pool_connects(comparison->redis);
	comparison->is_look = !is_compared;
	if (is_compared) {
		comparison->connects = lookup_connects_n(comparison->lookup);
		comparison->due_ms = now_ms + COMPARE_AGAIN_MS;
	}
	comparison->is_asking = 1;
	redis_pool_query(comparison->redis, 2, argv, on_copy, comparison);
}

#define SETTINGS_AGAIN_MS 60000

/* CONFIG GET returns name and value, or nothing for an unknown name. */
static void on_config(void *context, const redisReply *reply)
{
	struct weak_settings *settings = context;

	if (!reply)
		return; /* the connection is lost: repeated over the next one */
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->str &&
	    reply->element[1]->str)
		durability_tell(&settings->durability, reply->element[0]->str,
				reply->element[1]->str);
	else
		durability_unknown(&settings->durability, DURABILITY_REDIS,
				   reply->str ? reply->str : "CONFIG GET returns nothing");
}

static void on_settings(void *context, const PGresult *rows)
{
	struct weak_settings *settings = context;

	for (int row = 0; rows && row < PQntuples(rows); row++)
		durability_tell(&settings->durability, column_text(rows, row, "name"),
				column_text(rows, row, "setting"));
}

/* Whether the part's settings are to be read now. */
static int part_is_due(struct weak_settings *settings, enum durability_part part, uint64_t connects,
		       int is_connected, int64_t now_ms)
{
	if (connects != settings->parts[part].connects) {
		durability_begin(&settings->durability, part);
		settings->parts[part].due_ms = now_ms;
	}
	settings->parts[part].connects = connects;
	if (connects == 0 || now_ms < settings->parts[part].due_ms || !is_connected)
		return 0;
	settings->parts[part].due_ms = now_ms + SETTINGS_AGAIN_MS;
	return 1;
}

void weak_settings_tick(struct weak_settings *settings, int64_t now_ms)
{
	const char *argv[] = { "CONFIG", "GET", NULL };

	if (part_is_due(settings, DURABILITY_REDIS, redis_pool_connects(settings->redis), 1,
			now_ms))
		for (int i = 0; (argv[2] = durability_redis_setting(i, settings->has_sentinels));
		     i++)
			redis_pool_query(settings->redis, 3, argv, on_config, settings);
	if (part_is_due(settings, DURABILITY_POSTGRESQL, lookup_connects_n(settings->lookup),
			lookup_is_connected(settings->lookup), now_ms))
		lookup_ask(settings->lookup, LOOKUP_SETTINGS, 0, NULL, on_settings, settings);
	metrics_set(METRIC_WEAK_SETTINGS,
		    durability_warnings(&settings->durability, NULL) + transport_warnings(NULL));
}

/* What Redis is asked, or told, of a coupon with unconfirmed batches. */
struct copy_ticket {
	struct outbox_copies *outbox;
	struct copies_coupon *asked;
	struct redis_link *link; /* NULL: none */
	char run_id[REDIS_RUN_ID_SIZE];
	int is_look;
	struct copies_look look;
	enum copies_result result;
};

/* A Redis of others is neither asked nor told: the ticket has no link then. */
static struct copy_ticket *ticket_new(struct outbox_copies *outbox, struct copies_coupon *asked)
{
	struct copy_ticket *ticket = checked(calloc(1, sizeof(*ticket)));

	ticket->outbox = outbox;
	ticket->asked = asked;
	if (comparison_allows_telling(outbox->comparison))
		ticket->link = redis_pool_pick(outbox->redis);
	if (ticket->link)
		snprintf(ticket->run_id, sizeof(ticket->run_id), "%s",
			 redis_link_handshake(ticket->link)->run_id);
	return ticket;
}

static void ticket_end(struct copy_ticket *ticket, int is_replied)
{
	struct copies *copies = ticket->outbox->copies;

	if (ticket->is_look)
		copies_looked(copies, ticket->asked, ticket->run_id,
			      is_replied ? &ticket->look : NULL);
	else
		copies_written(copies, ticket->asked, ticket->result);
	free(ticket);
}

static void on_replicated(void *context, int is_replicated)
{
	struct copy_ticket *ticket = context;

	ticket->look.is_alone = !is_replicated;
	if (!is_replicated)
		ticket->result = COPIES_ALONE;
	ticket_end(ticket, 1);
}

static void ticket_replied(struct copy_ticket *ticket)
{
	if (ticket->outbox->replicas)
		replicas_hold(ticket->outbox->replicas, ticket->run_id,
			      &(struct held){ .done = on_replicated, .context = ticket });
	else
		ticket_end(ticket, 1);
}

static void on_look(void *context, const redisReply *reply)
{
	struct copy_ticket *ticket = context;

	if (restore_look_take(&ticket->look, reply))
		ticket_end(ticket, 0);
	else
		ticket_replied(ticket);
}

static void look(void *context, struct copies_coupon *asked, int64_t coupon)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[] = { RESTORE_LOOK_WORDS(coupon_key(coupon, COUPON_KEY_COUPON, key)) };
	struct copy_ticket *ticket = ticket_new(context, asked);

	ticket->is_look = 1;
	redis_pool_query_over(ticket->link, RESTORE_LOOK_WORDS_N, argv, on_look, ticket);
}

static void on_written(void *context, const redisReply *reply)
{
	struct copy_ticket *ticket = context;

	ticket->result = restore_result_take(reply);
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("outbox_restore", LOG_S("error", reply->str));
	if (ticket->result == COPIES_WRITTEN && reply->type == REDIS_REPLY_INTEGER)
		metrics_add(METRIC_RESTORED, reply->integer);
	if (ticket->result == COPIES_WRITTEN)
		ticket_replied(ticket);
	else
		ticket_end(ticket, 1);
}

static void write_again(void *context, struct copies_coupon *asked, int64_t coupon,
			const struct copy *const *messages, size_t n)
{
	struct copy_ticket *ticket = ticket_new(context, asked);
	struct restore_command command;

	restore_command_make(&command, coupon, lua_restore, messages, n);
	if (!ticket->link || redis_link_command(ticket->link, command.n, command.words,
						command.lengths, on_written, ticket))
		on_written(ticket, NULL);
}

struct copies *outbox_copies_new(struct outbox_copies *outbox)
{
	const struct copies_port port = {
		.now_ms = clock_monotonic_ms, .look = look, .write = write_again, .context = outbox
	};

	outbox->copies = copies_new(&port);
	return outbox->copies;
}
