/* Blocking statements over a connection of connection.h. One thread. */
#ifndef COMMON_POSTGRES_QUERY_H
#define COMMON_POSTGRES_QUERY_H

#include "common/postgres/connection.h"

/* The limits of the wait for the end of a statement. */
struct postgres_patience {
	int64_t timeout_ms; /* 0: as long as the connection lives */
	/* NULL, or called several times a second meanwhile: other than 0 ends the wait */
	int (*waiting)(void *context);
	void *context;
};

/* Connects, where it is down. 0, or -1: postgres_why(). */
int postgres_open(struct postgres *postgres);

/*
 * One statement, over a connection that is up: its result, to be cleared with PQclear(), or NULL:
 * postgres_failure(), postgres_why(). The connection is dropped when it is lost, or when the wait
 * is over, but not for an error that the server reports.
 */
PGresult *postgres_query(struct postgres *postgres, const char *sql, int n,
			 const struct postgres_argument *arguments,
			 const struct postgres_patience *patience);

/* The same in two steps: the statement runs meanwhile. Nothing else may be sent in between. */
void postgres_query_send(struct postgres *postgres, const char *sql, int n,
			 const struct postgres_argument *arguments,
			 const struct postgres_patience *patience);
PGresult *postgres_query_take(struct postgres *postgres, const struct postgres_patience *patience);

/* The same with at least one argument, and a result in PostgreSQL's binary form. */
PGresult *postgres_query_binary(struct postgres *postgres, const char *sql, int n,
				const struct postgres_argument *arguments,
				const struct postgres_patience *patience);

#endif
