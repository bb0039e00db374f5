/*
 * 3. A version column: the row is written only if its version is still the one that was read. Who
 * comes second has failed, and may try again.
 */
#include "common/clock.h"
#include "compare/ways/sell.h"

#define RETRY_MS 100
#define RETRIES 3

static enum outcome try(struct client *client, const struct request *request)
{
	long long version;

	client->attempts++;
	version = sql(client, "SELECT version FROM item WHERE id = $1 AND stock > 0",
		      request->item);
	if (version == NONE)
		return SOLD_OUT;
	if (user_has_one(client, request))
		return HAS_ONE;
	sql(client, "BEGIN");
	sql(client, "INSERT INTO sale VALUES ($1, $2)", request->item, request->user);
	if (!sql(client,
		 "UPDATE item SET stock = stock - 1, version = version + 1 "
		 "WHERE id = $1 AND version = $2",
		 request->item, version)) {
		client->attempts_failed++;
		return roll_back(client, FAILED);
	}
	sql(client, "COMMIT");
	return SOLD;
}

static enum outcome buy_once(struct client *client, const struct request *request)
{
	return try(client, request);
}

static enum outcome buy_for_a_time(struct client *client, const struct request *request)
{
	int64_t until_ms = clock_monotonic_ms() + RETRY_MS;
	enum outcome outcome;

	do
		outcome = try(client, request);
	while (outcome == FAILED && clock_monotonic_ms() < until_ms);
	return outcome;
}

static enum outcome buy_a_few_times(struct client *client, const struct request *request)
{
	enum outcome outcome = try(client, request);

	for (int i = 0; i < RETRIES && outcome == FAILED; i++)
		outcome = try(client, request);
	return outcome;
}

#define WRONG                                                                                 \
	"of the clients that read one version only one can write: the others were sent away " \
	"while "                                                                              \
	"there was stock"

const struct way way_version_once = {
	.id = "3a",
	.name = "version, once",
	.may = "unsold",
	.wrong = WRONG,
	.buy = buy_once,
};
const struct way way_version_time = {
	.id = "3b",
	.name = "version, retried 100 ms",
	.may = "unsold",
	.wrong = WRONG,
	.buy = buy_for_a_time,
};
const struct way way_version_times = {
	.id = "3c",
	.name = "version, retried 3 times",
	.may = "unsold",
	.wrong = WRONG,
	.buy = buy_a_few_times,
};
