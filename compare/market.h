/* What is sold, to whom, and over which services: the settings of one run. */
#ifndef COMPARE_MARKET_H
#define COMPARE_MARKET_H

#include <stdint.h>

#define MARKET_ITEMS_MAX 100
#define MARKET_CLIENTS_MAX 10000

struct market {
	int users;
	int items;       /* each user wants one of them */
	int stock;       /* pieces of each item */
	int clients;     /* requests at once */
	int connections; /* that carry them, to each store */
	int lease_ms;    /* of locks */
	int pause_ms;    /* a holder of a lock stops for so long… */
	int pause_every; /* …at every so many-th sale; 0: never */
	unsigned seed;
	/* of the services, from the environment */
	const char *postgres, *postgres_locks, *redis, *rabbit, *zookeeper, *gateway;
	/* of couponmq's coupons, by item; the last is of the connections' first sales */
	int64_t coupons[MARKET_ITEMS_MAX + 2];
};

/* One request of a user, and what became of it. Both numbers are from 1. */
struct request {
	int user, item;
};

enum outcome {
	SOLD,
	SOLD_OUT,
	HAS_ONE, /* the user bought one before */
	FAILED   /* it may be tried again */
};

#endif
