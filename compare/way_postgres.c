/*
 * The ways in PostgreSQL alone.
 *
 * 1. Reads the stock, and writes it back less one. Nothing keeps two clients apart.
 * 2. SELECT … FOR UPDATE: the item's row is locked until COMMIT, and others wait for it.
 * 3. A version column: the row is written only if its version is still the one that was read. Who
 *    comes second has failed, and may try again.
 * 4. UPDATE … WHERE stock > 0: the check and the write are one statement. One for each user is a
 *    check before it, or a unique index.
 * 8. The stock in ten rows instead of one, so that ten can commit at once. A user is sent to one of
 *    them, and where it is sold out perhaps to the next.
 * 11. A combiner: it collects requests while a transaction commits, and the next one settles all of
 *    them. Here its clients are in the same process: no network is between them, as there is with
 *    couponmq.
 * 12. A row for each piece: a user takes the first that nobody else is taking, with FOR UPDATE SKIP
 *    LOCKED, so that nobody waits for another's COMMIT. The sale comes first: nothing is rolled
 *    back that others skipped.
 *
 * All of a sale can be one function: one round trip; and a connection in pipeline mode carries the
 * calls of many clients.
 */
#include "common/check.h"
#include "compare/way.h"

#include <stdlib.h>

/* Ends the transaction without a sale; returns `outcome`. */
static enum sale_outcome roll_back(struct seller *seller, enum sale_outcome outcome)
{
	sql(seller, "ROLLBACK");
	return outcome;
}

static int user_has_one(struct seller *seller, const struct sale_request *request)
{
	return sql(seller, "SELECT count(*) FROM sale WHERE item = $1 AND buyer = $2",
		   request->item, request->user) > 0;
}

static void sale_insert(struct seller *seller, const struct sale_request *request)
{
	sql(seller, "INSERT INTO sale VALUES ($1, $2)", request->item, request->user);
}

/* A function sell(item, user), which returns numbers of enum sale_outcome. */
#define FUNCTION(body)                                                                         \
	"CREATE FUNCTION sell(wanted bigint, user_id bigint) RETURNS int LANGUAGE plpgsql AS " \
	"$$ " body " $$"

static enum sale_outcome function_buy(struct seller *seller, const struct sale_request *request)
{
	return (enum sale_outcome)sql(seller, "SELECT sell($1, $2)", request->item, request->user);
}

/* ---- 1 */

enum sale_outcome sell_read_then_write(struct seller *seller, const struct sale_request *request)
{
	long long stock;

	/*
	 * A seller with a fence leaves it there, so that nobody with a lower one can write any
	 * more. NONE: a higher one was here before.
	 */
	if (seller->fence == 0)
		stock = sql(seller, "SELECT stock FROM item WHERE id = $1", request->item);
	else
		stock = sql(seller,
			    "UPDATE item SET fence = $2 WHERE id = $1 AND fence <= $2 "
			    "RETURNING stock",
			    request->item, seller->fence);
	if (stock == NONE)
		return FAILED;
	if (stock == 0)
		return SOLD_OUT;
	if (user_has_one(seller, request))
		return HAS_ONE;
	gap(seller->market, request);
	sql(seller, "BEGIN");
	if (!sql(seller, "UPDATE item SET stock = $2 WHERE id = $1 AND fence <= $3", request->item,
		 stock - 1, seller->fence))
		return roll_back(seller, FAILED);
	sale_insert(seller, request);
	sql(seller, "COMMIT");
	return SOLD;
}

/* ---- 2 */

static enum sale_outcome row_lock(struct seller *seller, const struct sale_request *request)
{
	long long stock;

	sql(seller, "BEGIN");
	stock = sql(seller, "SELECT stock FROM item WHERE id = $1 FOR UPDATE", request->item);
	if (stock <= 0)
		return roll_back(seller, SOLD_OUT);
	if (user_has_one(seller, request))
		return roll_back(seller, HAS_ONE);
	sql(seller, "UPDATE item SET stock = $2 WHERE id = $1", request->item, stock - 1);
	sale_insert(seller, request);
	sql(seller, "COMMIT");
	return SOLD;
}

