#include "rush/verify.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "coupon/redis_coupon.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USERS_PAGE 5000
#define COUPONS_PAGE 500  /* whose counts are looked at together */
#define POLL_US 5000      /* between two reads of counts, which must not disturb the measurement */
#define AUDIT_EACH_MAX 8  /* coupons that are audited one by one; more: all of the database's */
#define CALM_US 1000000   /* for which it is looked at whether all is calm */
#define RECHECK_US 200000 /* between two reads of the rows */

/*
 * Reads the counts of `n` coupons, by their ascending indexes in the plan; NULL: of all. Ends the
 * process when one of them does not exist.
 */
static void counts_read(const struct rush_verify *verify, const uint32_t *which, uint32_t n,
			struct rush_counts *counts)
{
	const int64_t *ids = verify->plan->coupons.list;
	struct postgres_array array;
	PGresult *rows;

	postgres_array_init(&array, POSTGRES_INT8);
	for (uint32_t i = 0; i < n; i++)
		postgres_array_add_number(&array, ids[which ? which[i] : i]);
	rows = db_ask(verify->db, sql_query_rush_settled, postgres_array(&array));
	for (int row = 0; row < (int)n; row++) {
		int64_t id = ids[which ? which[row] : (uint32_t)row];

		if (row >= PQntuples(rows) || column_number(rows, row, "id") != id)
			log_fatal("there is no coupon %lld", (long long)id);
		counts[row] = (struct rush_counts){
			.total = column_number(rows, row, "total_num"),
			.issued = column_number(rows, row, "issued_num"),
			.generation = column_number(rows, row, "generation"),
			.settled = column_number(rows, row, "settled_num"),
			.settled_now = column_number(rows, row, "settled_now_num"),
		};
	}
	PQclear(rows);
	postgres_array_fini(&array);
}

/* Adds the outcomes of a page of the plan's users, from `first` on, and clears the result. */
static void outcomes_add(struct rush_verify *verify, PGresult *result, uint32_t first,
			 struct rush_receives *outcomes)
{
	for (int row = 0; row < PQntuples(result); row++) {
		struct rush_receive receive = {
			.user = first + (uint32_t)column_number(result, row, "ord") - 1,
			.index = (int16_t)column_number(result, row, "idx"),
		};
		int64_t coupon = rush_coupons_find(&verify->plan->coupons,
						   column_number(result, row, "coupon_id"));

		if (coupon < 0)
			continue; /* between the rush's coupons, but none of them */
		receive.coupon = (uint32_t)coupon;
		check(ulid_from_uuid(&receive.batch, column_text(result, row, "batch")) == 0);
		rush_receives_add(outcomes, &receive);
	}
	PQclear(result);
}

/*
 * Reads the outcomes of all users, and sorts them: user coupons of all of the rush's coupons, and
 * rejections of the coupon that each requested. `rows` may be NULL.
 */
static void outcomes_read(struct rush_verify *verify, struct rush_receives *rows,
			  struct rush_receives *rejections)
{
	const struct rush_plan *plan = verify->plan;
	const int64_t *ids = plan->coupons.list;
	uint32_t n = plan->users.n;

	for (uint32_t first = 0; first < n; first += USERS_PAGE) {
		uint32_t end = n - first < USERS_PAGE ? n : first + USERS_PAGE;
		struct postgres_array coupons, users;

		postgres_array_init(&coupons, POSTGRES_INT8);
		postgres_array_init(&users, POSTGRES_TEXT);
		for (uint32_t i = first; i < end; i++) {
			struct user_id user = rush_users_id(&plan->users, i);

			postgres_array_add_number(&coupons, ids[rush_plan_coupon(plan, i)]);
			postgres_array_add_text(&users, user.text, user.len);
		}
		if (rows)
			outcomes_add(verify,
				     db_ask(verify->db, sql_query_rush_rows,
					    postgres_number(ids[0]),
					    postgres_number(ids[plan->coupons.n - 1]),
					    postgres_array(&users)),
				     first, rows);
		outcomes_add(verify,
			     db_ask(verify->db, sql_query_rush_rejections, postgres_array(&coupons),
				    postgres_array(&users)),
			     first, rejections);
		postgres_array_fini(&coupons);
		postgres_array_fini(&users);
	}
	if (rows)
		rush_receives_sort(rows);
	rush_receives_sort(rejections);
}

/* A new session: PostgreSQL may have been restarted, or its server demoted, during the load. */
static void database_open(struct rush_verify *verify)
{
	db_close(verify->db);
	verify->db = db_open("DATABASE_URL", verify->database_url, 0);
	/* While most rows of a table are gone, its index may seem to cost more than a scan. */
	db_run(verify->db, "SET enable_seqscan = off");
}

