#include "common/api_key_watch.h"

#include "common/log/log.h"
#include "common/postgres/postgres_session.h"

#include <stdio.h>

#define EVERY_MS 500
#define ASKED_EVERY_MS 100 /* however many strangers ask */

uint64_t key_watch_ask(struct key_watch *watch, int is_urgent)
{
	watch->is_asked = 1;
	watch->is_urgent |= is_urgent;
	return watch->asked_n + 1;
}

int key_watch_told(const struct key_watch *watch, uint64_t question)
{
	return watch->told_n >= question ? 1 : watch->ended_n >= question ? -1 : 0;
}

/* ---- what is presented */

int key_watch_knows(const struct key_watch *watch, int64_t now_ms)
{
	return watch->told_ms && now_ms - watch->told_ms <= watch->stale_ms;
}

enum key_judgement key_watch_find(const struct key_watch *watch, const char *text, size_t len,
				  int is_asked, int64_t now_ms, int64_t wall_ms,
				  struct key_grant *grant)
{
	enum key_verdict verdict = keys_find(watch->keys, text, len, wall_ms, grant);
	int is_new = verdict == KEY_UNKNOWN || verdict == KEY_WRONG;
	char id[KEY_ID_LEN + 1] = "";

	if (is_new && is_asked == 0)
		return KEY_MAY_BE_NEW;
	if ((verdict != KEY_FORM && !key_watch_knows(watch, now_ms)) || (is_new && is_asked < 0)) {
		grant->key = NULL;
		return KEY_UNTOLD;
	}
	if (verdict == KEY_GOOD)
		return KEY_ACCEPTED;
	if (verdict != KEY_FORM) /* the id is no secret */
		snprintf(id, sizeof(id), "%.*s", KEY_ID_LEN, text + strlen(KEY_PREFIX));
	log_info("key_refused", LOG_S("verdict", key_verdict_kind(verdict)), LOG_S("key", id));
	return KEY_REFUSED;
}

enum key_judgement key_watch_check(const struct key_watch *watch, struct key_grant *grant,
				   int64_t now_ms, int64_t wall_ms)
{
	if (!key_watch_knows(watch, now_ms))
		return KEY_UNTOLD;
	return key_grant_check(grant, wall_ms) == KEY_GOOD ? KEY_ACCEPTED : KEY_REFUSED;
}

/* ---- looks */

/* What is known of all keys: up to the change with this number. */
static int64_t known_version(const struct key_watch *watch)
{
	return watch->redis_version > watch->rows_version ? watch->redis_version
							  : watch->rows_version;
}

/* Whether the look answers questions. */
static int is_for_questions(const struct key_look *look)
{
	return look->kind == KEY_LOOK_BOTH || look->kind == KEY_LOOK_QUESTION;
}

int64_t key_look_due_ms(const struct key_look *look)
{
	const struct key_watch *watch = look->watch;

	if (look->reads != KEY_READ_NOTHING)
		return INT64_MAX;
	if (is_for_questions(look) && watch->is_asked)
		return watch->is_urgent ? 0 : look->ended_ms + ASKED_EVERY_MS;
	if (look->kind == KEY_LOOK_QUESTION)
		return INT64_MAX;
	return look->notices_n != watch->notices_n ? 0 : look->ended_ms + EVERY_MS;
}

static enum key_read look_end(struct key_look *look, int64_t now_ms)
{
	struct key_watch *watch = look->watch;

	look->ended_ms = now_ms;
	if (is_for_questions(look)) {
		watch->ended_n = look->question;
		if (look->is_told)
			watch->told_n = look->question;
	}
	return look->reads = KEY_READ_NOTHING;
}

static enum key_read rows_read(struct key_look *look)
{
	look->from = look->watch->rows_version;
	return look->reads = KEY_READ_ROWS;
}

enum key_read key_look_begin(struct key_look *look, int64_t now_ms)
{
	struct key_watch *watch = look->watch;