#define ROW_LOCK_FUNCTION                                                                     \
	FUNCTION("DECLARE left_n bigint; BEGIN "                                              \
		 "SELECT stock INTO left_n FROM item WHERE id = wanted FOR UPDATE; "          \
		 "IF left_n = 0 THEN RETURN 1; END IF; "                                      \
		 "IF EXISTS (SELECT FROM sale WHERE item = wanted AND buyer = user_id) THEN " \
		 "	RETURN 2; END IF; "                                                        \
		 "UPDATE item SET stock = left_n - 1 WHERE id = wanted; "                     \
		 "INSERT INTO sale VALUES (wanted, user_id); "                                \
		 "RETURN 0; END")

/* ---- 3 */

static enum sale_outcome version(struct seller *seller, const struct sale_request *request)
{
	long long read = sql(seller, "SELECT version FROM item WHERE id = $1 AND stock > 0",
			     request->item);

	if (read == NONE)
		return SOLD_OUT;
	if (user_has_one(seller, request))
		return HAS_ONE;
	gap(seller->market, request);
	sql(seller, "BEGIN");
	sale_insert(seller, request);
	if (!sql(seller,
		 "UPDATE item SET stock = stock - 1, version = version + 1 "
		 "WHERE id = $1 AND version = $2",
		 request->item, read))
		return roll_back(seller, FAILED);
	sql(seller, "COMMIT");
	return SOLD;
}

#define VERSION_WRONG                                                                         \
	"of the clients that read one version only one can write: the others were sent away " \
	"while there was stock"

/* ---- 4, 8, 12: the sale, and where its piece comes from. $1 is the item. */

#define FROM_STOCK "UPDATE item SET stock = stock - 1 WHERE id = $1 AND stock > 0"
#define FROM_SEGMENT                            \
	"UPDATE segment SET stock = stock - 1 " \
	"WHERE item = $1 AND number = $2 AND stock > 0"
#define FROM_PIECES                                                                 \
	"DELETE FROM piece WHERE item = $1 AND number = (SELECT number FROM piece " \
	"WHERE item = $1 ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED)"
#define SEGMENTS 10

enum sale_outcome sell_checked(struct seller *seller, const struct sale_request *request)
{
	if (user_has_one(seller, request))
		return HAS_ONE;
	gap(seller->market, request);
	sql(seller, "BEGIN");
	sale_insert(seller, request);
	if (!sql(seller, FROM_STOCK, request->item))
		return roll_back(seller, SOLD_OUT);
	sql(seller, "COMMIT");
	return SOLD;
}

static enum sale_outcome sell_unique(struct seller *seller, const struct sale_request *request)
{
	const struct way *way = seller->way;
	int first, has_piece = 0;

	sql(seller, "BEGIN");
	if (!sql(seller, "INSERT INTO sale VALUES ($1, $2) ON CONFLICT DO NOTHING", request->item,
		 request->user))
		return roll_back(seller, HAS_ONE);
	first = rand_r(&seller->random) % SEGMENTS;
	if (way->segments == 0)
		has_piece = sql(seller, way->take, request->item) > 0;
	for (int i = 0; i < way->segments && !has_piece; i++)
		has_piece = sql(seller, way->take, request->item, (first + i) % SEGMENTS) != 0;
	if (!has_piece)
		return roll_back(seller, SOLD_OUT);
	sql(seller, "COMMIT");
	return SOLD;
}

/* sell_unique() as one function in PostgreSQL. `take` returns from it if there was a piece. */
#define UNIQUE_FUNCTION(take)                                                \
	FUNCTION("BEGIN "                                                    \
		 "INSERT INTO sale VALUES ($1, $2) ON CONFLICT DO NOTHING; " \
		 "IF NOT FOUND THEN RETURN 2; END IF; " take                 \
		 "DELETE FROM sale WHERE item = $1 AND buyer = $2; "         \
		 "RETURN 1; END")
#define IF_FOUND "; IF FOUND THEN RETURN 0; END IF; "

/* Each is a transaction of its own, so that nothing is rolled back with another one. */
static void function_ask(struct seller *seller, const struct sale_asked *asked)
{
	sql_ask(seller, "SELECT sell($1, $2)", asked->request->item, asked->request->user);
}

