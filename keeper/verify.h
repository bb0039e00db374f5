/*
 * Opens a coupon on the Redis process that is connected to, if that knows enough of it. The
 * keeper's thread.
 */
#ifndef KEEPER_VERIFY_H
#define KEEPER_VERIFY_H

#include "keeper/context.h"

/*
 * `word` gets what lua/verify.lua says, empty when Redis failed or refused. Before, everything that
 * rejected receives hold is marked to be given back once more: Redis may have forgotten that it
 * was. 0, or -1 when PostgreSQL failed.
 */
int keeper_verify(struct keeper_view *view, const struct coupon_row *row,
		  char word[KEEPER_WORD_SIZE]);

#endif