	look->has_changed = look->is_told = 0;
	look->notices_n = watch->notices_n;
	look->known = known_version(watch);
	if (is_for_questions(look)) {
		look->question = watch->asked_n += watch->is_asked != 0;
		watch->is_asked = watch->is_urgent = 0;
	}
	if (watch->is_foreign)
		return look_end(look, now_ms);
	return look->kind == KEY_LOOK_ROWS ? rows_read(look) : (look->reads = KEY_READ_VERSION);
}

static void record_take(struct key_look *look, const char *text, size_t len)
{
	enum keys_merged merged = keys_merge(look->watch->keys, text, len);

	look->has_changed |= merged == KEYS_CHANGED;
	if (merged == KEYS_MALFORMED || merged == KEYS_FULL)
		log_warn("key_record",
			 LOG_S("error", merged == KEYS_FULL ? "there are too many API keys"
							    : "the record is malformed"));
}

/*
 * The store has told of all changes up to this number. One that was put back answers no question
 * that was asked before that was noticed.
 */
static void told(struct key_look *look, int64_t version, int64_t now_ms)
{
	if (version < known_version(look->watch))
		return;
	look->watch->told_ms = now_ms;
	look->is_told |= version >= look->known;
}

enum key_read key_look_reply(struct key_look *look, const redisReply *reply, int64_t now_ms)
{
	struct key_watch *watch = look->watch;
	int64_t version = 0;

	look->has_changed = 0;
	if (watch->is_foreign)
		return look_end(look, now_ms);
	if (look->reads == KEY_READ_VERSION) {
		version = key_copy_number(reply);
		if (version > 0 && version != watch->redis_version &&
		    (look->kind != KEY_LOOK_QUESTION || version >= known_version(watch)))
			return look->reads = KEY_READ_ALL;
	} else if (reply && reply->type == REDIS_REPLY_ARRAY) {
		for (size_t i = 0; i + 1 < reply->elements; i += 2) {
			const redisReply *field = reply->element[i], *value = reply->element[i + 1];

			if (strcmp(field->str, KEYS_VERSION) == 0)
				version = key_copy_number(value);
			else
				record_take(look, value->str, value->len);
		}
		watch->redis_version = version;
	}
	if (version > 0 && version == watch->redis_version)
		told(look, version, now_ms);
	if (look->kind == KEY_LOOK_BOTH || (look->kind == KEY_LOOK_QUESTION && !look->is_told))
		return rows_read(look);
	return look_end(look, now_ms);
}

enum key_read key_look_rows(struct key_look *look, const PGresult *rows, int64_t now_ms)
{
	struct key_watch *watch = look->watch;
	int64_t counted, last = 0;
	int n = 0;

	look->has_changed = 0;
	if (watch->is_foreign || !rows || PQntuples(rows) == 0)
		return look_end(look, now_ms);

	/* PostgreSQL was put back, or was when another look asked: all of it once more. */
	counted = column_number(rows, 0, "counted");
	if (counted < watch->rows_version || look->from > watch->rows_version) {
		watch->rows_version = 0;
		return look_end(look, now_ms);
	}
	for (int row = 0; row < PQntuples(rows); row++) {
		const char *text = column_text(rows, row, "record");

		if (!*text)
			continue;
		n++;
		last = column_number(rows, row, "version");
		record_take(look, text, strlen(text));
	}
	if (n == KEY_ROWS_MAX) { /* there may be more */
		if (watch->rows_version < last)
			watch->rows_version = last;
		return rows_read(look);
	}
	watch->rows_version = counted;
	told(look, counted, now_ms);
	return look_end(look, now_ms);
}

int key_read_words(enum key_read read, const char *words[KEY_READ_WORDS])
{
	words[0] = read == KEY_READ_VERSION ? "HGET" : "HGETALL";
	words[1] = KEYS_KEY;
	words[2] = KEYS_VERSION;
	return read == KEY_READ_VERSION ? 3 : 2;
}
