#include "ctl/rush/verify.h"

#include "common/check.h"
#include "common/clock.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define USERS_PAGE 5000
/* between two reads of the coupon's counts, which must not disturb the measurement */
#define POLL_US 5000
#define RECHECK_US 200000 /* between two reads of the rows */

struct progress {
	int64_t total, issued, generation, settled, settled_now;
};

static void progress_read(struct rush_verify *verify, struct progress *progress)
{
	PGresult *result = store_coupon_row(verify->db, sql_query_rush_settled,
					    verify->plan->coupon);

	progress->total = db_int(result, 0, "total_num");
	progress->issued = db_int(result, 0, "issued_num");
	progress->generation = db_int(result, 0, "generation");
	progress->settled = db_int(result, 0, "settled_num");
	progress->settled_now = db_int(result, 0, "settled_now_num");
	PQclear(result);
}

/* Adds the outcomes of a page of users, which `sql` selects. */
static void outcomes_page(struct rush_verify *verify, const char *sql,
			  const struct postgres_array *users, uint32_t first,
			  struct rush_receives *outcomes)
{
	const struct postgres_argument arguments[] = { postgres_number(verify->plan->coupon),
						       postgres_array(users) };
	PGresult *result = db_query_arguments(verify->db, sql, 2, arguments);

	for (int row = 0; row < PQntuples(result); row++) {
		struct rush_receive receive = {
			.user = first + (uint32_t)db_int(result, row, "ord") - 1,
			.index = (int16_t)db_int(result, row, "idx"),
		};

		check(ulid_from_uuid(&receive.batch, db_text(result, row, "batch")) == 0);
		rush_receives_add(outcomes, &receive);
	}
	PQclear(result);
}

/* Adds all outcomes of the plan's users that `sql` selects, a page of users at a time. */
static void outcomes_read(struct rush_verify *verify, const char *sql,
			  struct rush_receives *outcomes)
{
	const struct rush_users *users = &verify->plan->users;
	struct postgres_array page;

	postgres_array_init(&page, POSTGRES_TEXT);
	for (uint32_t first = 0, i = 0; first < users->n; first = i) {
		postgres_array_clear(&page);
		for (; i < users->n && i - first < USERS_PAGE; i++) {
			struct user_id user = rush_users_id(users, i);

			postgres_array_add_text(&page, user.text, user.len);
		}
		outcomes_page(verify, sql, &page, first, outcomes);
	}
	postgres_array_fini(&page);
	rush_receives_sort(outcomes);
}

void rush_verify_begin(struct rush_verify *verify, const struct rush_plan *plan,
		       const char *database_url, const char *redis_url, int64_t settle_timeout_ms)
{
	struct progress progress;

	memset(verify, 0, sizeof(*verify));
	verify->plan = plan;
	verify->redis_url = redis_url;
	verify->settle_timeout_ms = settle_timeout_ms;
	verify->db = db_open("DATABASE_URL", database_url);
	/* The estimate of a page's look-ups is high enough that each would be compiled. */
	db_run(verify->db, "SET jit = off");
	/* The counts first: an outcome that is added in between is then new in both. */
	progress_read(verify, &progress);
	verify->settled_before = progress.settled;
	if (progress.issued > 0) /* most rushes are on a new coupon */
		outcomes_read(verify, sql_query_rush_rows, &verify->before);
	outcomes_read(verify, sql_query_rush_rejections, &verify->before);
	rush_receives_sort(&verify->before);
}

/* Waits until `wanted` outcomes were added, and records the time. 0, or -1 at the deadline. */
static int settled_wait(struct rush_verify *verify, int64_t wanted, int64_t deadline_us)
{
	struct progress progress;

	for (;;) {
		progress_read(verify, &progress);
		verify->settled_n = progress.settled - verify->settled_before;
		if (verify->settled_n >= wanted) {
			verify->settled_us = clock_monotonic_us();
			return 0;
		}
		if (clock_monotonic_us() >= deadline_us)
			return -1;
		usleep(POLL_US);
	}
}

/*
 * Only Redis shows whether the requests with unknown answers were accepted: waits until no receive
 * of the current generation is in flight. Without Redis this returns at once, and with other load
 * on the coupon at the deadline; the checks are right in either case.
 */
static void in_flight_wait(struct rush_verify *verify, int64_t deadline_us)
{
	struct redis_client *redis = redis_client_new(verify->redis_url, NULL);
	struct redis_coupon coupon;
	struct progress progress;

	(void)redis_client_open(redis); /* or the first call fails */
	while (redis_coupon_read(redis, verify->plan->coupon, &coupon) == 1 &&
	       clock_monotonic_us() < deadline_us) {
		progress_read(verify, &progress);
		if (progress.generation == coupon.generation && progress.settled_now >= coupon.seq)
			break;
		usleep(POLL_US);
	}
	redis_client_free(redis);
}

static void tally_make(struct rush_verify *verify, const struct rush_book *book,
		       const struct rush_receives *told)
{
	struct rush_receives rows = { 0 }, rejections = { 0 };

	outcomes_read(verify, sql_query_rush_rows, &rows);
	outcomes_read(verify, sql_query_rush_rejections, &rejections);
	rush_tally(&verify->tally, book, told, &verify->before, &rows, &rejections);
	rush_receives_fini(&rows);
	rush_receives_fini(&rejections);
}

static int64_t audit_rows(struct rush_verify *verify, const char *sql)
{
	char id[DB_NUMBER_SIZE];
	PGresult *result = db_query(verify->db, sql, 1,
				    (const char *[]){ db_number(verify->plan->coupon, id) });
	int64_t n = PQntuples(result);

	PQclear(result);
	return n;
}

static void coupon_audit(struct rush_verify *verify)
{
	struct progress progress;

	progress_read(verify, &progress);
	verify->total = progress.total;
	verify->issued = progress.issued;
	verify->oversold = progress.issued > progress.total ? progress.issued - progress.total : 0;
	verify->rows_differ = verify->oversold == 0 &&
			      audit_rows(verify, sql_query_audit_stock) > 0;
	verify->over_limit = audit_rows(verify, sql_query_audit_limit);
	verify->twice = audit_rows(verify, sql_query_audit_twice);
}

int rush_verify_end(struct rush_verify *verify, const struct rush_book *book)
{
	int64_t deadline_us = clock_monotonic_us() + verify->settle_timeout_ms * 1000;
	struct rush_receives told = { 0 };
	int rc = rush_receives_told(&told, book);

	if (rc == 0) {
		verify->new_n = rush_receives_new(&told, &verify->before);
		settled_wait(verify, verify->new_n, deadline_us);
		if (rush_book_unknown(book) > 0)
			in_flight_wait(verify, deadline_us);
		tally_make(verify, book, &told);
		/* There was other load on this coupon, and the counts included it. */
		while (verify->tally.lost > 0 && clock_monotonic_us() < deadline_us) {
			usleep(RECHECK_US);
			tally_make(verify, book, &told);
			verify->settled_us = clock_monotonic_us();
		}
		if (verify->tally.lost > 0)
			verify->settled_us = 0;
		coupon_audit(verify);
	}
	rush_receives_fini(&told);
	return rc;
}

void rush_verify_fini(struct rush_verify *verify)
{
	rush_receives_fini(&verify->before);
	db_close(verify->db);
}

int rush_verify_passed(const struct rush_verify *verify)
{
	return verify->oversold == 0 && verify->rows_differ == 0 && verify->over_limit == 0 &&
	       verify->twice == 0 && rush_tally_wrong(&verify->tally) == 0;
}
