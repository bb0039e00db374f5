#include "ctl/dead/dead_letter.h"

#include "common/check.h"
#include "common/message/use.h"
#include "common/rabbit/link.h"

#include <inttypes.h>
#include <openssl/sha.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static int is_printable(char c)
{
	return c >= ' ' && c <= '~';
}

/* Whether all bytes are printable ASCII, tabs or line ends. */
static int is_text(amqp_bytes_t bytes)
{
	const char *p = bytes.bytes;

	for (size_t i = 0; i < bytes.len; i++)
		if (!is_printable(p[i]) && p[i] != '\n' && p[i] != '\t' && p[i] != '\r')
			return 0;
	return 1;
}

static amqp_table_t headers_of(const struct dead_letter *letter)
{
	const amqp_basic_properties_t *properties = &letter->raw.properties;

	return properties->_flags & AMQP_BASIC_HEADERS_FLAG ? properties->headers
							    : amqp_empty_table;
}

static int value_is_text(const amqp_field_value_t *value)
{
	return value->kind == AMQP_FIELD_KIND_UTF8 || value->kind == AMQP_FIELD_KIND_BYTES;
}

static void batch_add(struct dead_letter *letter, struct json_arena *arena, const char *text,
		      size_t len)
{
	struct dead_batch *batch = &letter->batches[letter->batches_n++];
	static struct message message;
	static struct use_message uses;
	const cJSON *root, *member;
	const char *error;
	struct ulid ulid;

	*batch = (struct dead_batch){ .receives_n = -1 };
	batch->body.len = len;
	memcpy(&batch->body.bytes, &text, sizeof(text)); /* the library's type is not const */
	if (letter->is_use) {
		if (use_message_decode(arena, text, len, &uses, &error))
			batch->unreadable = error;
		else
			batch->receives_n = (int64_t)uses.receives_n;
	} else if (message_decode(arena, text, len, &message, &error)) {
		batch->unreadable = error;
	}

	/* The members that every version of the message has. */
	root = json_parse(arena, text, len, &error);
	if (cJSON_IsObject(root)) {
		member = cJSON_GetObjectItemCaseSensitive(root, "batch");
		if (cJSON_IsString(member) &&
		    ulid_parse(&ulid, member->valuestring, strlen(member->valuestring)) == 0)
			ulid_format(&ulid, batch->ulid);
		member = cJSON_GetObjectItemCaseSensitive(root, "coupon");
		if (json_id(member, &batch->coupon, &error))
			batch->coupon = 0;
		member = cJSON_GetObjectItemCaseSensitive(root, "receives");
		if (cJSON_IsArray(member))
			batch->receives_n = cJSON_GetArraySize(member);
	}

	if (batch->unreadable && !letter->unreadable)
		letter->unreadable = batch->unreadable;
	if (batch->receives_n >= 0 && letter->receives_n >= 0)
		letter->receives_n += batch->receives_n;
	else
		letter->receives_n = -1;
}

void dead_letter_read(struct dead_letter *letter, struct json_arena *arena)
{
	size_t len = letter->raw.body.len;
	const char *body = len > 0 ? letter->raw.body.bytes : "", *error, *text;
	const amqp_table_t headers = headers_of(letter);
	const amqp_field_value_t *reason = rabbit_table_find(&headers, AMQP_DEAD_REASON);
	unsigned char sha256[SHA256_DIGEST_LENGTH];
	struct packed packed;
	size_t n = 0;

	if (reason && value_is_text(reason))
		for (; n < reason->value.bytes.len && n + 1 < DEAD_REASON_SIZE; n++) {
			char c = ((const char *)reason->value.bytes.bytes)[n];

			letter->reason[n] = is_printable(c) ? c : '?';
		}
	letter->reason[n] = '\0';

	letter->is_use = letter->raw.properties._flags & AMQP_BASIC_TYPE_FLAG &&
			 rabbit_text_is(letter->raw.properties.type, AMQP_USE_TYPE);
	SHA256((const unsigned char *)body, len, sha256);
	sodium_bin2hex(letter->digest, sizeof(letter->digest), sha256, DEAD_DIGEST_SIZE / 2);
	letter->batches_n = 0;
	letter->receives_n = 0;
	letter->unreadable = NULL;
	letter->body_is_text = json_parse(arena, body, len, &error) || is_text(letter->raw.body);
	if (packed_open(&packed, body, len, &error) <= 0)
		batch_add(letter, arena, body, len);
	else
		while (packed_next(&packed, &text, &len))
			batch_add(letter, arena, text, len);
}

