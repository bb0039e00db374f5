/* The range of positions that PostgreSQL gives to a new set of generated codes. */
#ifndef CTL_CODES_GENERATE_ALLOCATION_H
#define CTL_CODES_GENERATE_ALLOCATION_H

#include "codes/space.h"
#include "ctl/ctl.h"

struct db;

struct allocation {
	struct db *db; /* with a transaction, until allocation_commit() */
	int64_t set;
	int64_t first;
	struct code_space *space; /* of the caller, to be freed */
	int is_new;               /* no command before has made it */
	int is_revoked;
};

struct allocation_wish {
	const char *request;
	const char *file;
	int64_t coupon, count;
	const struct code_form *form;
};

/*
 * Makes the set of this request, or finds the one that was made for it before. Ends the process
 * with a sentence if it cannot be: no such coupon, too many codes for the form, other keys.
 */
void allocation_begin(struct allocation *allocation, const struct ctl *ctl,
		      const struct allocation_wish *wish);

/* Should its reply be lost, the process ends, and the same request finds what this one made. */
void allocation_commit(struct allocation *allocation);

/* Records that the file of a set is complete. */
void allocation_complete(const struct ctl *ctl, int64_t set);

#endif
