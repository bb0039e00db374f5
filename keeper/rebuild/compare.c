/*
 * While the coupon is held, no receive is accepted, freed or counted late in Redis, so its state
 * there can be compared with one snapshot of PostgreSQL. That is also true if its numbers are the
 * same before and after: so it is first compared while it is open.
 *
 *	each row                      has a slot with the same receive, key and exchange code
 *	codes                         = those of the slots + those that are revoked
 *	slots - rows                  = in flight of this generation + known of older ones
 *	                                + slots to be freed
 *	stock + slots + reserved      = total
 *	reserved + known              = in flight of older generations
 *
 * If only the numbers of the last two differ, they are put right (lua/repair.lua). Anything else is
 * a reason for a rebuild.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "embed.h"
#include "keeper/rebuild/place.h"
#include "keeper/rebuild/rebuild.h"
#include "keeper/slot_free.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT 512
#define CODES_MAX (SNAPSHOT_PAGE + 1) /* in a command; at most COUPON_SLOTS_MAX */
#define SETS_REVOKED "*"              /* beside revoked sets and words: lua/issue.lua */
#define ATTEMPTS_MAX 5
#define OPEN_ATTEMPTS 3 /* while it is open */
#define ANSWER_SIZE 160

struct numbers {
	struct redis_coupon coupon;
	int64_t known; /* receives of older generations that have their slots */
};

struct compare {
	struct keeper_context *context;
	int64_t coupon;
	struct snapshot snapshot;
	int64_t rows;
	int64_t slots;
	int64_t in_flight_older;
	const char *differs; /* the first difference but in numbers, a constant */
	struct numbers before, after;
	int64_t stock, reserved; /* as they must be */
	int64_t claimed, found;  /* codes, by the records of the users, and in Redis */
	int is_behind;           /* Redis has not counted all late outcomes of the snapshot */
};

static void differ(struct compare *compare, const char *what)
{
	if (!compare->differs)
		compare->differs = what;
}

/* Codes with what Redis must have of each. */
struct codes_page {
	char codes[CODES_MAX][RECEIVE_CODE_MAX + 1];
	struct user_id users[CODES_MAX]; /* none: revoked */
	int n;
};

/* Compares them, and empties the page. */
static int codes_page_compare(struct compare *compare, struct codes_page *page)
{
	const char *codes[CODES_MAX];
	redisReply *reply;

	if (page->n == 0)
		return 0;
	for (int i = 0; i < page->n; i++)
		codes[i] = page->codes[i];
	reply = coupon_fields(compare->context->redis, compare->coupon, COUPON_KEY_CODES, codes,
			      (size_t)page->n);
	if (!reply)
		return -1;
	for (int i = 0; i < page->n; i++) {
		const redisReply *value = reply->element[i];
		const char *user = page->users[i].text;
		size_t len = redis_code_user(value);

		if (*user ? len != strlen(user) || memcmp(value->str, user, len) != 0
			  : !redis_code_is_revoked(value))
			differ(compare, "the exchange codes");
	}
	freeReplyObject(reply);
	page->n = 0;
	return 0;
}

/* HSCAN may return some twice. */
static int claimed_count(void *context, const redisReply *codes)
{
	struct compare *compare = context;

	for (size_t i = 1; i < codes->elements; i += 2)
		compare->found += redis_code_user(codes->element[i]) > 0;
	return keeper_context_goes_on(compare->context);
}

/*
 * Redis must have every code that is revoked in PostgreSQL, and no more claimed codes than the
 * records of the users have.
 */
