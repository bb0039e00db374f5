#include "gateway/read/coupons.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/redis/redis.h"
#include "gateway/listen/request.h"
#include "gateway/read/row.h"

#include "embed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define OFFERS_MAX 4096      /* coupons that are remembered */
#define OFFERS_KEEP_MS 10000 /* then one is read again, in case PostgreSQL was put back */
#define OFFERS_AGAIN_MS 1000 /* as long as PostgreSQL does not have the version, or failed */

/* The members for a reply, lent; NULL: they are not known. */
typedef void offer_fn(void *context, const cJSON *members);

struct asker {
	STAILQ_ENTRY(asker) next;
	int64_t version; /* of the terms that it wants */
	offer_fn *done;
	void *context;
};

struct offer {
	int64_t id; /* of the coupon */
	UT_hash_handle hh;
	TAILQ_ENTRY(offer) by_use;
	int64_t version; /* of the members; 0: they were never read */
	cJSON *members;
	int64_t asked_for; /* version, by the last look-up */
	int has_failed;    /* it did */
	int64_t ended_ms;  /* when it ended */
	int is_asked;      /* a look-up is in progress: the offer is not forgotten */
	STAILQ_HEAD(, asker) askers;
};

struct offers {
	struct lookup *reads;
	struct offer *by_id;
	TAILQ_HEAD(, offer) by_use; /* least recently used first */
};

struct offers *offers_new(struct lookup *reads)
{
	struct offers *offers = calloc(1, sizeof(*offers));

	check(offers != NULL);
	offers->reads = reads;
	TAILQ_INIT(&offers->by_use);
	return offers;
}

static void offer_forget(struct offers *offers, struct offer *offer)
{
	check(!offer->is_asked);
	HASH_DEL(offers->by_id, offer);
	TAILQ_REMOVE(&offers->by_use, offer, by_use);
	cJSON_Delete(offer->members);
	free(offer);
}

/* For a new one the least recently used is forgotten. NULL: it is being looked up. */
static struct offer *offer_add(struct offers *offers, int64_t coupon)
{
	struct offer *offer = TAILQ_FIRST(&offers->by_use);

	if (HASH_COUNT(offers->by_id) >= OFFERS_MAX) {
		if (offer->is_asked)
			return NULL;
		offer_forget(offers, offer);
	}
	offer = calloc(1, sizeof(*offer));
	check(offer != NULL);
	offer->id = coupon;
	STAILQ_INIT(&offer->askers);
	HASH_ADD(hh, offers->by_id, id, sizeof(offer->id), offer);
	TAILQ_INSERT_TAIL(&offers->by_use, offer, by_use);
	return offer;
}

static struct offer *offer_get(struct offers *offers, int64_t coupon)
{
	struct offer *offer;

	HASH_FIND(hh, offers->by_id, &coupon, sizeof(coupon), offer);
	if (!offer)
		return offer_add(offers, coupon);
	TAILQ_REMOVE(&offers->by_use, offer, by_use);
	TAILQ_INSERT_TAIL(&offers->by_use, offer, by_use);
	return offer;
}

/* Members of an older version are shown if they are all that PostgreSQL has, not if it failed. */
static const cJSON *members_known(const struct offer *offer, int64_t version)
{
	return offer->version >= version || !offer->has_failed ? offer->members : NULL;
}

static void offer_read(struct offer *offer, const PGresult *rows)
{
	offer->ended_ms = clock_monotonic_ms();
	offer->has_failed = !rows || PQntuples(rows) == 0;
	if (offer->has_failed)
		return;
	cJSON_Delete(offer->members);
	offer->members = cJSON_CreateObject();
	check(offer->members != NULL);
	offer->version = column_number(rows, 0, "version");
	member_offer(offer->members, rows, 0);
}

static void on_offer_row(void *context, const PGresult *rows)
{
	struct offer *offer = context;
	struct asker *asker;

	offer_read(offer, rows);
	while ((asker = STAILQ_FIRST(&offer->askers))) {
		STAILQ_REMOVE_HEAD(&offer->askers, next);
		asker->done(asker->context, members_known(offer, asker->version));
		free(asker);
	}
	offer->is_asked = 0; /* from here on it may be forgotten */
}

