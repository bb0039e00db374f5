#include "gateway/read/key_records.h"

#include "common/clock.h"

static void look_go(struct key_look *look, enum key_read read);

static void on_reply(void *look, const redisReply *reply)
{
	look_go(look, key_look_reply(look, reply, clock_monotonic_ms()));
}

static void on_rows(void *look, const PGresult *rows)
{
	look_go(look, key_look_rows(look, rows, clock_monotonic_ms()));
}

/* Has the look changed anything, and sends what it reads next. */
static void look_go(struct key_look *look, enum key_read read)
{
	const struct key_records *records = look->context;
	const char *words[KEY_READ_WORDS];

	if (look->has_changed)
		intake_keys_changed(records->intake);
	switch (read) {
	case KEY_READ_VERSION:
	case KEY_READ_ALL:
		redis_pool_query(records->redis, key_read_words(read, words), words, on_reply,
				 look);
		break;
	case KEY_READ_ROWS:
		if (!lookup_is_connected(records->lookup) ||
		    lookup_ask(records->lookup, LOOKUP_KEYS,
			       POSTGRES_ARGUMENTS(postgres_number(look->from),
						  postgres_number(KEY_ROWS_MAX)),
			       on_rows, look))
			on_rows(look, NULL);
		break;
	case KEY_READ_NOTHING:
		if (look->kind == KEY_LOOK_QUESTION)
			intake_keys_told(records->intake);
		break;
	}
}

static void on_notified(void *context)
{
	struct key_records *records = context;

	records->watch->notices_n++;
}

void key_records_init(struct key_records *records)
{
	struct key_look look = { .watch = records->watch, .context = records };

	records->of_redis = records->of_rows = records->question = look;
	records->of_redis.kind = KEY_LOOK_REDIS;
	records->of_rows.kind = KEY_LOOK_ROWS;
	records->question.kind = KEY_LOOK_QUESTION;
	lookup_on_keys(records->lookup, on_notified, records);
}

static void look_begin(struct key_look *look)
{
	int64_t now_ms = clock_monotonic_ms();

	if (key_look_due_ms(look) <= now_ms)
		look_go(look, key_look_begin(look, now_ms));
}

void key_records_tick(struct key_records *records)
{
	look_begin(&records->of_redis);
	look_begin(&records->of_rows);
}

void key_records_flush(struct key_records *records)
{
	look_begin(&records->question);
}
