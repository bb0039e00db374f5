#include "gateway/read/lane.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/postgres/session.h"

#include <stdlib.h>
#include <string.h>

struct lane_asker {
	STAILQ_ENTRY(lane_asker) next;
	lookup_fn *done; /* of a query or a coupon */
	lookup_receive_fn *done_receive;
	void *context;
};

void lane_init(struct lane *lane, size_t max)
{
	*lane = (struct lane){ .max = max };
	STAILQ_INIT(&lane->entries);
}

static void entry_free(struct lane_entry *entry)
{
	for (int i = 0; i < entry->n; i++)
		free((char *)entry->arguments[i].text);
	postgres_array_fini(&entry->array);
	free(entry);
}

static struct lane_entry *entry_new(const struct lane_query *query, int64_t coupon, int n,
				    const struct postgres_argument *arguments)
{
	struct lane_entry *entry = checked(calloc(1, sizeof(*entry)));

	check(n <= LANE_ARGUMENTS_MAX);
	entry->query = query;
	entry->queued_ms = clock_monotonic_ms();
	entry->coupon = coupon;
	entry->n = n;
	for (int i = 0; i < n; i++) {
		entry->arguments[i] = arguments[i];
		if (arguments[i].kind == POSTGRES_OF_TEXT && arguments[i].text)
			entry->arguments[i] = postgres_text(checked(strdup(arguments[i].text)));
		if (arguments[i].kind == POSTGRES_OF_ARRAY) {
			entry->array = *arguments[i].array;
			entry->arguments[i] = postgres_array(&entry->array);
		}
	}
	STAILQ_INIT(&entry->askers);
	return entry;
}

int lane_add(struct lane *lane, const struct lane_query *query, int64_t coupon, int n,
	     const struct postgres_argument *arguments, lookup_fn *done, void *context)
{
	struct lane_entry *entry = NULL;
	struct lane_asker *asker;

	if (coupon)
		HASH_FIND(hh, lane->by_coupon, &coupon, sizeof(coupon), entry);
	if (!entry) {
		entry = entry_new(query, coupon, n, arguments);
		if (lane->n >= lane->max) {
			entry_free(entry);
			return -1;
		}
		STAILQ_INSERT_TAIL(&lane->entries, entry, next);
		lane->n++;
		if (coupon)
			HASH_ADD(hh, lane->by_coupon, coupon, sizeof(entry->coupon), entry);
	}
	asker = checked(malloc(sizeof(*asker)));
	*asker = (struct lane_asker){ .done = done, .context = context };
	STAILQ_INSERT_TAIL(&entry->askers, asker, next);
	return 0;
}

int lane_add_receive(struct lane *lane, const struct lane_query *query,
		     const struct receive *receive, lookup_receive_fn *done, void *context)
{
	struct lane_entry *entry;
	struct lane_asker *asker;

	if (lane->n >= lane->max)
		return -1;
	entry = entry_new(query, 0, 0, NULL);
	entry->receive = *receive;
	asker = checked(malloc(sizeof(*asker)));
	*asker = (struct lane_asker){ .done_receive = done, .context = context };
	STAILQ_INSERT_TAIL(&entry->askers, asker, next);
	STAILQ_INSERT_TAIL(&lane->entries, entry, next);
	lane->n++;
	return 0;
}

size_t lane_take(struct lane *lane, size_t n, int64_t before_ms, struct lane_list *to)
{
	struct lane_entry *entry;
	size_t taken = 0;

	while (taken < n && (entry = STAILQ_FIRST(&lane->entries)) &&
	       entry->queued_ms < before_ms) {
		STAILQ_REMOVE_HEAD(&lane->entries, next);
		if (entry->coupon)
			HASH_DELETE(hh, lane->by_coupon, entry);
		STAILQ_INSERT_TAIL(to, entry, next);
		lane->n--;
		taken++;
	}
	return taken;
}

void lane_list_end(struct lane_list *list, const PGresult *rows)
{
	struct lane_entry *entry;
	struct lane_asker *asker;
	int row = 0;

	for (int ord = 1; (entry = STAILQ_FIRST(list)); ord++) {
		int n = 0; /* rows of the receive with this number, from `row` on */

		while (entry->receive.coupon && rows && row + n < PQntuples(rows) &&
		       column_number(rows, row + n, "ord") == ord)
			n++;
		STAILQ_REMOVE_HEAD(list, next);
		while ((asker = STAILQ_FIRST(&entry->askers))) {
			STAILQ_REMOVE_HEAD(&entry->askers, next);
			if (asker->done_receive)
				asker->done_receive(asker->context, rows, row, n);
			else
				asker->done(asker->context, rows);
			free(asker);
		}
		row += n;
		entry_free(entry);
	}
}