static int codes_compare(struct compare *compare)
{
	struct snapshot *snapshot = &compare->snapshot;
	struct codes_page page = { .n = 0 };
	int rows, has_set;

	if (snapshot_revoked_begin(snapshot, 0))
		return -1;
	do {
		if (snapshot_revoked(snapshot))
			return -1;
		rows = PQntuples(snapshot->page);
		has_set = 0;
		for (int i = 0; i < rows; i++) {
			snprintf(page.codes[page.n], sizeof(page.codes[0]), "%s",
				 PQgetvalue(snapshot->page, i, 0));
			has_set |= strchr(page.codes[page.n++], '.') == NULL;
		}
		if (has_set)
			strcpy(page.codes[page.n++], SETS_REVOKED);
		if (rows > 0 && (codes_page_compare(compare, &page) ||
				 keeper_context_goes_on(compare->context)))
			return -1;
	} while (rows > 0);

	if (coupon_scan(compare->context->redis, compare->coupon, COUPON_KEY_CODES, SCAN_COUNT,
			claimed_count, compare))
		return -1;
	if (compare->found != compare->claimed)
		differ(compare, "the exchange codes");
	return 0;
}

/* Every row must have its slot in Redis, with the same receive, key and code. */
static int rows_compare(struct compare *compare)
{
	struct snapshot *snapshot = &compare->snapshot;
	struct slot slots[SNAPSHOT_PAGE];
	redisReply *records;
	int rows;

	for (;;) {
		if (snapshot_rows(snapshot))
			return -1;
		rows = PQntuples(snapshot->page);
		if (rows == 0)
			return 0;
		memset(slots, 0, sizeof(slots));
		for (int i = 0; i < rows; i++)
			if (slot_of_row(&slots[i], snapshot->page, i, 0))
				return -1; /* rebuild_run() logs it */
		records = coupon_records(compare->context->redis, compare->coupon, slots,
					 (size_t)rows);
		if (!records)
			return -1;
		for (int i = 0; i < rows; i++)
			if (slot_look_up(&slots[i], slots[i].tail, records->element[i]) !=
			    SLOT_SAME)
				differ(compare, "a user coupon that Redis does not have");
		freeReplyObject(records);
		compare->rows += rows;
		if (keeper_context_goes_on(compare->context))
			return -1;
	}
}

/* Counts slots and compares their codes. What is malformed is missing. */
static int users_count(void *context, const redisReply *users)
{
	struct compare *compare = context;
	struct codes_page page = { .n = 0 };
	struct slots slots = { 0 };
	const char *code;
	int rc = 0;

	slots_read(&slots, users);
	compare->slots += (int64_t)slots.n;
	for (size_t i = 0; rc == 0 && i < slots.n; i++) {
		size_t len = slot_code(&slots.list[i], &code);

		if (len == 0)
			continue;
		snprintf(page.codes[page.n], sizeof(page.codes[0]), "%.*s", (int)len, code);
		page.users[page.n++] = slots.list[i].user;
		compare->claimed++;
		if (page.n == CODES_MAX)
			rc = codes_page_compare(compare, &page);
	}
	if (rc == 0)
		rc = codes_page_compare(compare, &page);
	slots_fini(&slots);
	return rc ? rc : keeper_context_goes_on(compare->context);
}

/* Reads the numbers of Redis; with `is_after` also those of older generations. 0, or -1. */
static int numbers_read(struct compare *compare, struct numbers *numbers, int is_after)
{
	struct generations older = { 0 };
	redisReply *hash = coupon_call(compare->context->redis, compare->coupon, "HGETALL",
				       COUPON_KEY_COUPON, NULL);

	if (!hash)
		return -1;
	redis_coupon_parse(&numbers->coupon, hash);
	if (is_after) {
		/* Each generation has the higher of its numbers in both stores. */
		generations_raise(&older, hash, NULL);
		for (size_t i = 0; i < older.n; i++)
			snapshot_raise(&compare->snapshot, older.list[i].number,
				       older.list[i].high);
		generations_fini(&older);
		compare->in_flight_older = generations_unsettled(&compare->snapshot.generations, 0);
	}
	freeReplyObject(hash);
	return coupon_known(compare->context->redis, compare->coupon, &numbers->known);
}

