#include "common/message/json.h"

#include "common/check.h"
#include "common/message/number.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 65536
#define PRINTED_MAX 999999999999999 /* 15 digits */

struct chunk {
	struct chunk *next;
	size_t size;
	size_t used;
	_Alignas(16) char bytes[];
};

struct json_arena {
	struct chunk *first; /* kept over a reset; the others are freed by it */
	struct json_fault fault;
	int decimals; /* they are allowed */
};

/* While set, cJSON's allocations of this thread are made in it. */
static _Thread_local struct json_arena *arena_current;
static pthread_once_t hooks_once = PTHREAD_ONCE_INIT;

static struct chunk *chunk_new(size_t size, struct chunk *next)
{
	struct chunk *chunk = checked(malloc(sizeof(*chunk) + size));

	chunk->next = next;
	chunk->size = size;
	chunk->used = 0;
	return chunk;
}

static void arena_reset(struct json_arena *arena)
{
	while (arena->first->next) {
		struct chunk *chunk = arena->first->next;

		arena->first->next = chunk->next;
		free(chunk);
	}
	arena->first->used = 0;
}

static void *hook_malloc(size_t size)
{
	struct chunk *chunk = arena_current ? arena_current->first : NULL;
	void *at;

	if (!chunk)
		return malloc(size);
	size = (size + 15) & ~(size_t)15;
	if (chunk->size - chunk->used < size) {
		/*
		 * The first chunk stays first, so that a reset finds it; the one in use follows it.
		 */
		if (!chunk->next || chunk->next->size - chunk->next->used < size)
			chunk->next = chunk_new(size > CHUNK_BYTES ? size : CHUNK_BYTES,
						chunk->next);
		chunk = chunk->next;
	}
	at = chunk->bytes + chunk->used;
	chunk->used += size;
	return at;
}

static void hook_free(void *at)
{
	if (!arena_current)
		free(at);
}

static void hooks_install(void)
{
	cJSON_Hooks hooks = { .malloc_fn = hook_malloc, .free_fn = hook_free };

	cJSON_InitHooks(&hooks);
}

struct json_arena *json_arena_new(void)
{
	struct json_arena *arena = checked(calloc(1, sizeof(*arena)));

	pthread_once(&hooks_once, hooks_install);
	arena->first = chunk_new(CHUNK_BYTES, NULL);
	return arena;
}

void json_arena_free(struct json_arena *arena)
{
	if (!arena)
		return;
	arena_reset(arena);
	free(arena->first);
	free(arena);
}

void json_decimals_allow(struct json_arena *arena)
{
	arena->decimals = 1;
}

void json_arena_wipe(struct json_arena *arena)
{
	for (struct chunk *chunk = arena->first; chunk; chunk = chunk->next)
		explicit_bzero(chunk->bytes, chunk->used);
}

