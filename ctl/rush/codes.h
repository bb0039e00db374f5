/* The exchange codes of a rush: one for each user, in the order of the file. */
#ifndef CTL_RUSH_CODES_H
#define CTL_RUSH_CODES_H

#include "ctl/args.h"

#include <stddef.h>
#include <stdint.h>

#define RUSH_CODE_MAX 96 /* bytes of one */

struct rush_codes {
	char (*list)[RUSH_CODE_MAX + 1]; /* NULL: the rush issues without codes */
	size_t n;
};

/*
 * From the first column of the file that `couponctl codes generate` has written, the first `needed`
 * codes. Too few, or a wrong file, end the process.
 */
void rush_codes_read(struct rush_codes *codes, const struct args *args, size_t needed);
void rush_codes_fini(struct rush_codes *codes);

#endif