/* The only batch, or NULL: it has several. */
static const struct dead_batch *batch_of(const struct dead_letter *letter)
{
	return letter->batches_n == 1 ? &letter->batches[0] : NULL;
}

/*
 * Prints bytes that are not printable ASCII as \xNN, so that they cannot control a terminal.
 * `keep_lines` excepts line ends and tabs.
 */
static void bytes_print(amqp_bytes_t bytes, int keep_lines)
{
	const char *p = bytes.bytes;

	for (size_t i = 0; i < bytes.len; i++)
		if (is_printable(p[i]) || (keep_lines && (p[i] == '\n' || p[i] == '\t')))
			putchar(p[i]);
		else
			printf("\\x%02x", (unsigned char)p[i]);
}

void dead_letter_summary_print(const struct dead_letter *letter)
{
	const struct dead_batch *batch = batch_of(letter);

	if (!batch)
		printf("%zu batches, ", letter->batches_n);
	if (batch && batch->coupon)
		printf("coupon %" PRId64 ", ", batch->coupon);
	if (batch && *batch->ulid)
		printf("batch %s, ", batch->ulid);
	if (letter->receives_n >= 0)
		printf("%" PRId64 " receive%s, ", letter->receives_n,
		       letter->receives_n == 1 ? "" : "s");
	printf("%zu bytes; %s\n", letter->raw.body.len,
	       *letter->reason ? letter->reason : "no reason given");
}

/* All properties but the headers, each with the type that it would have as a header. */
static const struct {
	const char *name;
	uint8_t kind;
	amqp_flags_t flag;
	size_t offset, size;
} properties_table[] = {
#define PROPERTY(member, kind_, flag_)                                       \
	{                                                                    \
		.name = #member, .kind = AMQP_FIELD_KIND_##kind_,            \
		.flag = AMQP_BASIC_##flag_##_FLAG,                           \
		.offset = offsetof(amqp_basic_properties_t, member),         \
		.size = sizeof(((const amqp_basic_properties_t *)0)->member) \
	}
	PROPERTY(content_type, UTF8, CONTENT_TYPE),
	PROPERTY(content_encoding, UTF8, CONTENT_ENCODING),
	PROPERTY(correlation_id, UTF8, CORRELATION_ID),
	PROPERTY(reply_to, UTF8, REPLY_TO),
	PROPERTY(expiration, UTF8, EXPIRATION),
	PROPERTY(message_id, UTF8, MESSAGE_ID),
	PROPERTY(type, UTF8, TYPE),
	PROPERTY(user_id, UTF8, USER_ID),
	PROPERTY(app_id, UTF8, APP_ID),
	PROPERTY(delivery_mode, U8, DELIVERY_MODE),
	PROPERTY(priority, U8, PRIORITY),
	PROPERTY(timestamp, TIMESTAMP, TIMESTAMP),
#undef PROPERTY
};

#define PROPERTIES_N (sizeof(properties_table) / sizeof(properties_table[0]))

/* Makes a table of the properties that the message has. */
static amqp_table_t properties_of(const struct dead_letter *letter,
				  amqp_table_entry_t entries[PROPERTIES_N])
{
	const amqp_basic_properties_t *properties = &letter->raw.properties;
	amqp_table_t table = { .entries = entries };

	for (size_t i = 0; i < PROPERTIES_N; i++) {
		amqp_table_entry_t *entry = &entries[table.num_entries];

		if (!(properties->_flags & properties_table[i].flag))
			continue;
		entry->key = amqp_cstring_bytes(properties_table[i].name);
		entry->value.kind = properties_table[i].kind;
		memcpy(&entry->value.value, (const char *)properties + properties_table[i].offset,
		       properties_table[i].size);
		table.num_entries++;
	}
	return table;
}

/* Reads a value that is an integer, a time or a boolean. Returns 0, or -1 for other types. */
static int value_number(const amqp_field_value_t *value, int64_t *number)
{
	if (value->kind == AMQP_FIELD_KIND_BOOLEAN)
		*number = value->value.boolean;
	else if (value->kind == AMQP_FIELD_KIND_TIMESTAMP)
		*number = value->value.i64;
	else
		return envelope_integer(value, number);
	return 0;
}

