/* What several ways do. */
#ifndef COMPARE_WAYS_SELL_H
#define COMPARE_WAYS_SELL_H

#include "compare/way.h"

/* Ends the transaction without a sale. Returns `outcome`. */
enum outcome roll_back(struct client *client, enum outcome outcome);

/* Whether the user has bought the item before. */
int user_has_one(struct client *client, const struct request *request);

/*
 * Reads the stock, and writes it back less one. The holder of a lock may stop in between, as the
 * market says. FAILED: a higher fence was here meanwhile; 0: there is none.
 */
enum outcome sell_read_then_write(struct client *client, const struct request *request,
				  long long fence);

/* Has the user one? If not: takes a piece if there is one. */
enum outcome sell_checked(struct client *client, const struct request *request);

/* In Redis: the stock of each item, and the script that decides. */
void stock_set(struct client *client);
void script_prepare(struct client *client); /* both */
enum outcome script_run(struct client *client, const struct request *request);
/* The same in two steps, for a pipeline. */
void script_ask(struct client *client, const struct asked *asked);
enum outcome script_answer(struct client *client);

#endif
