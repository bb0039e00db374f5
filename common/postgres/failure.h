/* What the failure of a statement means: of the coupons in it, or of the connection. */
#ifndef COMMON_POSTGRES_FAILURE_H
#define COMMON_POSTGRES_FAILURE_H

/*
 * In each case but BROKEN the statement did nothing, and the connection is good.
 */
enum postgres_failure {
	POSTGRES_OK,
	/* 55P03, a lock was not granted within lock_timeout; 57014, the statement was cancelled */
	POSTGRES_BLOCKED,
	POSTGRES_REFUSED, /* classes 22 and 23: the data is refused, also when sent again */
	POSTGRES_AGAIN,   /* 40001, 40P01: another transaction was in the way */
	/* anything else: the connection is lost, or the server or its schema is not as expected */
	POSTGRES_BROKEN
};

/* Of an error with this SQLSTATE; NULL or "": there is none, the connection is lost. */
enum postgres_failure postgres_classify(const char *sqlstate);

/*
 * Whether a failure concerns only the coupons of the statement, which are put off while everything
 * else continues.
 */
int postgres_of_coupon(enum postgres_failure failure);

#endif
