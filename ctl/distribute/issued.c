#include "ctl/distribute/issued.h"

#include "ctl/distribute/key.h"
#include "embed.h"

#include <string.h>

/* Returns 1 when the row ends a user that was waiting. */
static int row_take(struct book *book, const char *user, const char *key, size_t prefix_len)
{
	uint32_t repeat = key_repeat(key, prefix_len);
	int64_t i = repeat ? list_find(book->list, user, strlen(user), repeat) : -1;

	if (i < book->base || book->ends[i] != END_WAITING)
		return 0;
	book_end_unsent(book, (uint32_t)i, END_ISSUED);
	return 1;
}

int64_t issued_read(struct book *book, struct db *db, int64_t coupon, const char *name)
{
	char id[DB_NUMBER_SIZE], prefix[KEY_SIZE];
	size_t prefix_len = key_prefix(name, prefix);
	int64_t found = 0;
	int n;

	db_run(db, "BEGIN READ ONLY");
	db_pages_begin(db, sql_query_distribute_issued, 2,
		       (const char *[]){ db_number(coupon, id), prefix });
	do {
		PGresult *page = db_page(db);

		n = PQntuples(page);
		for (int row = 0; row < n; row++)
			found += row_take(book, db_text(page, row, "user_id"),
					  db_text(page, row, "key"), prefix_len);
		PQclear(page);
	} while (n > 0);
	db_pages_end(db);
	db_run(db, "COMMIT");
	return found;
}