/* The length of the UTF-8 sequence at `p` (RFC 3629), not of ASCII, or 0 when it is none. */
static size_t utf8_length(const unsigned char *p, const unsigned char *end)
{
	/* of the second byte: nothing overlong, no surrogate, nothing beyond U+10FFFF */
	unsigned char least = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
	unsigned char most = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
	size_t len = p[0] >= 0xc2 && p[0] < 0xe0   ? 2
		     : (p[0] & 0xf0) == 0xe0       ? 3
		     : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
						   : 0;

	if (len == 0 || (size_t)(end - p) < len || p[1] < least || p[1] > most)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

/* The first byte that is not UTF-8, at or after `text`; NULL: there is none. */
static const char *text_fault(const char *text)
{
	const unsigned char *end = (const unsigned char *)text + strlen(text);
	size_t len = 1;

	for (; *text && len > 0; text += len)
		len = (unsigned char)*text < 0x80 ? 1
						  : utf8_length((const unsigned char *)text, end);
	return len > 0 ? NULL : text;
}

int json_text_is_valid(const char *text)
{
	return !text_fault(text);
}

void json_text_mend(char *text)
{
	for (char *fault = text; (fault = (char *)text_fault(fault)); fault++)
		*fault = '?';
}

/*
 * The length of the escape at `p`, or 0 with `*error`. cJSON makes a NUL out of \u and digits that
 * are not hexadecimal.
 */
static size_t scan_escape(const unsigned char *p, const unsigned char *end, const char **error)
{
	if (end - p < 2)
		return 1;
	if (p[1] != 'u') {
		if (memchr("\"\\/bfnrt", p[1], 8))
			return 2;
		*error = "a backslash that does not begin an escape";
		return 0;
	}
	for (int i = 2; i < 6; i++) {
		if (end - p <= i)
			return (size_t)(end - p);
		if (!isxdigit(p[i])) {
			*error = "\\u without four hexadecimal digits";
			return 0;
		}
	}
	if (memcmp(p + 2, "0000", 4) == 0) {
		*error = "a NUL character in a string";
		return 0;
	}
	return 6;
}

/*
 * Checks a string after its opening quote. Returns the byte after the closing one, or the wrong
 * byte with `*error`.
 */
static const unsigned char *scan_string(const unsigned char *p, const unsigned char *end,
					const char **error)
{
	while (p < end && *p != '"') {
		size_t len = 1;

		if (*p < 0x20) {
			*error = "a control character in a string";
			return p;
		}
		if (*p == '\\') {
			len = scan_escape(p, end, error);
			if (len == 0)
				return p;
		} else if (*p >= 0x80) {
			len = utf8_length(p, end);
			if (len == 0) {
				*error = "bytes that are not UTF-8";
				return p;
			}
		}
		p += len;
	}
	if (p >= end) {
		*error = "an unterminated string";
		return p;
	}
	return p + 1;
}

static const unsigned char *scan_digits(const unsigned char *p, const unsigned char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

/* Checks a number. Returns the byte after it; with `*error` what it returns has no meaning. */
static const unsigned char *scan_number(const unsigned char *p, const unsigned char *end,
					int decimals, const char **error)
{
	const unsigned char *first;
	int has_digits = 1; /* of the fraction and of the exponent */

	if (*p == '-')
		p++;
	first = p;
	p = scan_digits(p, end);
	if (p == first || (*first == '0' && p - first > 1))
		*error = "a number with a leading zero or without digits";
	else if (!decimals && p < end && (*p == '.' || *p == 'e' || *p == 'E'))
		*error = "a number with a fraction or an exponent; only integers are allowed";
	if (*error)
		return p;

	if (p < end && *p == '.') {
		first = ++p;
		p = scan_digits(p, end);
		has_digits = p > first;
	}
	if (has_digits && p < end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < end && (*p == '+' || *p == '-'))
			p++;
		first = p;
		p = scan_digits(p, end);
		has_digits = p > first;
	}
	if (!has_digits)
		*error = "a number whose fraction or exponent has no digits";
	return p;
}

/*
 * The limit of members in one object: comparing more of them with each other would take too long.
 */
#define MEMBERS_MAX 64

/* NULL, or what is wrong with the members of an object in this tree. */
static const char *members_fault(const cJSON *item)
{
	const char *fault = NULL;
	int members = 0;

	for (const cJSON *a = item->child; a; a = a->next)
		if (a->string && ++members > MEMBERS_MAX)
			return "an object with more than 64 members";
	for (const cJSON *a = item->child; a && !fault; a = a->next) {
		for (const cJSON *b = item->child; a->string && b != a; b = b->next)
			if (strcmp(a->string, b->string) == 0)
				return "a member that occurs twice";
		if (a->child)
			fault = members_fault(a);
	}
	return fault;
}

void json_mark_skip(const char **text, size_t *len)
{
	static const char mark[] = "\xef\xbb\xbf";
	size_t n = sizeof(mark) - 1;

	if (*len < n || memcmp(*text, mark, n) != 0)
		return;
	*text += n;
	*len -= n;
}

const cJSON *json_parse(struct json_arena *arena, const char *text, size_t len, const char **error)
{
	const char *end = NULL;
	const cJSON *root;
	const unsigned char *at = (const unsigned char *)text, *last = at + len, *token;
	struct json_fault named = { 0 }; /* by the string before, or the one before a colon */
	int depth = 0;
	char before = '\0'; /* the first byte of the token before */

	arena_reset(arena);
	arena->fault = (struct json_fault){ 0 };
	*error = NULL;
	while (at < last) {
		unsigned char c = *at;

		token = at++;
		if (c == '"') {
			at = scan_string(at, last, error);
			if (*error && at < last && before == ':' && named.member) {
				arena->fault = named;
				arena->fault.byte = (size_t)(at - token);
			}
			named.member = (const char *)token + 1;
			named.member_len = (size_t)(at - token) - 2;
		} else if (c == '-' || (c >= '0' && c <= '9')) {
			at = scan_number(token, last, arena->decimals, error);
		} else if (c == '{' || c == '[') {
			if (++depth > JSON_DEPTH_MAX)
				*error = "arrays or objects nested deeper than 16 levels";
		} else if (c == '}' || c == ']') {
			depth--;
		} else if (c == ':') {
			if (before != '"')
				named.member = NULL;
		} else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
			continue;
		} else if (c != ',' && (c < 'a' || c > 'z')) {
			*error = "not JSON";
		}
		if (*error)
			return NULL;
		before = (char)c;
	}

	arena_current = arena;
	root = cJSON_ParseWithLengthOpts(text, len, &end, 0);
	arena_current = NULL;
	if (!root) {
		*error = "not JSON";
		return NULL;
	}
	while (end < text + len && strchr(" \t\r\n", *end))
		end++;
	if (end != text + len) {
		*error = "bytes after the JSON value";
		return NULL;
	}
	*error = members_fault(root);
	return *error ? NULL : root;
}