/* Begins anew, whatever was compared before. */
static int all_compare(struct compare *compare)
{
	struct keeper_context *context = compare->context;
	int rc = -1;
	const struct coupon_row *row;
	const struct redis_coupon *found;
	int64_t extra, known, expected;

	generations_fini(&compare->snapshot.generations);
	*compare = (struct compare){ .context = context, .coupon = compare->coupon };
	if (numbers_read(compare, &compare->before, 0) ||
	    snapshot_begin(&compare->snapshot, context, context->database, compare->coupon) ||
	    rows_compare(compare))
		goto out;
	/*
	 * The hash of the users does not change during the scan, unless by hand. HSCAN may return a
	 * field twice; that counts as a difference and causes a rebuild.
	 */
	if (coupon_scan(context->redis, compare->coupon, COUPON_KEY_USERS, SCAN_COUNT, users_count,
			compare) ||
	    codes_compare(compare) || numbers_read(compare, &compare->after, 1))
		goto out;

	/* The slots are counted: compare the counts. */
	row = &compare->snapshot.row;
	found = &compare->after.coupon;
	extra = compare->slots - compare->rows;
	known = compare->after.known;
	expected = found->seq - row->settled + known;
	if (found->seq < row->seq_seen || found->seq < row->settled)
		differ(compare, "numbers that PostgreSQL has seen but Redis has not given out");
	compare->is_behind = found->late < compare->snapshot.late;
	compare->reserved = compare->in_flight_older - known;
	compare->stock = found->total - compare->slots - compare->reserved;
	if (found->late != compare->snapshot.late || compare->reserved < 0)
		differ(compare, "receives in flight of older generations");
	if (found->lost != 0 || compare->stock < 0)
		differ(compare, "the stock");
	/* The slot of a rejected receive that is not freed may have another owner. */
	if (extra < expected || extra > expected + compare->snapshot.unfreed)
		differ(compare, "slots that are neither issued nor in flight");
	if (found->version == row->version && found->total != row->total)
		differ(compare, "the total");

	rc = 0;
out:
	snapshot_end(&compare->snapshot);
	return rc;
}

static int numbers_are_right(const struct compare *compare)
{
	return compare->stock == compare->before.coupon.stock &&
	       compare->reserved == compare->before.coupon.reserved;
}

/* Puts the numbers right if they are still those that were compared: `word` is "right" then. */
static void numbers_repair(struct compare *compare, char word[REDIS_WORD_SIZE])
{
	const struct redis_coupon *before = &compare->before.coupon;
	const int64_t numbers[] = { before->generation, before->seq,           before->total,
				    before->stock,      before->reserved,      before->lost,
				    before->late,       compare->before.known, compare->stock,
				    compare->reserved };
	char texts[10][NUMBER_SIZE];
	const char *argv[11] = { keeper_context_fence(compare->context) };

	for (int i = 0; i < 10; i++)
		argv[i + 1] = number_text(numbers[i], texts[i]);
	redis_word_take(redis_client_coupon_eval(compare->context->redis, lua_repair,
						 compare->coupon,
						 COUPON_KEYS_ISSUE | COUPON_KEY_KNOWN, 11, argv),
			word);
	if (strcmp(word, "right") == 0 && !numbers_are_right(compare))
		log_warn("coupon_repaired", LOG_I("coupon", compare->coupon),
			 LOG_I("stock", compare->stock), LOG_I("was", before->stock),
			 LOG_I("reserved", compare->reserved),
			 LOG_I("reserved_was", before->reserved));
}

