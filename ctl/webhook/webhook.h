/* A webhook that a command names. */
#ifndef CTL_WEBHOOK_WEBHOOK_H
#define CTL_WEBHOOK_WEBHOOK_H

#include "ctl/postgres.h"

#include <stdint.h>

/* Ends the process: there is no such webhook. */
_Noreturn void hook_absent(int64_t id);

/* The row of sql_query_webhook_list; one that is absent ends the process. */
PGresult *hook_row(struct db *db, int64_t id);

#endif
