/*
 * couponctl dead drop: takes dead letters out for good, and tells whose receives are lost by that.
 */
#include "common/check.h"
#include "common/receive.h"
#include "ctl/postgres.h"
#include "ctl/dead/walk.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>

struct drop {
	struct dead_walk walk;
	const struct ctl *ctl;
	struct db *db; /* NULL: nothing was to be looked up yet */
	int sure;      /* --yes */
	int64_t owed;  /* receives */
};

static int is_owed(struct drop *drop, const struct receive *receive)
{
	char coupon[DB_NUMBER_SIZE], user[DB_NUMBER_SIZE], index[DB_NUMBER_SIZE],
		batch[ULID_UUID_SIZE];
	PGresult *rows;
	int owed;

	if (!drop->db)
		drop->db = db_open("DATABASE_URL", drop->ctl->config.database_url);
	rows = db_query(drop->db, sql_query_receive_outcome, 4,
			(const char *[]){ db_number(receive->coupon, coupon),
					  db_number(receive->user, user),
					  ulid_to_uuid(&receive->batch, batch),
					  db_number(receive->index, index) });
	owed = PQntuples(rows) == 0;
	PQclear(rows);
	return owed;
}

/*
 * A receive in the dead-letter queue is still owed, unless another copy of its message was settled.
 */
static void owed_print(struct drop *drop, const struct dead_letter *letter)
{
	const struct message *message = &letter->message;
	char text[RECEIVE_SIZE];

	for (size_t i = 0; i < message->receives_n; i++) {
		struct receive receive = { message->coupon, message->receives[i].user,
					   message->batch, (int)i };

		if (!is_owed(drop, &receive))
			continue;
		receive_format(&receive, text);
		printf("  owed: %s\n", text);
		drop->owed++;
	}
}

static void letter_drop(struct drop *drop, const struct dead_letter *letter)
{
	printf("%s %" PRId64 ": ", drop->sure ? "dropped" : "would drop", letter->number);
	dead_letter_summary_print(letter);
	if (!letter->unreadable)
		owed_print(drop, letter);
	else
		printf("  cannot be read (%s): whether receives are owed by it cannot be told\n",
		       letter->unreadable);
	/* Told before it is done: then nothing vanishes without a word. */
	fflush(stdout);
	if (drop->sure)
		dead_queue_remove(drop->walk.queue, letter->tag);
}

static int drop_run(struct ctl *ctl)
{
	static struct dead_letter letter;
	struct drop drop = { .ctl = ctl, .sure = args_has(&ctl->args, "yes") };
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
	dead_walk_check_found(&drop.walk);
	printf("%" PRId64 " message%s %s, by which %" PRId64 " receive%s %s owed\n",
	       drop.walk.chosen, drop.walk.chosen == 1 ? "" : "s",
	       drop.sure ? "dropped" : "would be dropped", drop.owed, drop.owed == 1 ? "" : "s",
	       drop.owed == 1 ? "was" : "were");
	if (!drop.sure)
		args_fail("nothing was dropped: that needs --yes");
	return 0;
}

static const struct option drop_options[] = {
	SWITCH("all", "all that are there when it begins"),
	OPTION("limit", "N", "the N oldest"),
	SWITCH("yes", "do it; without, it is only told what would be dropped"),
	OPTIONS_END,
};

const struct command dead_drop_command = {
	.name = "dead drop",
	.run = drop_run,
	.argument = "[N|BATCH]",
	.options = drop_options,
	.summary = "take dead letters out for good",
	.detail = "A receive in the dead-letter queue is still owed to its user: each one that can "
		  "be read and has no outcome is named.\n"
		  "Once dropped it never gets one, and its coupon counts it as in flight.",
};
