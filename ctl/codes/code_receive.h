/* The receive by which a code was used. */
#ifndef CTL_CODES_CODE_RECEIVE_H
#define CTL_CODES_CODE_RECEIVE_H

#include "common/message/receive.h"
#include "ctl/postgres.h"

/*
 * Writes the receive of a row with the columns `user_id`, `batch` and `idx`; "" if it
 * has none. Returns `out`.
 */
char *code_receive(const PGresult *rows, int row, int64_t coupon, char out[RECEIVE_SIZE]);

#endif
