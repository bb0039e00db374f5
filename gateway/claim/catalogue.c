/*
 *	every second, or told of a change: code_state ─(changed)─▶ code_catalogue ─▶ a new book
 *	              the file's stamp, while a key is missing ─▶ the same
 *
 * The state is kept only when the catalogue was read after it, so that no change is missed.
 */
#include "gateway/claim/catalogue.h"

#include "common/check.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/program/key_file.h"
#include "gateway/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVERY_MS 1000
#define STATE_SIZE 128

struct catalogue_word {
	char text[CODE_OTHERS_SIZE];
	struct catalogue_found found;
	UT_hash_handle hh;
};

/* What one reading of PostgreSQL and of the file of keys has shown. */
struct catalogue_content {
	struct code_book *book;
	struct catalogue_word *words;
	int64_t keys_missing;
	int has_imported;
	char trouble[CODE_WHY_SIZE]; /* why codes cannot be read; "" if all can */
	struct key_file_stamp stamp; /* of the file of keys, before it was read */
};

struct catalogue {
	struct lookup *lookup;
	const char *keys_path;
	struct catalogue_content content;
	int is_loaded, is_asking, is_wanted;
	uint64_t begun_n, ended_n; /* looks: the last that has begun, and that has ended well */
	int64_t due_ms;
	char state[STATE_SIZE], asked[STATE_SIZE];
};

struct catalogue *catalogue_new(struct lookup *lookup, const char *keys_path)
{
	struct catalogue *catalogue = checked(calloc(1, sizeof(*catalogue)));

	catalogue->lookup = lookup;
	catalogue->keys_path = keys_path;
	catalogue->content.book = code_book_new();
	return catalogue;
}

static void content_free(struct catalogue_content *content)
{
	struct catalogue_word *word, *next;

	HASH_ITER (hh, content->words, word, next) {
		HASH_DEL(content->words, word);
		free(word);
	}
	code_book_free(content->book);
}

/* What code_key_file_read() returns. With KEY_FILE_LATER nothing was read. */
static int content_read(struct catalogue_content *content, const PGresult *rows,
			const char *keys_path)
{
	const char *space = "";
	struct code_keys keys = { 0 };
	int failed = 0;

	*content = (struct catalogue_content){ .book = code_book_new(),
					       .stamp = key_file_stamp(keys_path) };
	if (*keys_path)
		failed = code_key_file_read(&keys, keys_path, content->trouble);
	if (failed == KEY_FILE_LATER)
		return failed;
	if (failed)
		memset(&keys, 0, sizeof(keys));

	for (int row = 0; row < PQntuples(rows); row++) {
		const char *kind = column_text(rows, row, "kind");
		const char *own = column_text(rows, row, "space_id");
		const char *text = column_text(rows, row, "word");
		struct catalogue_word *word;

		if (strcmp(kind, "generated") == 0) {
			char why[CODE_WHY_SIZE];
			enum code_taken taken = code_book_take(content->book, &keys, rows, row,
							       why);

			/* the first set of a space counts for it */
			if (taken == CODE_KEY_MISSING || taken == CODE_KEY_OTHER)
				content->keys_missing += strcmp(space, own) != 0;
			if (taken != CODE_TAKEN &&
			    (taken != CODE_KEY_MISSING || !*content->trouble))
				strcpy(content->trouble, why);
		} else if (strcmp(kind, "word") == 0) {
			HASH_FIND_STR(content->words, text, word);
			if (*text && !word && strlen(text) <= CODE_OTHERS_MAX) {
				word = checked(calloc(1, sizeof(*word)));
				strcpy(word->text, text);
				word->found.kind = CATALOGUE_CODE;
				word->found.coupon = column_number(rows, row, "coupon_id");
				snprintf(word->found.code, sizeof(word->found.code), "%s",
					 column_text(rows, row, "id"));
				HASH_ADD_STR(content->words, text, word);
			}
		} else {
			content->has_imported = 1;
		}
		space = own;
	}
	code_keys_wipe(&keys);
	return failed;
}

/*
 * A file of keys that cannot be used does not replace one that could, unless the sets have changed:
 * nobody's codes end because of a mistake. It is read again when it changes, or at once if only
 * descriptors were out.
 */
static int keeps_old(struct catalogue *catalogue, const struct catalogue_content *content,
		     int failed)
{
	if (failed != KEY_FILE_LATER &&
	    (!failed || !catalogue->is_loaded || strcmp(catalogue->asked, catalogue->state) != 0))
		return 0;
	strcpy(catalogue->content.trouble, content->trouble);
	if (failed != KEY_FILE_LATER)
		catalogue->content.stamp = content->stamp;
	return 1;
}