static void asker_add(struct offer *offer, int64_t version, offer_fn *done, void *context)
{
	struct asker *asker = malloc(sizeof(*asker));

	check(asker != NULL);
	*asker = (struct asker){ .version = version, .done = done, .context = context };
	STAILQ_INSERT_TAIL(&offer->askers, asker, next);
}

/* Whether PostgreSQL is to be asked now: for that version, or whether there is another one. */
static int is_due(const struct offer *offer, int64_t version)
{
	int64_t after_ms = offer->version < version ? OFFERS_AGAIN_MS : OFFERS_KEEP_MS;

	return !offer->is_asked &&
	       (offer->asked_for < version || clock_monotonic_ms() - offer->ended_ms >= after_ms);
}

/*
 * Ends in `done`, possibly within the call. The members belong to that version or to a later one,
 * and to an earlier one only while the replica is behind. Nobody waits for a PostgreSQL that failed
 * before.
 */
static void offers_ask(struct offers *offers, int64_t coupon, int64_t version, offer_fn *done,
		       void *context)
{
	struct offer *offer = offer_get(offers, coupon);
	int had_failed;

	if (!offer) {
		done(context, NULL);
		return;
	}
	had_failed = offer->has_failed;
	if (is_due(offer, version)) {
		offer->asked_for = version;
		if (lookup_ask(offers->reads, LOOKUP_OFFER,
			       POSTGRES_ARGUMENTS(postgres_number(coupon)), on_offer_row, offer))
			offer_read(offer, NULL);
		else
			offer->is_asked = 1;
	}
	if (offer->is_asked && offer->version < version && !had_failed)
		asker_add(offer, version, done, context);
	else
		done(context, members_known(offer, version));
}

/* One `coupon` request between its steps. */
struct coupon_query {
	const struct status_parts *parts;
	struct request *request;
	cJSON *object; /* the reply, before the offer is known */
};

enum coupon_state coupon_state_of(const PGresult *rows, int row)
{
	const char *status;
	int64_t end_ms, now_ms;

	if (!rows)
		return COUPON_LOOKUP_FAILED;
	if (row < 0)
		return COUPON_ABSENT;
	status = column_text(rows, row, "status");
	end_ms = column_number(rows, row, "end_ms");
	now_ms = column_number(rows, row, "now_ms");
	if (strcmp(status, "draft") == 0)
		return COUPON_ABSENT; /* clients cannot see drafts */
	if (strcmp(status, "closed") == 0 || (end_ms > 0 && end_ms <= now_ms))
		return COUPON_ENDED;
	return strcmp(status, "paused") == 0 ? COUPON_PAUSED : COUPON_PUBLISHED;
}

/* Takes the query and its request. */
static void coupon_fail(struct coupon_query *query, enum answer answer, const char *message)
{
	request_fail(query->request, answer, message);
	free(query);
}

static void on_coupon_row(void *context, const PGresult *rows, int row)
{
	static const struct {
		enum answer answer;
		const char *message;
	} answers[] = {
		[COUPON_ABSENT] = { ANSWER_NOT_FOUND, NULL },
		[COUPON_ENDED] = { ANSWER_ENDED, NULL },
		[COUPON_PAUSED] = { ANSWER_PAUSED, NULL },
		[COUPON_PUBLISHED] = { ANSWER_UNAVAILABLE,
				       "the coupon is published, but not yet loaded" },
		[COUPON_LOOKUP_FAILED] = { ANSWER_UNAVAILABLE, NULL },
		[COUPON_LOOKUP_BUSY] = { ANSWER_UNAVAILABLE, NULL },
	};
	enum coupon_state state = coupon_state_of(rows, row);

	coupon_fail(context, answers[state].answer, answers[state].message);
}

static void member_time(cJSON *object, const char *name, int64_t time_ms)
{
	char text[CLOCK_RFC3339_SIZE];

	if (time_ms > 0)
		cJSON_AddStringToObject(object, name, clock_rfc3339(time_ms, text));
}