static enum sale_outcome function_answer(struct seller *seller, struct sale_asked *asked)
{
	(void)asked;
	return (enum sale_outcome)sql_answer(seller);
}

#define SEGMENTS_FILL                                                           \
	"INSERT INTO segment SELECT id, n, stock / 10 + (n < stock % 10)::int " \
	"FROM item, generate_series(0, 9) AS n; UPDATE item SET stock = 0;"
#define SEGMENTS_FUNCTION                                                        \
	UNIQUE_FUNCTION("FOR i IN 0 .. 9 LOOP "                                  \
			"	UPDATE segment SET stock = stock - 1 WHERE item = $1 " \
			"		AND number = (i + (hashint8($2) & 255)) % 10 "        \
			"		AND stock > 0" IF_FOUND "END LOOP; ")
#define PIECES_FILL                                                          \
	"INSERT INTO piece SELECT id, generate_series(1, stock) FROM item; " \
	"UPDATE item SET stock = 0;"

/* ---- 11 */

/* The outcome of each buyer, in their order: the numbers of enum sale_outcome. */
static const char sell_many[] =
	"CREATE FUNCTION sell_many(wanted bigint, buyers bigint[]) RETURNS SETOF int "
	"LANGUAGE plpgsql AS $$ "
	"DECLARE left_n bigint; got bigint[]; "
	"BEGIN "
	"SELECT stock INTO left_n FROM item WHERE id = wanted FOR UPDATE; "
	"WITH asked AS (SELECT b.buyer, min(b.ord) AS ord "
	"	FROM unnest(buyers) WITH ORDINALITY AS b (buyer, ord) GROUP BY b.buyer), "
	"sold AS (INSERT INTO sale SELECT wanted, a.buyer FROM asked AS a "
	"	WHERE NOT EXISTS (SELECT FROM sale AS s "
	"		WHERE s.item = wanted AND s.buyer = a.buyer) "
	"	ORDER BY a.ord LIMIT left_n RETURNING sale.buyer) "
	"SELECT coalesce(array_agg(buyer), '{}') INTO got FROM sold; "
	"UPDATE item SET stock = stock - cardinality(got) WHERE id = wanted; "
	"RETURN QUERY SELECT CASE WHEN g.buyer IS NULL THEN 1 "
	"	WHEN row_number() OVER (PARTITION BY b.buyer ORDER BY b.ord) = 1 THEN 0 "
	"	ELSE 2 END "
	"	FROM unnest(buyers) WITH ORDINALITY AS b (buyer, ord) "
	"		LEFT JOIN unnest(got) AS g (buyer) ON g.buyer = b.buyer "
	"	ORDER BY b.ord; "
	"END $$";

struct combiner {
	/* the next batch */
	struct sale_request waiting[MARKET_CLIENTS_MAX];
	int waiting_n;
	/* of the last one */
	enum sale_outcome outcomes[MARKET_CLIENTS_MAX];
	int outcomes_n, answered_n;
	/* of one item in it */
	long long buyers[MARKET_CLIENTS_MAX], results[MARKET_CLIENTS_MAX];
};

int buyers_of(const struct sale_request *requests, int n, int item, long long *buyers)
{
	int buyers_n = 0;

	for (int i = 0; i < n; i++)
		if (requests[i].item == item)
			buyers[buyers_n++] = requests[i].user;
	return buyers_n;
}

static void combiner_ask(struct seller *seller, const struct sale_asked *asked)
{
	struct combiner *combiner = seller->own;

	if (!combiner)
		combiner = seller->own = calloc(1, sizeof(*combiner));
	check(combiner && combiner->waiting_n < MARKET_CLIENTS_MAX);
	combiner->waiting[combiner->waiting_n++] = *asked->request;
}

static enum sale_outcome combiner_answer(struct seller *seller, struct sale_asked *asked)
{
	struct combiner *combiner = seller->own;

	(void)asked;
	if (combiner->answered_n < combiner->outcomes_n)
		return combiner->outcomes[combiner->answered_n++];

