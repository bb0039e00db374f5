/* couponctl dead drop: deletes dead letters, and names the receives that are still owed. */
#include "common/check.h"
#include "common/message/receive.h"
#include "ctl/dead/outbox.h"
#include "ctl/dead/walk.h"
#include "ctl/store.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>

struct drop {
	struct dead_walk walk;
	struct dead_outbox outbox;
	const struct ctl *ctl;
	struct db *db;  /* NULL: not needed so far */
	int sure;       /* --yes */
	int is_checked; /* Redis is that of PostgreSQL */
	int64_t owed;   /* receives without an outcome */
};

static void database_open(struct drop *drop)
{
	if (!drop->db)
		drop->db = db_open("DATABASE_URL", drop->ctl->config.database_url);
}

/* What PostgreSQL says of a receive decides what is removed in Redis. */
static void installation_check(struct drop *drop)
{
	if (!drop->outbox.redis || drop->is_checked)
		return;
	database_open(drop);
	store_redis_check(drop->outbox.redis, behind_read(drop->db, drop->outbox.redis) >= 0);
	drop->is_checked = 1;
}

static int is_owed(struct drop *drop, const struct receive *receive)
{
	char coupon[DB_NUMBER_SIZE], index[DB_NUMBER_SIZE], batch[ULID_UUID_SIZE];
	PGresult *rows;
	int owed;

	database_open(drop);
	rows = db_query(drop->db, sql_query_receive_outcome, 4,
			(const char *[]){ db_number(receive->coupon, coupon), receive->user.text,
					  ulid_to_uuid(&receive->batch, batch),
					  db_number(receive->index, index) });
	owed = PQntuples(rows) == 0;
	PQclear(rows);
	return owed;
}

/* A receive is owed unless another copy of its message was settled. */
static void owed_print(struct drop *drop, const struct message *message)
{
	char text[RECEIVE_SIZE];

	for (size_t i = 0; i < message->receives_n; i++) {
		struct receive receive = { .coupon = message->coupon,
					   .user = message->receives[i].user,
					   .batch = message->batch,
					   .index = (int)i };

		if (!is_owed(drop, &receive))
			continue;
		receive_format(&receive, text);
		printf("  owed: %s\n", text);
		drop->owed++;
	}
}

static void batch_print(struct drop *drop, const struct dead_batch *batch)
{
	static struct message message;

	if (dead_batch_decode(batch, drop->walk.arena, &message) == 0)
		owed_print(drop, &message);
	else
		printf("  cannot be read (%s): it may contain receives that are owed\n",
		       batch->unreadable);
}

static void letter_drop(struct drop *drop, const struct dead_letter *letter)
{
	if (drop->sure)
		dead_outbox_open(&drop->outbox, letter);
	installation_check(drop);
	printf("%s %" PRId64 ": ", drop->sure ? "dropped" : "would drop", letter->number);
	dead_letter_summary_print(letter);
	for (size_t i = 0; i < letter->batches_n; i++)
		batch_print(drop, &letter->batches[i]);
	/* Printed before the removal: then no receive vanishes unnamed. */
	fflush(stdout);
	if (!drop->sure)
		return;
	/* Before the removal: interrupted in between, the command finds the letter once more. */
	dead_outbox_remove(&drop->outbox, letter);
	dead_queue_remove(drop->walk.queue, letter->tag);
}

static int drop_run(struct ctl *ctl)
{
	static struct dead_letter letter;
	struct drop drop = { .outbox.ctl = ctl, .ctl = ctl, .sure = args_has(&ctl->args, "yes") };
	enum dead_step step;

	dead_choice_read_many(&drop.walk.choice, ctl);
	dead_walk_begin(&drop.walk, ctl);
	while ((step = dead_walk_step(&drop.walk, &letter)) != DEAD_STEP_END) {
		if (step != DEAD_STEP_CHOSEN)
			continue;
		letter_drop(&drop, &letter);
		dead_letter_fini(&letter);
	}
	dead_walk_end(&drop.walk);
	db_close(drop.db);
	dead_outbox_close(&drop.outbox);
	dead_walk_check_found(&drop.walk);
	printf("%" PRId64 " message%s %s, with %" PRId64 " receive%s that %s owed\n",
	       drop.walk.chosen, drop.walk.chosen == 1 ? "" : "s",
	       drop.sure ? "dropped" : "would be dropped", drop.owed, drop.owed == 1 ? "" : "s",
	       drop.owed == 1 ? "was" : "were");
	if (!drop.sure)
		args_fail("nothing was dropped: that needs --yes");
	return 0;
}

static const struct option drop_options[] = {
	SWITCH("all", "all messages that are in the queue at the start"),
	OPTION("limit", "N", "the N oldest messages"),
	SWITCH("yes", "delete; without it, only print what would be deleted"),
	OPTIONS_END,
};

const struct command dead_drop_command = {
	.name = "dead drop",
	.run = drop_run,
	.argument = "[N|BATCH]",
	.options = drop_options,
	.summary = "delete dead letters",
	.detail = "A receive in the dead-letter queue is still owed to its user: each one that\n"
		  "can be read and has no outcome is named. After the deletion it cannot get an\n"
		  "outcome, and its coupon counts it as in flight. The message is removed from\n"
		  "the outbox in Redis, too.",
};
