/*
 * The catalogue of codes:
 *
 *	every second, or told of a change: code_state ─(changed)─▶ code_catalogue ─▶ a new book
 *	              the file's stamp, while a key is missing ─▶ the same
 *
 * The state is kept only when the catalogue was read after it, so that no change is missed.
 */
#include "gateway/claim/claim.h"

#include "codes/book.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/receive.h"
#include "common/program/key_file.h"
#include "gateway/claim/attempts.h"
#include "gateway/claim/fair_queue.h"
#include "gateway/listen/request.h"
#include "gateway/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVERY_MS 1000 /* PostgreSQL is asked whether codes have changed */
#define STATE_SIZE 128
#define FIND_MAX 64    /* texts at once: many at once are faster */
#define TEXTS_MAX 256  /* in one look-up */
#define TRIES_MAX 1024 /* requests that are tried at once: some may have to wait on */
#define MESSAGE_SIZE 160

_Static_assert(TEXTS_MAX < ATTEMPTS_TAKEN_MAX, "one more than those of the look-up under way");

enum code_kind {
	CODE_KNOWN,
	CODE_MAYBE, /* it may be an imported code: PostgreSQL knows */
	CODE_NONE
};

/* A set whose codes one user alone may claim, or that end before their campaign. */
struct catalogue_terms {
	int64_t set;
	char user[USER_ID_SIZE]; /* "": anybody */
	int64_t end_ms;          /* 0: as long as the campaign */
	UT_hash_handle hh;
};

/* What a text is, and of CODE_KNOWN the code that can be claimed. */
struct code_meaning {
	enum code_kind kind;
	int64_t coupon;
	char code[RECEIVE_CODE_MAX + 1];     /* receive_code_valid() */
	const struct catalogue_terms *terms; /* NULL: none */
};

struct catalogue_word {
	char text[CODE_OTHERS_SIZE];
	struct code_meaning found;
	UT_hash_handle hh;
};

/* What one reading of PostgreSQL and of the file of keys has shown. */
struct catalogue_content {
	struct code_book *book;
	struct catalogue_word *words;
	struct catalogue_terms *terms; /* by set */
	int64_t keys_missing;
	int has_imported;
	char trouble[CODE_WHY_SIZE]; /* why codes cannot be read; "" if all can */
	struct key_file_stamp stamp; /* the file of keys before it was read */
};

/*
 * The exchange codes as this process knows them: the spaces and sets of generated codes, with their
 * keys, and the words.
 */
struct catalogue {
	struct lookup *lookup;
	const char *keys_path; /* COUPON_CODE_KEYS; "": none */
	struct catalogue_content content;
	int is_loaded, is_asking, is_wanted;
	uint64_t begun_n, ended_n; /* looks: the last that has begun, and that has ended well */
	int64_t due_ms;
	char state[STATE_SIZE], asked[STATE_SIZE];
};

/* A request that has taken from its budgets (attempts.h), until its code is judged. */
struct guess {
	struct request *request;
	size_t ticket; /* what it has taken */
};

struct claim {
	struct admission *admission;
	struct fair_queue *reads; /* those of `code` */
	struct lookup *lookup;
	struct catalogue catalogue;
	int64_t timeout_us;          /* a request that waits for longer is not looked up */
	struct request_list arrived; /* FIND_MAX of them are decided together */
	size_t arrived_n;
	struct fair_queue *waiting;    /* for a look-up, or for the end of other attempts */
	struct guess asked[TEXTS_MAX]; /* in the look-up that is under way */
	size_t asked_n;
};

struct claim *claim_new(const struct config *config, struct lookup *lookup,
			struct admission *admission, struct fair_queue *reads)
{
	struct claim *claim = checked(calloc(1, sizeof(*claim)));

	claim->admission = admission;
	claim->reads = reads;
	claim->lookup = claim->catalogue.lookup = lookup;
	claim->catalogue.keys_path = config->code_keys;
	claim->catalogue.content.book = code_book_new();
	claim->timeout_us = config->call_timeout_ms * 1000;
	/* never full: a retry whose receive is there is answered, as many as there are */
	claim->waiting = fair_queue_new((size_t)config->inflight_max);
	STAILQ_INIT(&claim->arrived);
	return claim;
}

static void content_free(struct catalogue_content *content)
{
	struct catalogue_word *word, *next;
	struct catalogue_terms *terms, *next_terms;

	HASH_ITER (hh, content->words, word, next) {
		HASH_DEL(content->words, word);
		free(word);
	}
	HASH_ITER (hh, content->terms, terms, next_terms) {
		HASH_DEL(content->terms, terms);
		free(terms);
	}
	code_book_free(content->book);
}

