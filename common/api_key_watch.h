/*
 * What a program knows of API keys from PostgreSQL and from their copy in Redis: up to which change
 * each store has told, whether keys can be judged, and what is to be read next. No I/O: a look
 * names what to read, and its owner reads that and hands over the answer. One thread at a time.
 *
 *	key_look_begin ─▶ VERSION ─┬─(another)─▶ ALL ─┐
 *	                           └─(known, none)────┴─▶ ROWS, pages ─▶ NOTHING: it has ended
 *
 * The higher version of each record counts (common/api_keys.h). A store that is behind what is
 * known, because it was put back or has lost its data, tells nothing final.
 */
#pragma once

#include "common/api_keys.h"

#define KEYS_UNTOLD_TEXT "API keys cannot be checked: neither Redis nor PostgreSQL has answered"

/* Its owner sets the first members, and frees the table. */
struct key_watch {
	struct keys *keys;
	int64_t stale_ms;   /* keys are judged for so long while no store tells */
	int is_foreign;     /* the stores are of different installations: none is believed */
	uint64_t notices_n; /* by PostgreSQL, that keys have changed: looks begin now, or again */

	/* Its own. */
	int64_t redis_version, rows_version; /* up to which each store has told; 0: nothing */
	int64_t told_ms;                     /* when one last told of all that is known; 0: never */
	int is_asked, is_urgent;             /* by a question that has not begun */
	uint64_t asked_n, ended_n, told_n;   /* the last question that has begun, ended, was told */
};

/*
 * Asks for what is new, without waiting for the next look. Those who ask before it begins share a
 * question, whose number is returned. One that is not urgent, as a stranger may ask it, waits for a
 * pause between looks.
 */
uint64_t key_watch_ask(struct key_watch *watch, int is_urgent);
/* 0: it goes on; 1: a store has told of all keys since; -1: none could. */
int key_watch_told(const struct key_watch *watch, uint64_t question);

/* Times are of the monotonic clock, and `wall_ms` of the other one. */

/* Whether keys can be judged: a store has told of them, and not too long ago. */
int key_watch_knows(const struct key_watch *watch, int64_t now_ms);

enum key_judgement {
	KEY_ACCEPTED,
	KEY_REFUSED,
	KEY_MAY_BE_NEW, /* a store may have it by now: key_watch_ask() */
	KEY_UNTOLD      /* no store tells */
};

/*
 * Judges a text that was presented; a refusal is logged. `is_asked` is what key_watch_told() has
 * returned since. The grant is of a key only with KEY_ACCEPTED.
 */
enum key_judgement key_watch_find(const struct key_watch *watch, const char *text, size_t len,
				  int is_asked, int64_t now_ms, int64_t wall_ms,
				  struct key_grant *grant);
/* Judges a grant again: never KEY_MAY_BE_NEW. */
enum key_judgement key_watch_check(const struct key_watch *watch, struct key_grant *grant,
				   int64_t now_ms, int64_t wall_ms);

enum key_look_kind {
	KEY_LOOK_REDIS, /* twice a second */
	KEY_LOOK_ROWS,
	KEY_LOOK_BOTH,    /* twice a second, and for questions */
	KEY_LOOK_QUESTION /* for questions: PostgreSQL only if Redis cannot tell or is behind */
};

enum key_read {
	KEY_READ_NOTHING, /* the look has ended */
	KEY_READ_VERSION, /* key_read_words() */
	KEY_READ_ALL,
	KEY_READ_ROWS /* sql_query_key_news, of `from` and KEY_ROWS_MAX */
};

#define KEY_ROWS_MAX 1000
#define KEY_READ_WORDS 3

/* Its owner sets the first members. Several may run side by side. */
struct key_look {
	struct key_watch *watch;
	enum key_look_kind kind;
	void *context;

	/* Its own, for the owner to read. */
	int64_t from;    /* of KEY_READ_ROWS */
	int has_changed; /* a key, by the last answer */

	/* Its own. */
	enum key_read reads;
	int64_t known;      /* when it began */
	uint64_t notices_n; /* the same */
	uint64_t question;  /* that it answers, and those before it */
	int is_told;        /* a store has told since, and was not behind */
	int64_t ended_ms;
};

/* When it is to begin. INT64_MAX: when it is asked for, or it is under way. */
int64_t key_look_due_ms(const struct key_look *look);
/* Each returns what to read next. The answer is NULL: there was none. */
enum key_read key_look_begin(struct key_look *look, int64_t now_ms);
enum key_read key_look_reply(struct key_look *look, const redisReply *reply, int64_t now_ms);
enum key_read key_look_rows(struct key_look *look, const PGresult *rows, int64_t now_ms);
/* The command for Redis. Returns how many words it has. */
int key_read_words(enum key_read read, const char *words[KEY_READ_WORDS]);
