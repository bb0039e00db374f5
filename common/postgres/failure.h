/* What the failure of a statement means: of the coupons in it, or of the connection. */
#ifndef COMMON_POSTGRES_FAILURE_H
#define COMMON_POSTGRES_FAILURE_H

/* In each case but DOWN the connection is good, and the statement did nothing. */
enum postgres_failure {
	POSTGRES_OK,
	POSTGRES_BLOCKED,   /* 55P03: a lock was not granted within lock_timeout */
	POSTGRES_CANCELLED, /* 57014: by statement_timeout, or by an operator */
	POSTGRES_REFUSED,   /* classes 22 and 23: the data is refused, also when sent again */
	POSTGRES_AGAIN,     /* 40001, 40P01: another transaction was in the way */
	/* any other error: a full disk, for instance, or a schema that is not as expected */
	POSTGRES_UNFIT,
	POSTGRES_DOWN /* there is no connection; whether the statement took effect is unknown */
};

/* Of an error with this SQLSTATE; NULL or "": the server has reported none, POSTGRES_DOWN. */
enum postgres_failure postgres_classify(const char *sqlstate);

/*
 * Whether a failure concerns only the coupons of the statement, which are put off while everything
 * else continues.
 */
int postgres_of_coupon(enum postgres_failure failure);

#endif
