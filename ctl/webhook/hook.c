#include "ctl/webhook/hook.h"

#include "common/log/log.h"
#include "embed.h"

void hook_absent(int64_t id)
{
	log_fatal("there is no webhook %lld", (long long)id);
}

PGresult *hook_row(struct db *db, int64_t id)
{
	char number[DB_NUMBER_SIZE];
	PGresult *row = db_query(db, sql_query_webhook_list, 3,
				 (const char *[]){ "0", "1", db_number(id, number) });

	if (PQntuples(row) == 0)
		hook_absent(id);
	return row;
}

PGresult *hook_secrets(struct db *db, int64_t id)
{
	char number[DB_NUMBER_SIZE];

	return db_query(db, sql_query_webhook_secrets, 1,
			(const char *[]){ db_number(id, number) });
}
