/* One request of a user, and what became of it. */
#ifndef COMPARE_REQUEST_H
#define COMPARE_REQUEST_H

struct request {
	int user; /* from 1 */
	int item; /* from 1 */
};

enum outcome {
	SOLD,
	SOLD_OUT,
	HAS_ONE, /* the user bought one before */
	FAILED   /* the user is told to try again */
};

#endif
