/*
 * The models of Redis and PostgreSQL that the simulations use, for tests that compare them with
 * issue.lua and settle(). Each line is a command, with tabs between its words.
 *
 * Redis:
 *
 *	begin TOTAL STOCK LIMIT GENERATION        an open coupon without users
 *	terms STATUS WINDOW TOTAL STOCK LIMIT     STATUS open, paused or closed; WINDOW in, before
 *	                                          or after
 *	release USER SLOT                         the slot is free, the stock has one more
 *	settled BATCH                             its message has left the outbox
 *	issue BATCH UNSETTLED_MAX USER KEY ...    replies SEQ STOCK BODY VERDICT ..., each as
 *	                                          issue.lua returns it
 *
 * PostgreSQL:
 *
 *	coupon TOTAL LIMIT GENERATION             one without user coupons
 *	total TOTAL
 *	settle GENERATION (SEQ BATCH INDEX USER SLOT) ...
 *	                                          replies ISSUED SEQ_SEEN SETTLED OUTCOME ...:
 *	                                          issued, repeated or rejected
 */
#include "common/check.h"
#include "common/message/answer.h"

#pragma GCC diagnostic ignored "-Wunused-function" /* the simulations use the others */
#include "tests/sim/model_database.h"

#define HOUR_MS 3600000

static struct redis_coupon *const coupon = &redis.coupons[0];

static const char *word(char **line)
{
	const char *found = strsep(line, "\t\n");

	return found ? found : "";
}

static int64_t number(char **line)
{
	return strtoll(word(line), NULL, 10);
}

static void coupon_begin(char **line)
{
	redis_wipe(coupon);
	truths_n = 0;
	coupon->present = 1;
	coupon->run_id = redis.run_id;
	coupon->total = number(line);
	coupon->stock = number(line);
	coupon->limit = (int)number(line);
	coupon->generation = number(line);
}

static void terms(char **line)
{
	const char *status = word(line), *window = word(line);

	coupon->status = strcmp(status, "open") == 0     ? STATUS_OPEN
			 : strcmp(status, "paused") == 0 ? STATUS_PAUSED
							 : STATUS_CLOSED;
	coupon->begin_ms = strcmp(window, "before") == 0 ? redis_now_ms() + HOUR_MS : 0;
	coupon->end_ms = strcmp(window, "after") == 0 ? redis_now_ms() - HOUR_MS : 0;
	coupon->total = number(line);
	coupon->stock = number(line);
	coupon->limit = (int)number(line);
}

static void user_read(char **line, struct user_id *user)
{
	const char *text = word(line);

	check(user_id_parse(user, text, strlen(text)) == 0);
}

static void slot_free(char **line)
{
	struct user_id user;
	int slot;

	user_read(line, &user);
	slot = (int)number(line);
	for (size_t i = 0; i < coupon->records_n; i++) {
		const struct truth *truth = &truths[coupon->records[i]];

		if (truth->slot == slot && user_id_same(&truth->receive.user, &user)) {
			coupon->records[i] = coupon->records[--coupon->records_n];
			coupon->stock++;
			return;
		}
	}
	check(0);
}

static void batch_read(char **line, struct ulid *batch)
{
	check(ulid_parse(batch, word(line), ULID_LEN) == 0);
}

static void verdict_print(const struct verdict *verdict)
{
	char batch[ULID_SIZE];

	if (verdict->answer != ANSWER_OK)
		printf("\t%d", -answer_code(verdict->answer));
	else if (verdict->repeated)
		printf("\t%d:%s:%d", verdict->slot, ulid_format(&verdict->batch, batch),
		       verdict->index);
	else
		printf("\t%d", verdict->slot);
}

static void issue(char **line)
{
	static struct redis_call call;

	call = (struct redis_call){ .run_id = redis.run_id,
				    .coupon = COUPON_FIRST,
				    .seen_generation = coupon->generation,
				    .seen_seq = coupon->seq };
	batch_read(line, &call.batch);
	call.unsettled_max = (size_t)number(line);
	for (; *line; call.n++) {
		user_read(line, &call.requests[call.n].user);
		snprintf(call.requests[call.n].key, sizeof(call.requests[0].key), "%s", word(line));
	}
	redis_issue(&call);
	check(call.reply.state == CALL_OK);
	printf("%lld\t%lld\t%.*s", (long long)coupon->seq, (long long)coupon->stock,
	       (int)call.reply.body_len, call.reply.body);
	for (size_t i = 0; i < call.n; i++)
		verdict_print(&call.reply.verdicts[i]);
	printf("\n");
	fflush(stdout);
	free(call.body);
}

static void settled(char **line)
{
	struct ulid batch;

	batch_read(line, &batch);
	outbox_remove(coupon, &batch);
}

static struct database_coupon *const row = &database.coupons[0];

static void row_begin(char **line)
{
	memset(&database, 0, sizeof(database));
	row->exists = row->published = 1;
	row->total = number(line);
	row->limit = (int)number(line);
	row->generation = number(line);
}

static void row_total(char **line)
{
	row->total = number(line);
}

static void settle(char **line)
{
	static const char *const words[] = { [SETTLED_ISSUED] = "issued",
					     [SETTLED_REPEATED] = "repeated",
					     [SETTLED_REJECTED] = "rejected" };
	enum settled outcomes[MESSAGE_RECEIVES_MAX];
	int64_t generation = number(line);
	size_t n = 0;

	for (; *line; n++) {
		struct receive receive = { .coupon = COUPON_FIRST };
		int64_t seq = number(line);
		int slot;

		batch_read(line, &receive.batch);
		receive.index = (int)number(line);
		user_read(line, &receive.user);
		slot = (int)number(line);
		outcomes[n] = database_settle_one(&receive, slot, generation, seq);
	}
	printf("%lld\t%lld\t%lld", (long long)row->issued, (long long)row->seq_seen,
	       (long long)row->settled);
	for (size_t i = 0; i < n; i++)
		printf("\t%s", words[outcomes[i]]);
	printf("\n");
	fflush(stdout);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(char **line);
	} commands[] = { { "begin", coupon_begin }, { "terms", terms },  { "slot_free", slot_free },
			 { "settled", settled },    { "issue", issue },  { "coupon", row_begin },
			 { "total", row_total },    { "settle", settle } };
	char *text = NULL;
	size_t size = 0;
	ssize_t len;

	redis.run_id = 1;
	while ((len = getline(&text, &size, stdin)) > 0) {
		char *line = text;
		const char *name;

		text[len - 1] = '\0'; /* the end of the line */
		name = word(&line);
		for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
			if (strcmp(name, commands[i].name) == 0)
				commands[i].run(&line);
	}
	redis_wipe(coupon);
	free(text);
	return 0;
}
