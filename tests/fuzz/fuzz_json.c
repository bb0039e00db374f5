/*
 * Strict JSON against an independent recogniser: a text that json_parse() accepts is JSON, one that
 * it refuses is not or breaks an additional rule, and a tree printed and parsed again is the same
 * tree.
 */
#include "tests/fuzz/fuzz.h"

#include "common/message/json.h"

#include <math.h>

#define MEMBERS_MAX 64
#define NUMBER_DIGITS_SURE 62 /* some versions of cJSON read no more */

/* A recogniser of RFC 8259 and of the additional rules that the text breaks. */
struct scan {
	const uint8_t *at, *end;
	int depth;
	int ours; /* too deep, a fraction, a NUL */
	int wide; /* a number that cJSON may refuse */
};

static int byte_take(struct scan *scan, uint8_t byte)
{
	if (scan->at == scan->end || *scan->at != byte)
		return 0;
	scan->at++;
	return 1;
}

static void space_take(struct scan *scan)
{
	while (byte_take(scan, ' ') || byte_take(scan, '\t') || byte_take(scan, '\r') ||
	       byte_take(scan, '\n'))
		;
}

static size_t digits_take(struct scan *scan)
{
	const uint8_t *first = scan->at;

	while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
		scan->at++;
	return (size_t)(scan->at - first);
}

static int number_is(struct scan *scan)
{
	const uint8_t *first;
	size_t digits;

	byte_take(scan, '-');
	first = scan->at;
	digits = digits_take(scan);
	if (digits == 0 || (*first == '0' && digits > 1))
		return 0;
	if (digits > NUMBER_DIGITS_SURE)
		scan->wide = 1;
	if (byte_take(scan, '.')) {
		scan->ours = 1;
		if (digits_take(scan) == 0)
			return 0;
	}
	if (!byte_take(scan, 'e') && !byte_take(scan, 'E'))
		return 1;
	scan->ours = 1;
	if (!byte_take(scan, '+'))
		byte_take(scan, '-');
	return digits_take(scan) > 0;
}

/* Four hexadecimal digits, or -1. */
static int hex4_take(struct scan *scan)
{
	int value = 0;

	for (int i = 0; i < 4; i++, scan->at++) {
		const char *digits = "0123456789abcdef0123456789ABCDEF";
		const char *digit = scan->at < scan->end && *scan->at ? strchr(digits, *scan->at)
								      : NULL;

		if (!digit)
			return -1;
		value = value << 4 | (int)((digit - digits) & 15);
	}
	return value;
}

static int escape_is(struct scan *scan)
{
	int unit, low;

	if (scan->at == scan->end)
		return 0;
	if (*scan->at != 'u')
		return *scan->at && strchr("\"\\/bfnrt", *scan->at++) != NULL;
	scan->at++;
	unit = hex4_take(scan);
	if (unit == 0)
		scan->ours = 1;
	if (unit < 0xd800 || unit > 0xdfff)
		return unit >= 0;
	if (unit > 0xdbff || !byte_take(scan, '\\') || !byte_take(scan, 'u'))
		return 0; /* half a pair: RFC 8259 allows it, json_parse() does not */
	low = hex4_take(scan);
	return low >= 0xdc00 && low <= 0xdfff;
}

static int utf8_is(struct scan *scan)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint8_t first = *scan->at++;
	int more = first < 0xc0 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf8 ? 3 : -1;
	uint32_t point = first & (0x3fu >> (more > 0 ? more : 0));

	for (int i = 0; i < more; i++) {
		if (scan->at == scan->end || (*scan->at & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (*scan->at++ & 0x3fu);
	}
	return more > 0 && point >= least[more + 1] && point <= 0x10ffff &&
	       (point < 0xd800 || point > 0xdfff);
}

static int string_is(struct scan *scan)
{
	if (!byte_take(scan, '"'))
		return 0;
	while (scan->at < scan->end && *scan->at != '"') {
		if (*scan->at < 0x20)
			return 0;
		if (byte_take(scan, '\\')) {
			if (!escape_is(scan))
				return 0;
		} else if (*scan->at < 0x80) {
			scan->at++;
		} else if (!utf8_is(scan)) {
			return 0;
		}
	}
	return byte_take(scan, '"');
}

static int word_is(struct scan *scan, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(scan->end - scan->at) < len || memcmp(scan->at, word, len) != 0)
		return 0;
	scan->at += len;
	return 1;
}

static int value_is(struct scan *scan);

/* After the opening bracket. */
static int items_are(struct scan *scan, int named, uint8_t close)
{
	space_take(scan);
	if (byte_take(scan, close))
		return 1;
	do {
		space_take(scan);
		if (named && !string_is(scan))
			return 0;
		space_take(scan);
		if ((named && !byte_take(scan, ':')) || !value_is(scan))
			return 0;
		space_take(scan);
	} while (byte_take(scan, ','));
	return byte_take(scan, close);
}

static int value_is(struct scan *scan)
{
	int valid, named;

	space_take(scan);
	if (scan->at == scan->end)
		return 0;
	if (*scan->at == '"')
		return string_is(scan);
	if (*scan->at != '{' && *scan->at != '[')
		return word_is(scan, "true") || word_is(scan, "false") || word_is(scan, "null") ||
		       number_is(scan);
	if (++scan->depth > JSON_DEPTH_MAX)
		scan->ours = 1;
	named = *scan->at++ == '{';
	valid = scan->depth < 1000 && items_are(scan, named, named ? '}' : ']');
	scan->depth--;
	return valid;
}

/*
 * Checks each item; returns whether cJSON prints all its numbers exactly: it prints 15 digits.
 */
static int item_check(const cJSON *item, int depth)
{
	int64_t number;
	const char *error = NULL;
	int exact, printable = 1, members = 0;

	check(depth <= JSON_DEPTH_MAX + 1);
	if (cJSON_IsNumber(item)) {
		exact = fabs(item->valuedouble) <= (double)JSON_INTEGER_MAX;
		check((json_integer(item, -JSON_INTEGER_MAX, JSON_INTEGER_MAX, &number) == 0) ==
		      exact);
		check(!exact || (double)number == item->valuedouble);
		printable = fabs(item->valuedouble) < 1e15;
	}
	check(json_id(item, &number, &error) == 0 ? number > 0 : error != NULL);
	for (const cJSON *child = item->child; child; child = child->next) {
		members += child->string != NULL;
		printable &= item_check(child, depth + 1);
	}
	check(members <= MEMBERS_MAX);
	return printable;
}

static void same_again_check(const cJSON *root)
{
	struct json_arena *arena = json_arena_new();
	char *text = cJSON_PrintUnformatted(root);
	const char *error;
	const cJSON *again;

	check(text != NULL);
	again = json_parse(arena, text, strlen(text), &error);
	check(again && cJSON_Compare(root, again, 1));
	cJSON_free(text);
	json_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct json_arena *arena;
	struct scan scan = { .at = data, .end = data + size };
	const char *error = NULL;
	const cJSON *root;
	int is_json = value_is(&scan);

	space_take(&scan);
	is_json = is_json && scan.at == scan.end;
	if (!arena)
		arena = json_arena_new();
	root = json_parse(arena, (const char *)data, size, &error);
	if (!root) {
		check(error && *error);
		check(!is_json || scan.ours || scan.wide || strstr(error, "64 members") ||
		      strstr(error, "twice"));
		return 0;
	}
	check(is_json && !scan.ours);
	if (item_check(root, 0))
		same_again_check(root);
	return 0;
}