void rush_verify_begin(struct rush_verify *verify, const struct rush_plan *plan,
		       const char *database_url, const char *redis_url, int64_t settle_timeout_s)
{
	uint32_t n = plan->coupons.n;
	int is_issued = 0;

	*verify = (struct rush_verify){
		.plan = plan,
		.database_url = database_url,
		.redis_url = redis_url,
		.settle_timeout_us = settle_timeout_s * 1000000,
		.counts = rush_array_new(n, sizeof(*verify->counts)),
	};
	database_open(verify);
	/* The counts first: an outcome that is added in between is then new in both. */
	counts_read(verify, NULL, n, verify->counts);
	for (uint32_t i = 0; i < n; i++)
		is_issued |= verify->counts[i].issued > 0;
	/* Most rushes are on new coupons. */
	outcomes_read(verify, is_issued ? &verify->before : NULL, &verify->before);
}

/*
 * The numbers of accepted receives and of those without an outcome, of the coupons' generations in
 * Redis. -1: a coupon cannot be read, or is rebuilt.
 */
static int in_flight_read(const struct rush_verify *verify, struct redis_client *redis,
			  int64_t *accepted, int64_t *unsettled)
{
	const struct rush_coupons *coupons = &verify->plan->coupons;
	struct redis_coupon read;
	struct rush_counts counts;

	*accepted = *unsettled = 0;
	for (uint32_t i = 0; i < coupons->n; i++) {
		if (redis_coupon_read(redis, coupons->list[i], &read) != 1)
			return -1;
		counts_read(verify, &i, 1, &counts);
		if (counts.generation != read.generation)
			return -1;
		*accepted += read.seq;
		*unsettled += read.seq > counts.settled_now ? read.seq - counts.settled_now : 0;
	}
	return 0;
}

void rush_verify_calm(struct rush_verify *verify, struct rush_calm *calm)
{
	struct redis_client *redis = redis_client_new(verify->redis_url, NULL);
	int64_t before, accepted, unsettled;

	database_open(verify);
	(void)redis_client_open(redis); /* or the first call fails */
	*calm = (struct rush_calm){ .unsettled = -1 };
	if (in_flight_read(verify, redis, &before, &unsettled) == 0) {
		usleep(CALM_US);
		if (in_flight_read(verify, redis, &accepted, &unsettled) == 0)
			*calm = (struct rush_calm){ .accepted = accepted - before,
						    .unsettled = unsettled };
	}
	redis_client_free(redis);
}

static void tally_make(struct rush_verify *verify, const struct rush_requests *requests)
{
	struct rush_receives rows = { 0 }, rejections = { 0 };

	outcomes_read(verify, &rows, &rejections);
	rush_tally(&verify->tally, requests, &verify->before, &rows, &rejections);
	free(rows.list);
	free(rejections.list);
}

static void stock_found(struct rush_verify *verify, const PGresult *result, int row)
{
	int64_t issued = column_number(result, row, "issued_num"),
		rows = column_number(result, row, "row_num"),
		total = column_number(result, row, "total_num");

	verify->oversold += issued > total ? issued - total : 0;
	if (issued == rows)
		return;
	verify->rows_differ++;
	rush_tally_note(&verify->tally,
			"coupon %s: its count says %lld issued, but there are %lld rows",
			column_text(result, row, "coupon_id"), (long long)issued, (long long)rows);
}

static void limit_found(struct rush_verify *verify, const PGresult *result, int row)
{
	rush_tally_note(&verify->tally,
			"coupon %s, user %s: %s user coupons in slots %s to %s, allowed are %s",
			column_text(result, row, "coupon_id"), column_text(result, row, "user_id"),
			column_text(result, row, "row_num"), column_text(result, row, "slot_min"),
			column_text(result, row, "slot_max"),
			column_text(result, row, "user_limit"));
}

typedef void found_fn(struct rush_verify *verify, const PGresult *result, int row);

/*
 * Calls `found`, unless it is NULL, for what a query of the audit finds of the rush's coupons.
 * Returns how much that is.
 */
static int64_t audit(struct rush_verify *verify, const char *sql, found_fn *found)
{
	const struct rush_coupons *coupons = &verify->plan->coupons;
	int is_all = coupons->n > AUDIT_EACH_MAX;
	int64_t n = 0;

	for (uint32_t i = 0; i < (is_all ? 1 : coupons->n); i++) {
		PGresult *result = db_ask(verify->db, sql, db_id(is_all ? 0 : coupons->list[i]));

		for (int row = 0; row < PQntuples(result); row++) {
			if (rush_coupons_find(coupons, column_number(result, row, "coupon_id")) < 0)
				continue;
			n++;
			if (found)
				found(verify, result, row);
		}
		PQclear(result);
	}
	return n;
}

