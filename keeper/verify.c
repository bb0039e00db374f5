#include "keeper/verify.h"

#include "embed.h"

#include <stdlib.h>

/*
 * The last late outcome that Redis must have counted, and no release taken for granted. 0, or -1.
 */
static int verify_prepare(struct keeper_view *view, const struct coupon_row *row, int64_t *late)
{
	char coupon[KEEPER_NUMBER_SIZE], fence[KEEPER_NUMBER_SIZE];
	const char *const values[] = { keeper_number(row->id, coupon),
				       keeper_number(view->fence, fence) };
	PGresult *result = keeper_database_ask(view->database, sql_query_release_again, 2, values);

	PQclear(result);
	if (!result)
		return -1;
	result = keeper_database_ask(view->database, sql_query_late_least, 1, values);
	if (!result)
		return -1;
	*late = PQntuples(result) == 1 ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
	PQclear(result);
	return 0;
}

int keeper_verify(struct keeper_view *view, const struct coupon_row *row,
		  char word[KEEPER_WORD_SIZE])
{
	char fence[KEEPER_NUMBER_SIZE], generation[KEEPER_NUMBER_SIZE], seq[KEEPER_NUMBER_SIZE],
		late_text[KEEPER_NUMBER_SIZE], keys[4][KEEPER_KEY_SIZE];
	int64_t late;

	if (verify_prepare(view, row, &late))
		return -1;
	keeper_word_take(keeper_redis_eval(view->redis, lua_verify, 4,
					   (const char *[]){
						   keeper_key(row->id, "", keys[0]),
						   keeper_key(row->id, ":users", keys[1]),
						   keeper_key(row->id, ":outbox", keys[2]),
						   keeper_key(row->id, ":seen", keys[3]) },
					   5,
					   (const char *[]){
						   keeper_number(view->fence, fence), view->run_id,
						   keeper_number(row->generation, generation),
						   keeper_number(row->seq_seen, seq),
						   keeper_number(late, late_text) }),
			 word);
	return 0;
}