/* The terms of a set, if it has any of its own. */
static const struct catalogue_terms *terms_read(struct catalogue_content *content,
						const PGresult *rows, int row)
{
	const char *user = column_text(rows, row, "for_user");
	int64_t end_ms = column_number(rows, row, "end_ms");
	struct catalogue_terms *terms;

	if (!*user && !end_ms)
		return NULL;
	terms = checked(calloc(1, sizeof(*terms)));
	terms->set = column_number(rows, row, "id");
	terms->end_ms = end_ms;
	snprintf(terms->user, sizeof(terms->user), "%s", user);
	HASH_ADD(hh, content->terms, set, sizeof(terms->set), terms);
	return terms;
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
		const struct catalogue_terms *terms = terms_read(content, rows, row);
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
				word->found.kind = CODE_KNOWN;
				word->found.terms = terms;
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

static void on_catalogue(void *context, const PGresult *rows)
{
	struct catalogue *catalogue = context;
	struct catalogue_content content;
	int failed, is_same;

	catalogue->is_asking = 0;
	if (!rows)
		return;
	failed = content_read(&content, rows, catalogue->keys_path);
	if (*content.trouble && strcmp(content.trouble, catalogue->content.trouble) != 0)
		log_error("code_keys", LOG_S("why", content.trouble),
			  LOG_I("forms_unreadable", content.keys_missing));

	/*
	 * A file of keys that cannot be used does not replace one that could, unless the sets have
	 * changed: nobody's codes end because of a mistake. It is read again when it changes, or at
	 * once if only descriptors were out.
	 */
	is_same = strcmp(catalogue->asked, catalogue->state) == 0;
	if (failed == KEY_FILE_LATER || (failed && catalogue->is_loaded && is_same)) {
		strcpy(catalogue->content.trouble, content.trouble);
		if (failed != KEY_FILE_LATER)
			catalogue->content.stamp = content.stamp;
		content_free(&content);
		if (is_same)
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

uint64_t claim_codes_renew(struct claim *claim)
{
	claim->catalogue.is_wanted = 1;
	return claim->catalogue.begun_n + 1;
}

int claim_codes_has(const struct claim *claim, uint64_t look)
{
	return claim->catalogue.ended_n >= look;
}

void claim_warnings(const struct claim *claim, cJSON *array)
{
	if (*claim->catalogue.content.trouble)
		json_sentence_add(array,
				  "exchange codes: %s: their codes are answered code_invalid",
				  claim->catalogue.content.trouble);
}

/* What texts are. Takes the same work for every text of the form of generated codes. */
static void catalogue_find(const struct catalogue *catalogue, const struct code_text *texts,
			   size_t n, struct code_meaning *found)
{
	const struct catalogue_content *content = &catalogue->content;
	struct code_found codes[FIND_MAX];
	char spelled[CODE_OTHERS_SIZE];

	check(n <= FIND_MAX);
	code_book_find_all(content->book, texts, n, codes);
	for (size_t i = 0; i < n; i++) {
		const struct catalogue_word *word = NULL;
		struct catalogue_terms *terms = NULL;

		if (codes[i].set) {
			HASH_FIND(hh, content->terms, &codes[i].set->id, sizeof(codes[i].set->id),
				  terms);
			found[i].kind = CODE_KNOWN;
			found[i].terms = terms;
			found[i].coupon = codes[i].set->coupon;
			receive_code_format(codes[i].set->id, codes[i].serial, found[i].code);
			continue;
		}
		/* It is no generated code: a word, or perhaps an imported code. */
		found[i].kind = CODE_NONE;
		if (code_text_spell(texts[i].text, texts[i].len, spelled))
			continue;
		HASH_FIND_STR(content->words, spelled, word);
		if (word)
			found[i] = word->found;
		else if (content->has_imported)
			found[i].kind = CODE_MAYBE;
	}
}

static void hold_back(struct request *request, int64_t wait_ms)
{
	char message[MESSAGE_SIZE];

	metrics_add(METRIC_CODES_HELD_BACK, 1);
	snprintf(message, sizeof(message),
		 "too many wrong codes: no code is checked for %lld ms; nothing was done",
		 (long long)wait_ms);
	request_fail_wait(request, ANSWER_BUSY, wait_ms, message);
}

/* It was taken for, and is wrong. */
static void refuse(struct request *request, size_t ticket)
{
	const struct result result = { .answer = ANSWER_CODE_INVALID };

	metrics_add(METRIC_CODES_WRONG, 1);
	attempts_end(ticket, request, clock_monotonic_us());
	request_answer(request, &result);
}

void claim_answered(const struct request *request, enum answer answer)
{
	if ((request->op != OP_CLAIM && request->op != OP_CODE) || answer != ANSWER_CODE_INVALID)
		return;
	metrics_add(METRIC_CODES_WRONG, 1);
	attempts_wrong(request, clock_monotonic_us());
}

static void fail_by_lookup(struct request *request)
{
	request_fail(request, ANSWER_UNAVAILABLE,
		     "PostgreSQL is unreachable: the code cannot be looked up");
}

static struct code_text text_of(const struct request *request)
{
	return (struct code_text){ .text = request_code(request), .len = request->code_len };
}

/*
 * A code of a coupon that is not for who asks, or of another user ("": of none), is none: else it
 * would be found by trying.
 */
static int is_for(const struct request *request, int64_t coupon, const char *user)
{
	return identity_has_coupon(&request->responder->identity, coupon) &&
	       (!*user || strcmp(user, request->user.text) == 0);
}

static struct code_meaning found_for(const struct request *request,
				     const struct code_meaning *found)
{
	struct code_meaning mine = *found;

	if (found->kind == CODE_KNOWN &&
	    !is_for(request, found->coupon, found->terms ? found->terms->user : ""))
		mine.kind = CODE_NONE;
	return mine;
}

/* `end_ms` as of request_code_set(). */
static void submit(struct claim *claim, struct request *request, int64_t coupon, const char *code,
		   int64_t end_ms)
{
	request->coupon = coupon;
	request_code_set(request, code, end_ms);
	if (request->op == OP_CODE)
		fair_queue_submit(claim->reads, request);
	else
		admission_submit(claim->admission, request);
}

static void submit_found(struct claim *claim, struct request *request,
			 const struct code_meaning *found)
{
	submit(claim, request, found->coupon, found->code, found->terms ? found->terms->end_ms : 0);
}

static void waiting_send(struct claim *claim);

static void on_texts(void *context, const PGresult *rows)
{
	struct claim *claim = context;
	size_t n = claim->asked_n;
	int row = 0;

	claim->asked_n = 0;
	for (size_t i = 0; i < n; i++) {
		const struct guess guess = claim->asked[i];
		struct request *request = guess.request;
		const char *state;
		int64_t coupon;

		if (!rows) {
			attempts_end(guess.ticket, NULL, clock_monotonic_us());
			fail_by_lookup(request);
			continue;
		}
		if (row >= PQntuples(rows) || column_number(rows, row, "ord") != (int64_t)i + 1) {
			refuse(request, guess.ticket);
			continue;
		}
		state = column_text(rows, row, "imported_as");
		coupon = column_number(rows, row, "coupon_id");
		if (!is_for(request, coupon, column_text(rows, row, "for_user")) ||
		    strcmp(state, "revoked") == 0) {
			refuse(request, guess.ticket);
		} else {
			attempts_end(guess.ticket, NULL, clock_monotonic_us());
			/*
			 * What was used or revoked when it was imported Redis does not know, and
			 * nobody has a receive by it.
			 */
			request->is_used = strcmp(state, "used") == 0;
			if (request->is_used && request->op == OP_CLAIM) {
				request->coupon = coupon;
				admission_refuse(claim->admission, request, ANSWER_CODE_USED);
			} else {
				submit(claim, request, coupon, column_text(rows, row, "code"),
				       column_number(rows, row, "end_ms"));
			}
		}
		row++;
	}
	waiting_send(claim);
}

/*
 * Takes at most `*tries` from what waits, and counts them off; those that must wait on are put into
 * `again`. Those that have waited for too long fail together: else each look-up that takes as long
 * as it may would be followed by another one, for 256 of all that wait.
 */
static void waiting_take(struct claim *claim, struct request_list *again, size_t *tries)
{
	int64_t now_us = clock_monotonic_us();
	struct code_text texts[FIND_MAX] = { 0 };
	struct code_meaning found[FIND_MAX];
	struct guess guesses[FIND_MAX];
	struct request *request;
	size_t n = 0;

	while (*tries > 0 && n < FIND_MAX && claim->asked_n + n < TEXTS_MAX &&
	       (request = fair_queue_take(claim->waiting))) {
		struct attempt attempt;

		if (now_us - request->begun_us > claim->timeout_us) {
			fail_by_lookup(request);
			continue;
		}
		--*tries;
		attempt = attempts_take(request, now_us);
		if (attempt.verdict == ATTEMPT_HELD) {
			hold_back(request, attempt.wait_ms);
		} else if (attempt.verdict == ATTEMPT_WAITS) {
			STAILQ_INSERT_TAIL(again, request, next);
		} else {
			texts[n] = text_of(request);
			guesses[n++] = (struct guess){ request, attempt.ticket };
		}
	}

	catalogue_find(&claim->catalogue, texts, n, found);
	for (size_t i = 0; i < n; i++) {
		const struct code_meaning mine = found_for(guesses[i].request, &found[i]);

		switch (mine.kind) {
		case CODE_KNOWN:
			attempts_end(guesses[i].ticket, NULL, clock_monotonic_us());
			submit_found(claim, guesses[i].request, &mine);
			break;
		case CODE_MAYBE:
			claim->asked[claim->asked_n++] = guesses[i];
			break;
		case CODE_NONE:
			refuse(guesses[i].request, guesses[i].ticket);
			break;
		}
	}
}

/* Looks up what waits, unless a look-up is under way: then it goes with the next one. */
static void waiting_send(struct claim *claim)
{
	struct request_list again = STAILQ_HEAD_INITIALIZER(again);
	char spelled[CODE_OTHERS_SIZE];
	struct postgres_array texts;
	struct request *request;
	size_t tries = TRIES_MAX;

	if (claim->asked_n > 0)
		return;
	while (claim->asked_n < TEXTS_MAX && tries > 0 && fair_queue_count(claim->waiting) > 0)
		waiting_take(claim, &again, &tries);
	while ((request = STAILQ_FIRST(&again))) {
		STAILQ_REMOVE_HEAD(&again, next);
		fair_queue_submit(claim->waiting, request);
	}
	if (claim->asked_n == 0)
		return;

	postgres_array_init(&texts, POSTGRES_TEXT);
	for (size_t i = 0; i < claim->asked_n; i++) {
		const struct code_text text = text_of(claim->asked[i].request);

		check(code_text_spell(text.text, text.len, spelled) == 0);
		postgres_array_add_text(&texts, spelled, strlen(spelled));
	}
	if (lookup_ask(claim->lookup, LOOKUP_CODE_TEXTS, POSTGRES_ARGUMENTS(postgres_array(&texts)),
		       on_texts, claim) == 0)
		return;
	while (claim->asked_n > 0) {
		const struct guess *guess = &claim->asked[--claim->asked_n];

		attempts_end(guess->ticket, NULL, clock_monotonic_us());
		request_fail(guess->request, ANSWER_BUSY, NULL);
	}
}

void claim_flush(struct claim *claim)
{
	struct request_list arrived = STAILQ_HEAD_INITIALIZER(arrived);
	struct code_text texts[FIND_MAX] = { 0 };
	struct code_meaning found[FIND_MAX];
	struct request *request;
	size_t n = 0;

	if (claim->arrived_n == 0)
		return;
	STAILQ_CONCAT(&arrived, &claim->arrived);
	claim->arrived_n = 0;
	STAILQ_FOREACH (request, &arrived, next)
		texts[n++] = text_of(request);
	catalogue_find(&claim->catalogue, texts, n, found);

	/*
	 * Right and wrong codes are held back and wait alike: else the time that an answer takes
	 * would tell about the code.
	 */
	for (size_t i = 0; i < n; i++) {
		struct code_meaning mine;
		struct attempt attempt;

		request = STAILQ_FIRST(&arrived);
		STAILQ_REMOVE_HEAD(&arrived, next);
		mine = found_for(request, &found[i]);
		attempt = attempts_look(request, clock_monotonic_us());
		if (attempt.verdict == ATTEMPT_ALLOWED && mine.kind == CODE_NONE)
			attempt = attempts_take(request, clock_monotonic_us());
		if (attempt.verdict == ATTEMPT_HELD)
			hold_back(request, attempt.wait_ms);
		else if (attempt.verdict == ATTEMPT_WAITS || mine.kind == CODE_MAYBE)
			fair_queue_submit(claim->waiting, request);
		else if (mine.kind == CODE_NONE)
			refuse(request, attempt.ticket);
		else
			submit_found(claim, request, &mine);
	}
	waiting_send(claim);
}

size_t claim_waiting(const struct claim *claim)
{
	return fair_queue_count(claim->waiting) + claim->asked_n;
}

void claim_submit(struct claim *claim, struct request *request)
{
	if (!claim->catalogue.is_loaded) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "the sets of exchange codes are not loaded from PostgreSQL yet");
		return;
	}
	STAILQ_INSERT_TAIL(&claim->arrived, request, next);
	if (++claim->arrived_n == FIND_MAX)
		claim_flush(claim);
}

void claim_tick(struct claim *claim, int64_t now_ms)
{
	struct catalogue *catalogue = &claim->catalogue;

	if (!catalogue->is_asking && (now_ms >= catalogue->due_ms || catalogue->is_wanted) &&
	    !lookup_trouble(catalogue->lookup)) {
		catalogue->due_ms = now_ms + EVERY_MS;
		catalogue->is_wanted = 0;
		catalogue->begun_n++;
		catalogue->is_asking = lookup_ask(catalogue->lookup, LOOKUP_CODE_STATE, 0, NULL,
						  on_state, catalogue) == 0;
	}
	waiting_send(claim); /* other processes may have judged what it waits for */
}
