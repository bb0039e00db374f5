/*
 * The keys of codes, from the file that COUPON_CODE_KEYS names. Every function ends the process
 * with a sentence when the file cannot be used.
 */
#ifndef CTL_CODES_KEYRING_H
#define CTL_CODES_KEYRING_H

#include "codes/key.h"
#include "ctl/ctl.h"
#include "ctl/postgres.h"

void keyring_read(struct code_keys *keys, const struct ctl *ctl);

/*
 * Compares the keys with the fingerprints of those that have made codes. A key that the file lacks
 * is no error: its codes are then no codes. Returns the highest version in the database; 0: none.
 */
int keyring_check(const struct code_keys *keys, struct db *db);

#endif
