/* 1. Reads the stock, and writes it back less one. Nothing keeps two clients apart. */
#include "compare/ways/sell.h"

static enum outcome buy(struct client *client, const struct request *request)
{
	return sell_read_then_write(client, request, 0);
}

const struct way way_read_then_write = {
	.id = "1",
	.name = "read, then write",
	.may = "oversold miscounted over_limit",
	.wrong = "clients read the same stock, and each writes it back less one: one piece is sold "
		 "several times, and a user who asks twice at once is found to have none twice",
	.buy = buy,
};