const struct json_fault *json_fault(const struct json_arena *arena)
{
	return &arena->fault;
}

int json_id(const cJSON *item, int64_t *id, const char **error)
{
	if (cJSON_IsString(item)) {
		if (id_parse(item->valuestring, strlen(item->valuestring), id) == 0)
			return 0;
		*error = "must be an integer from 1 to 9223372036854775807 in decimal digits "
			 "without sign or leading zero";
		return -1;
	}
	if (json_integer(item, 1, JSON_INTEGER_MAX, id) == 0)
		return 0;
	if (cJSON_IsNumber(item) && item->valuedouble > 0)
		*error = "is beyond 2^53-1 as a number: send it as a string";
	else
		*error = "must be a string or a number, an integer from 1 to 9223372036854775807";
	return -1;
}

int json_integer(const cJSON *item, int64_t least, int64_t most, int64_t *value)
{
	if (!cJSON_IsNumber(item) || item->valuedouble < (double)least ||
	    item->valuedouble > (double)most ||
	    item->valuedouble != (double)(int64_t)item->valuedouble)
		return -1;
	*value = (int64_t)item->valuedouble;
	return 0;
}

/* Whether an integer in it has more digits than cJSON prints; `mends`: such a one becomes them. */
static int is_rounded(cJSON *value, int mends)
{
	int64_t number;
	int found = json_integer(value, -JSON_INTEGER_MAX, JSON_INTEGER_MAX, &number) == 0 &&
		    (number > PRINTED_MAX || number < -PRINTED_MAX);
	cJSON *child;

	if (found && mends) {
		value->valuestring = checked(cJSON_malloc(NUMBER_SIZE));
		number_text(number, value->valuestring);
		value->type = (value->type & ~cJSON_Number) | cJSON_Raw;
	}
	cJSON_ArrayForEach(child, value)
	{
		found |= is_rounded(child, mends);
	}
	return found;
}

char *json_write(const cJSON *value)
{
	cJSON *exact = is_rounded((cJSON *)(uintptr_t)value, 0) ? checked(cJSON_Duplicate(value, 1))
								: NULL;
	char *text;

	if (exact)
		is_rounded(exact, 1);
	text = cJSON_PrintUnformatted(exact ? exact : value);
	cJSON_Delete(exact);
	return text;
}

void json_sentence_add(cJSON *array, const char *format, ...)
{
	char sentence[1024];
	va_list args;
	cJSON *item;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	item = cJSON_CreateString(sentence);
	check(item != NULL && cJSON_AddItemToArray(array, item));
}