/* What Redis has, in the order in which coupon_state.lua returns it. */
enum field { STATUS, TOTAL, STOCK, LIMIT, BEGIN, END, VERSION, NOW, FIELDS_N };

static int64_t field_number(char *const fields[FIELDS_N], enum field field)
{
	return strtoll(fields[field], NULL, 10);
}

static cJSON *fields_object(int64_t coupon, char *const fields[FIELDS_N])
{
	int64_t begin_ms = field_number(fields, BEGIN), end_ms = field_number(fields, END);
	int64_t now_ms = field_number(fields, NOW);
	const char *state = "open";
	cJSON *object = cJSON_CreateObject();
	char id[ID_SIZE];

	check(object != NULL);
	if (strcmp(fields[STATUS], "closed") == 0 || (end_ms > 0 && now_ms >= end_ms))
		state = "ended";
	else if (strcmp(fields[STATUS], "paused") == 0)
		state = "paused";
	else if (now_ms < begin_ms)
		state = "not_started";
	id_format(coupon, id);
	cJSON_AddStringToObject(object, "coupon", id);
	cJSON_AddStringToObject(object, "state", state);
	cJSON_AddNumberToObject(object, "total", (double)field_number(fields, TOTAL));
	cJSON_AddNumberToObject(object, "stock", (double)field_number(fields, STOCK));
	cJSON_AddNumberToObject(object, "limit", (double)field_number(fields, LIMIT));
	member_time(object, "begin", begin_ms);
	member_time(object, "end", end_ms);
	return object;
}

static void on_offer(void *context, const cJSON *members)
{
	struct coupon_query *query = context;
	const cJSON *member;

	cJSON_ArrayForEach(member, members)
		cJSON_AddItemToObject(query->object, member->string, cJSON_Duplicate(member, 1));
	if (!members)
		check(cJSON_AddTrueToObject(query->object, "partial"));
	request_answer_object(query->request, ANSWER_OK, NULL, query->object);
	free(query);
}

static void on_missing(struct coupon_query *query)
{
	admission_refused(query->parts->admission, query->request->coupon);
	if (lookup_coupon(query->parts->reads, LOOKUP_COUPON, query->request->coupon, on_coupon_row,
			  query))
		coupon_fail(query, ANSWER_BUSY, NULL);
}

static void on_coupon_fields(void *context, const redisReply *reply)
{
	static const struct {
		const char *status, *message;
	} withheld[] = {
		{ "behind", "Redis is behind what was seen of the coupon" },
		{ "unverified", "the coupon is being compared with PostgreSQL" },
		{ "counting", "Redis lost data of the coupon: its stock is being counted" },
	};
	struct coupon_query *query = context;
	char *fields[FIELDS_N];

	--*query->parts->in_redis;
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != FIELDS_N) {
		coupon_fail(query, ANSWER_UNAVAILABLE, "Redis is unreachable");
		return;
	}
	for (size_t i = 0; i < FIELDS_N; i++) {
		fields[i] = reply->element[i]->str;
		if (!fields[i]) {
			on_missing(query);
			return;
		}
	}
	if (strcmp(fields[STATUS], "behind") == 0)
		admission_refused(query->parts->admission, query->request->coupon);
	for (size_t i = 0; i < sizeof(withheld) / sizeof(withheld[0]); i++) {
		if (strcmp(fields[STATUS], withheld[i].status) == 0) {
			coupon_fail(query, ANSWER_UNAVAILABLE, withheld[i].message);
			return;
		}
	}
	query->object = fields_object(query->request->coupon, fields);
	offers_ask(query->parts->offers, query->request->coupon, field_number(fields, VERSION),
		   on_offer, query);
}

void coupon_answer(const struct status_parts *parts, struct request *request)
{
	struct coupon_query *query = malloc(sizeof(*query));
	struct redis_link *link = redis_pool_pick(parts->redis);
	char key[COUPON_KEY_SIZE];
	struct seen_text seen;
	const char *argv[] = { "EVAL",
			       lua_coupon_state,
			       "1",
			       coupon_key(request->coupon, COUPON_KEY_COUPON, key),
			       link ? redis_link_run_id(link) : "",
			       seen.generation,
			       seen.seq };

	check(query != NULL);
	*query = (struct coupon_query){ .parts = parts, .request = request };
	status_seen(parts, request->coupon, &seen);
	redis_pool_query(link, 7, argv, on_coupon_fields, query);
}