static void on_catalogue(void *context, const PGresult *rows)
{
	struct catalogue *catalogue = context;
	struct catalogue_content content;
	int failed;

	catalogue->is_asking = 0;
	if (!rows)
		return;
	failed = content_read(&content, rows, catalogue->keys_path);
	if (*content.trouble && strcmp(content.trouble, catalogue->content.trouble) != 0)
		log_error("code_keys", LOG_S("why", content.trouble),
			  LOG_I("forms_unreadable", content.keys_missing));
	if (keeps_old(catalogue, &content, failed)) {
		content_free(&content);
		if (strcmp(catalogue->asked, catalogue->state) == 0)
			catalogue->ended_n = catalogue->begun_n;
		return;
	}
	content_free(&catalogue->content);
	catalogue->content = content;
	catalogue->is_loaded = 1;
	catalogue->ended_n = catalogue->begun_n;
	strcpy(catalogue->state, catalogue->asked);
	metrics_add(METRIC_CODE_SETS_READ, 1);
	metrics_set(METRIC_CODE_SETS, PQntuples(rows));
	metrics_set(METRIC_CODE_KEYS_MISSING, content.keys_missing);
}

static void on_state(void *context, const PGresult *rows)
{
	struct catalogue *catalogue = context;
	struct key_file_stamp stamp;

	catalogue->is_asking = 0;
	if (!rows || PQntuples(rows) != 1)
		return;
	snprintf(catalogue->asked, sizeof(catalogue->asked), "%s", PQgetvalue(rows, 0, 0));
	/* Keys may have been put into the file, or taken out of it. */
	stamp = key_file_stamp(catalogue->keys_path);
	if (catalogue->is_loaded && strcmp(catalogue->asked, catalogue->state) == 0 &&
	    memcmp(&stamp, &catalogue->content.stamp, sizeof(stamp)) == 0) {
		catalogue->ended_n = catalogue->begun_n;
		return;
	}
	catalogue->is_asking = lookup_ask(catalogue->lookup, LOOKUP_CODE_CATALOGUE, 0, NULL,
					  on_catalogue, catalogue) == 0;
}

void catalogue_tick(struct catalogue *catalogue, int64_t now_ms)
{
	if (catalogue->is_asking || (now_ms < catalogue->due_ms && !catalogue->is_wanted) ||
	    lookup_trouble(catalogue->lookup))
		return;
	catalogue->due_ms = now_ms + EVERY_MS;
	catalogue->is_wanted = 0;
	catalogue->begun_n++;
	catalogue->is_asking = lookup_ask(catalogue->lookup, LOOKUP_CODE_STATE, 0, NULL, on_state,
					  catalogue) == 0;
}

uint64_t catalogue_renew(struct catalogue *catalogue)
{
	catalogue->is_wanted = 1;
	return catalogue->begun_n + 1;
}

int catalogue_has(const struct catalogue *catalogue, uint64_t look)
{
	return catalogue->ended_n >= look;
}

int catalogue_is_loaded(const struct catalogue *catalogue)
{
	return catalogue->is_loaded;
}

void catalogue_find(const struct catalogue *catalogue, const struct code_text *texts, size_t n,
		    struct catalogue_found *found)
{
	const struct catalogue_content *content = &catalogue->content;
	struct code_found codes[CATALOGUE_TEXTS_MAX];
	char spelled[CODE_OTHERS_SIZE];

	check(n <= CATALOGUE_TEXTS_MAX);
	code_book_find_all(content->book, texts, n, codes);
	for (size_t i = 0; i < n; i++) {
		const struct catalogue_word *word = NULL;

		if (codes[i].set) {
			found[i].kind = CATALOGUE_CODE;
			found[i].coupon = codes[i].set->coupon;
			receive_code_format(codes[i].set->id, codes[i].serial, found[i].code);
			continue;
		}
		/* It is no generated code: a word, or perhaps an imported code. */
		found[i].kind = CATALOGUE_NONE;
		if (code_text_spell(texts[i].text, texts[i].len, spelled))
			continue;
		HASH_FIND_STR(content->words, spelled, word);
		if (word)
			found[i] = word->found;
		else if (content->has_imported)
			found[i].kind = CATALOGUE_MAYBE;
	}
}

void catalogue_warnings(const struct catalogue *catalogue, cJSON *array)
{
	if (*catalogue->content.trouble)
		json_sentence_add(array,
				  "exchange codes: %s: their codes are answered code_invalid",
				  catalogue->content.trouble);
}