void rush_verify_end(struct rush_verify *verify, struct rush_requests *requests)
{
	int64_t deadline_us = clock_monotonic_us() + verify->settle_timeout_us;
	uint32_t n = verify->plan->coupons.n, left_n = 0;
	struct rush_counts *counts = rush_array_new(n, sizeof(*counts)), seen[COUPONS_PAGE];
	int64_t *wanted = rush_array_new(n, sizeof(*wanted));
	uint32_t *left = rush_array_new(n, sizeof(*left)); /* their indexes */

	database_open(verify);
	rush_receives_sort(&requests->told);

	/*
	 * Wait until the receives that were accepted are settled: until each coupon has as many
	 * more outcomes. Those that are not settled yet are looked at in pages, the last ones
	 * first. A page is read until it is settled; then the others are too, or nearly. So the
	 * time when all were seen is never too early.
	 */
	verify->new_n = rush_receives_new(&requests->told, &verify->before, wanted);
	for (uint32_t i = 0; i < n; i++)
		if (wanted[i] > 0)
			left[left_n++] = i;
	while (left_n > 0) {
		uint32_t page_n = left_n < COUPONS_PAGE ? left_n : COUPONS_PAGE, stay = 0;
		uint32_t *page = left + left_n - page_n;

		counts_read(verify, page, page_n, seen);
		for (uint32_t i = 0; i < page_n; i++)
			if (seen[i].settled - verify->counts[page[i]].settled < wanted[page[i]])
				page[stay++] = page[i];
		left_n -= page_n - stay;
		if (left_n > 0 && clock_monotonic_us() >= deadline_us)
			break;
		if (stay > 0)
			usleep(POLL_US);
	}
	if (left_n == 0)
		verify->settled_us = clock_monotonic_us();
	free(left);
	free(wanted);

	if (requests->doubted > 0) {
		const struct rush_plan *plan = verify->plan;
		struct redis_client *redis = redis_client_new(verify->redis_url, NULL);
		char *unknown = rush_array_new(plan->coupons.n, 1);
		struct redis_coupon read;
		struct rush_counts known;

		/*
		 * Only Redis shows whether the requests with unknown answers were accepted: wait
		 * until no receive of the current generation of their coupons is in flight. Without
		 * Redis this ends at once, and with other load on a coupon at the deadline; the
		 * checks are right in either case.
		 */
		(void)redis_client_open(redis); /* or the first call fails */
		for (uint32_t i = 0; i < requests->next; i++)
			if (requests->list[i].doubts > 0)
				unknown[rush_plan_coupon(plan, rush_plan_user(plan, i))] = 1;
		for (uint32_t i = 0; i < plan->coupons.n; i++) {
			while (unknown[i] &&
			       redis_coupon_read(redis, plan->coupons.list[i], &read) == 1 &&
			       clock_monotonic_us() < deadline_us) {
				counts_read(verify, &i, 1, &known);
				if (known.generation == read.generation &&
				    known.settled_now >= read.seq)
					break;
				usleep(POLL_US);
			}
		}
		free(unknown);
		redis_client_free(redis);
	}
	tally_make(verify, requests);
	/* There was other load on these coupons, and the counts included it. */
	while (verify->tally.lost > 0 && clock_monotonic_us() < deadline_us) {
		usleep(RECHECK_US);
		tally_make(verify, requests);
		verify->settled_us = clock_monotonic_us();
	}
	if (verify->tally.lost > 0)
		verify->settled_us = 0;

	counts_read(verify, NULL, n, counts);
	for (uint32_t i = 0; i < n; i++) {
		if (__builtin_add_overflow(verify->total, counts[i].total, &verify->total))
			verify->total = INT64_MAX;
		verify->issued += counts[i].issued;
	}
	free(counts);
	audit(verify, sql_query_audit_stock, stock_found);
	verify->over_limit = audit(verify, sql_query_audit_limit, limit_found);
	verify->twice = audit(verify, sql_query_audit_twice, NULL);
}

void rush_verify_fini(struct rush_verify *verify)
{
	free(verify->before.list);
	free(verify->counts);
	db_close(verify->db);
}

int rush_verify_passed(const struct rush_verify *verify)
{
	return verify->oversold == 0 && verify->rows_differ == 0 && verify->over_limit == 0 &&
	       verify->twice == 0 && rush_tally_wrong(&verify->tally) == 0;
}