#define PAGE_BYTES 131072 /* of the rows of a page, so that clients can read it in time */
#define ROW_BYTES 256     /* the names of the members, and the user */

/* How long a row is in a reply, about: what its bytes are escaped by is not counted. */
static size_t row_bytes(const PGresult *rows, int row)
{
	size_t bytes = ROW_BYTES;

	for (int column = 0; column < PQnfields(rows); column++)
		bytes += (size_t)PQgetlength(rows, row, column);
	return bytes;
}

/* How many rows the page has. With long metadata fewer than the client wants, but always one. */
static int page_rows(const PGresult *rows, int limit)
{
	int n = 0, rows_n = PQntuples(rows);
	size_t bytes = 0;

	while (n < rows_n && n < limit) {
		bytes += row_bytes(rows, n);
		if (n > 0 && bytes > PAGE_BYTES)
			break;
		n++;
	}
	return n;
}

static void coupon_add(cJSON *coupons, const struct user_id *user, const PGresult *rows, int row)
{
	cJSON *object = cJSON_CreateObject();
	struct receive receive;

	check(object != NULL);
	row_receive(rows, row, column_number(rows, row, "coupon_id"), user, &receive);
	cJSON_AddStringToObject(object, "coupon", column_text(rows, row, "coupon_id"));
	member_column(object, rows, row, "name");
	member_receive(object, &receive, (int)column_number(rows, row, "slot"));
	member_column(object, rows, row, "received_at");
	member_column(object, rows, row, "valid_from");
	member_column(object, rows, row, "valid_to");
	member_offer(object, rows, row);
	if (*PQgetvalue(rows, row, PQfnumber(rows, "is_voided")) == 't')
		check(cJSON_AddTrueToObject(object, "voided"));
	cJSON_AddItemToArray(coupons, object);
}

/* That of the page after this row. */
static void cursor_add(cJSON *object, const struct user_id *user, const PGresult *rows, int row)
{
	const struct coupon_cursor cursor = {
		.at_us = column_number(rows, row, "received_us"),
		.coupon = column_number(rows, row, "coupon_id"),
		.slot = (int)column_number(rows, row, "slot"),
	};
	char text[COUPON_CURSOR_SIZE];

	cJSON_AddStringToObject(object, "cursor", coupon_cursor_format(&cursor, user, text));
}

static void on_rows(void *context, const PGresult *rows)
{
	struct request *request = context;
	int n;
	cJSON *object, *coupons;

	if (!rows) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "PostgreSQL is unreachable: the coupons cannot be looked up");
		return;
	}
	object = cJSON_CreateObject();
	check(object != NULL);
	cJSON_AddStringToObject(object, "user", request->user.text);
	coupons = cJSON_AddArrayToObject(object, "coupons");
	n = page_rows(rows, request->page.limit);
	for (int row = 0; row < n; row++)
		coupon_add(coupons, &request->user, rows, row);
	if (PQntuples(rows) > n)
		cursor_add(object, &request->user, rows, n - 1);
	request_answer_object(request, ANSWER_OK, NULL, object);
}

void coupons_answer(struct lookup *reads, struct request *request)
{
	const struct request_page *page = &request->page;
	const struct coupon_cursor *after = &page->after;
	const struct postgres_argument all = postgres_text(NULL);
	const struct postgres_argument arguments[] = {
		postgres_text(request->user.text),
		page->is_next ? postgres_number(after->at_us) : all,
		page->is_next ? postgres_number(after->coupon) : all,
		page->is_next ? postgres_number(after->slot) : all,
		postgres_number(page->limit + 1), /* whether there is a next page */
	};

	if (lookup_ask(reads, LOOKUP_PAGE, 5, arguments, on_rows, request))
		request_fail(request, ANSWER_BUSY, NULL);
}