static void table_print(amqp_table_t table, const char *kind)
{
	for (int i = 0; i < table.num_entries; i++) {
		const amqp_table_entry_t *entry = &table.entries[i];
		int64_t number;

		printf("  %s", kind);
		bytes_print(entry->key, 0);
		fputs(": ", stdout);
		if (value_is_text(&entry->value))
			bytes_print(entry->value.value.bytes, 0);
		else if (value_number(&entry->value, &number) == 0)
			printf("%" PRId64, number);
		else
			printf("of AMQP type %c", entry->value.kind);
		putchar('\n');
	}
}

void dead_letter_print(const struct dead_letter *letter)
{
	amqp_table_entry_t entries[PROPERTIES_N];

	printf("dead letter %" PRId64 ": ", letter->number);
	dead_letter_summary_print(letter);
	printf("  %s%s\n",
	       letter->unreadable ? "workers of this version cannot read it: "
				  : "workers of this version can read it",
	       letter->unreadable ? letter->unreadable : "");
	table_print(properties_of(letter, entries), "");
	table_print(headers_of(letter), "header ");
	putchar('\n');
	bytes_print(letter->raw.body, 1);
	putchar('\n');
}

/* Adds text unchanged, other bytes as base 64 under NAME_base64. */
static void bytes_json(cJSON *object, const char *name, amqp_bytes_t bytes, int as_text)
{
	size_t size = as_text ? bytes.len + 1
			      : sodium_base64_ENCODED_LEN(bytes.len,
							  sodium_base64_VARIANT_ORIGINAL);
	char other[128], *text = checked(malloc(size));

	if (as_text)
		snprintf(text, size, "%.*s", (int)bytes.len, (const char *)bytes.bytes);
	else
		sodium_bin2base64(text, size, bytes.bytes, bytes.len,
				  sodium_base64_VARIANT_ORIGINAL);
	snprintf(other, sizeof(other), "%s%s", name, as_text ? "" : "_base64");
	check(cJSON_AddStringToObject(object, other, text) != NULL);
	free(text);
}

/*
 * Writes the name of a header. 0, or -1 when it cannot be the name of a member, or is used already:
 * AMQP allows duplicates.
 */
static int header_name(const cJSON *object, amqp_bytes_t key, char *name, size_t size)
{
	static const char suffix[] = "_base64";

	if (!is_text(key) || key.len + sizeof(suffix) > size)
		return -1;
	memcpy(name, key.bytes, key.len);
	strcpy(name + key.len, suffix);
	if (cJSON_GetObjectItemCaseSensitive(object, name))
		return -1;
	name[key.len] = '\0';
	return cJSON_GetObjectItemCaseSensitive(object, name) ? -1 : 0;
}

/* If several values have one name, only the first is kept. */
static cJSON *table_json(amqp_table_t table)
{
	cJSON *object = output_object();

	for (int i = 0; i < table.num_entries; i++) {
		const amqp_table_entry_t *entry = &table.entries[i];
		char name[96];
		int64_t number;

		if (header_name(object, entry->key, name, sizeof(name)))
			continue;
		if (value_is_text(&entry->value))
			bytes_json(object, name, entry->value.value.bytes,
				   is_text(entry->value.value.bytes));
		else if (value_number(&entry->value, &number) == 0)
			output_number(object, name, number);
		else
			output_null(object, name);
	}
	return object;
}

cJSON *dead_letter_json(const struct dead_letter *letter, int is_whole)
{
	const struct dead_batch *batch = batch_of(letter);
	amqp_table_entry_t entries[PROPERTIES_N];
	cJSON *object = output_object();

	output_number(object, "number", letter->number);
	output_text(object, "reason", letter->reason);
	output_number(object, "batches", (int64_t)letter->batches_n);
	output_id(object, "coupon", batch ? batch->coupon : 0);
	output_text(object, "batch", batch ? batch->ulid : "");
	output_text(object, "digest", letter->digest);
	if (letter->receives_n >= 0)
		output_number(object, "receives", letter->receives_n);
	else
		output_null(object, "receives");
	output_number(object, "bytes", (int64_t)letter->raw.body.len);
	output_bool(object, "readable", !letter->unreadable);
	if (!is_whole)
		return object;
	output_text(object, "unreadable", letter->unreadable);
	output_add(object, "properties", table_json(properties_of(letter, entries)));
	output_add(object, "headers", table_json(headers_of(letter)));
	bytes_json(object, "body", letter->raw.body, letter->body_is_text);
	return object;
}