	/* All are answered: what waits meanwhile is the next batch. */
	sql(seller, "BEGIN");
	for (int item = 1; item <= seller->market->items + 1; item++) {
		int n = buyers_of(combiner->waiting, combiner->waiting_n, item, combiner->buyers);

		if (n == 0)
			continue;
		sql_many(seller, "SELECT sell_many($1, $2)", item, combiner->buyers, n,
			 combiner->results);
		n = 0;
		for (int i = 0; i < combiner->waiting_n; i++)
			if (combiner->waiting[i].item == item)
				combiner->outcomes[i] = (enum sale_outcome)combiner->results[n++];
	}
	sql(seller, "COMMIT");
	combiner->outcomes_n = combiner->waiting_n;
	combiner->waiting_n = combiner->answered_n = 0;
	return combiner->outcomes[combiner->answered_n++];
}

const struct way ways_postgres[] = {
	{
		.id = "1",
		.name = "read, then write",
		.may = "oversold miscounted over_limit",
		.wrong = "clients read the same stock, and each writes it back less one: one piece "
			 "is sold several times, and a user who asks twice at once is found to "
			 "have none twice",
		.buy = sell_read_then_write,
	},
	{ .id = "2a", .name = "SELECT … FOR UPDATE", .buy = row_lock },
	{
		.id = "2b",
		.name = "FOR UPDATE, one function",
		.script = ROW_LOCK_FUNCTION,
		.buy = function_buy,
	},
	{
		.id = "3a",
		.name = "version, once",
		.may = "unsold",
		.wrong = VERSION_WRONG,
		.buy = version,
		.tries = 1,
	},
	{
		.id = "3b",
		.name = "version, retried 100 ms",
		.may = "unsold",
		.wrong = VERSION_WRONG,
		.buy = version,
		.tries_ms = 100,
	},
	{
		.id = "3c",
		.name = "version, retried 3 times",
		.may = "unsold",
		.wrong = VERSION_WRONG,
		.buy = version,
		.tries = 4,
	},
	{
		.id = "4a",
		.name = "UPDATE … WHERE stock > 0",
		.may = "over_limit",
		.wrong = "a user who asks several times at once is checked before any of them has "
			 "committed, and gets several",
		.buy = sell_checked,
	},
	{
		.id = "4b",
		.name = "UPDATE, a unique index",
		.is_unique = 1,
		.buy = sell_unique,
		.take = FROM_STOCK,
	},
	{
		.id = "4c",
		.name = "UPDATE, one function",
		.is_unique = 1,
		.script = UNIQUE_FUNCTION(FROM_STOCK IF_FOUND),
		.buy = function_buy,
	},
	{
		.id = "4d",
		.name = "UPDATE, pipeline mode",
		.is_unique = 1,
		.script = UNIQUE_FUNCTION(FROM_STOCK IF_FOUND),
		.ask = function_ask,
		.answer = function_answer,
	},
	{
		.id = "8a",
		.name = "stock in 10 segments",
		.may = "unsold",
		.wrong = "a user whose segment was sold out was sent away while others had stock",
		.is_unique = 1,
		.script = SEGMENTS_FILL,
		.buy = sell_unique,
		.take = FROM_SEGMENT,
		.segments = 1,
	},
	{
		.id = "8b",
		.name = "segments, moving on",
		.is_unique = 1,
		.script = SEGMENTS_FILL,
		.buy = sell_unique,
		.take = FROM_SEGMENT,
		.segments = SEGMENTS,
	},
	{
		.id = "8c",
		.name = "segments, one function",
		.is_unique = 1,
		.script = SEGMENTS_FILL SEGMENTS_FUNCTION,
		.buy = function_buy,
	},
	{
		.id = "11",
		.name = "a combiner, PostgreSQL",
		.is_unique = 1,
		.is_batch = 1,
		.script = sell_many,
		.ask = combiner_ask,
		.answer = combiner_answer,
	},
	{
		.id = "12a",
		.name = "pieces, SKIP LOCKED",
		.is_unique = 1,
		.script = PIECES_FILL,
		.buy = sell_unique,
		.take = FROM_PIECES,
	},
	{
		.id = "12b",
		.name = "pieces, one function",
		.is_unique = 1,
		.script = PIECES_FILL UNIQUE_FUNCTION(FROM_PIECES IF_FOUND),
		.buy = function_buy,
	},
	{ 0 },
};
