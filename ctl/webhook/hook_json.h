/* A webhook as JSON. */
#ifndef CTL_WEBHOOK_HOOK_JSON_H
#define CTL_WEBHOOK_HOOK_JSON_H

#include <cjson/cJSON.h>
#include <libpq-fe.h>

/* Of a row of sql/query/webhook_list.sql; without its secrets. */
cJSON *hook_json(const PGresult *rows, int row);

#endif