/* Opens the coupon, whose numbers are right now, and answers couponctl. 0, or -1. */
static int open_again(struct compare *compare, const struct coupon_row *row,
		      const struct coupon_look *look)
{
	struct keeper_context *context = compare->context;
	char word[REDIS_WORD_SIZE], answer[ANSWER_SIZE] = "nothing differs";

	if (place_verify(context, &row, 1, &word))
		return -1;
	if (strcmp(word, "verified") != 0)
		return keeper_context_word(context, word)
			       ? -1
			       : rebuild_run(context, row, look, "behind");
	if (!numbers_are_right(compare))
		snprintf(answer, sizeof(answer),
			 "put right: stock %" PRId64 ", was %" PRId64 "; reserved %" PRId64
			 ", was %" PRId64,
			 compare->stock, compare->before.coupon.stock, compare->reserved,
			 compare->before.coupon.reserved);
	log_info("coupon_compared", LOG_I("coupon", row->id), LOG_I("generation", row->generation),
		 LOG_S("what", answer));
	return rebuild_answer(context, row, answer);
}

/* Counts the late outcomes of the coupon that PostgreSQL has. 0, or -1. */
static int late_count(struct keeper_context *context, int64_t coupon)
{
	struct late late = { .coupon = coupon };
	int rc;

	do
		rc = late_step(&late, context);
	while (rc > 0 && late.coupon == coupon);
	put_off_clear(&late.put_off);
	return rc < 0 ? -1 : 0;
}

/*
 * Compares the coupon while it is open, and puts its numbers right. 1: its numbers are right now,
 * and its slots are sound; 0: it must be held for that, because it changes or differs in something
 * else; -1: something cannot be read.
 */
static int open_compare(struct compare *compare)
{
	char word[REDIS_WORD_SIZE];

	for (int i = 0; i < OPEN_ATTEMPTS; i++) {
		if (late_count(compare->context, compare->coupon) || all_compare(compare))
			return -1;
		if (compare->is_behind)
			continue;
		if (compare->differs)
			return 0;
		numbers_repair(compare, word);
		if (strcmp(word, "right") == 0)
			return 1;
		if (strcmp(word, "changed") != 0)
			return keeper_context_word(compare->context, word);
	}
	return 0;
}

/*
 * Redis counts no late outcome while the coupon is held. An outcome that PostgreSQL gets between
 * the last count and the snapshot is no difference: the coupon is opened for the next count, and
 * compared again. 0; 1: it could not be held; -1: something cannot be read.
 */
static int hold_and_compare(struct compare *compare, const struct coupon_row *row)
{
	struct keeper_context *context = compare->context;
	char word[REDIS_WORD_SIZE];

	for (int i = 1;; i++) {
		if (late_count(context, row->id) && keeper_context_usable(context))
			return 1;
		if (rebuild_hold(context, row, 0))
			return 1;
		if (all_compare(compare))
			return -1;
		if (!compare->is_behind || i == ATTEMPTS_MAX)
			break;
		if (place_verify(context, &row, 1, &word))
			return -1;
		if (strcmp(word, "verified") != 0)
			return 0;
	}
	if (compare->differs)
		return 0;
	numbers_repair(compare, word);
	if (strcmp(word, "right") != 0)
		differ(compare, "counts that have changed");
	return keeper_context_word(context, word);
}

int compare_run(struct keeper_context *context, const struct coupon_row *row,
		const struct coupon_look *look)
{
	struct compare *compare = checked(calloc(1, sizeof(*compare)));
	int rc;

	compare->context = context;
	compare->coupon = row->id;
	rc = open_compare(compare) > 0 ? 0 : hold_and_compare(compare, row);
	if (rc < 0 && keeper_context_usable(context) == 0) {
		differ(compare, "records that cannot be read");
		rc = 0;
	}
	if (rc == 0 && compare->differs) {
		log_warn("coupon_differs", LOG_I("coupon", row->id),
			 LOG_S("what", compare->differs));
		rc = rebuild_run(context, row, look, compare->differs);
	} else if (rc == 0) {
		rc = open_again(compare, row, look);
	}
	generations_fini(&compare->snapshot.generations);
	free(compare);
	if (rc == 0)
		return 0;
	context->refused |= rc < 0;
	return keeper_context_usable(context);
}
