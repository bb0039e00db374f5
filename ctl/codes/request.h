/*
 * The request of a file that is being made, FILE.request beside it: what was wanted, and the id by
 * which PostgreSQL knows the set of codes. It is on the disk before PostgreSQL commits the set, and
 * removed when the file is complete: so the same command, run again after any interruption,
 * finishes that set and makes no second one. While the process runs it has a lock on it.
 */
#ifndef CTL_CODES_REQUEST_H
#define CTL_CODES_REQUEST_H

#include "common/message/receive.h"

struct request {
	char *path;
	int fd;
	int is_new; /* no command before has written it */
	char id[ULID_SIZE];
};

/*
 * Takes up the request that is there, or begins one with a new id. `wanted` is one or more whole
 * lines. Ends the process with a sentence when another process has it, or when something else was
 * wanted. A new one that is never written leaves no file when the process exits. One at a time.
 */
void request_open(struct request *request, const char *file, const char *wanted);

/* Writes a new one to the disk. */
void request_write(struct request *request, const char *wanted);

/* The file is complete: removes the request. */
void request_end(struct request *request);

#endif
