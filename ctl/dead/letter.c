#include "ctl/dead/letter.h"

#include "common/rabbit/connection.h"
#include "common/check.h"

#include <inttypes.h>
#include <string.h>

static int is_printable(char c)
{
	return c >= ' ' && c <= '~';
}

int dead_is_text(amqp_bytes_t bytes)
{
	const char *p = bytes.bytes;

	for (size_t i = 0; i < bytes.len; i++)
		if (!is_printable(p[i]) && p[i] != '\n' && p[i] != '\t' && p[i] != '\r')
			return 0;
	return 1;
}

static void reason_read(struct dead_letter *letter)
{
	const amqp_basic_properties_t *properties = &letter->raw.properties;

	letter->reason[0] = '\0';
	if (!(properties->_flags & AMQP_BASIC_HEADERS_FLAG))
		return;
	for (int i = 0; i < properties->headers.num_entries; i++) {
		const amqp_table_entry_t *entry = &properties->headers.entries[i];
		size_t n = 0;

		if (entry->key.len != strlen(AMQP_DEAD_REASON) ||
		    memcmp(entry->key.bytes, AMQP_DEAD_REASON, entry->key.len) != 0)
			continue;
		if (entry->value.kind != AMQP_FIELD_KIND_UTF8 &&
		    entry->value.kind != AMQP_FIELD_KIND_BYTES)
			continue;
		for (; n < entry->value.value.bytes.len && n + 1 < DEAD_REASON_SIZE; n++) {
			char c = ((const char *)entry->value.value.bytes.bytes)[n];

			letter->reason[n] = is_printable(c) ? c : '?';
		}
		letter->reason[n] = '\0';
	}
}

/* The members that every version of the message has, of a body that is JSON. */
static void members_read(struct dead_letter *letter, const cJSON *root)
{
	const cJSON *batch = cJSON_GetObjectItemCaseSensitive(root, "batch");
	const cJSON *coupon = cJSON_GetObjectItemCaseSensitive(root, "coupon");
	const cJSON *receives = cJSON_GetObjectItemCaseSensitive(root, "receives");
	const char *error;
	struct ulid ulid;

	if (cJSON_IsString(batch) &&
	    ulid_parse(&ulid, batch->valuestring, strlen(batch->valuestring)) == 0)
		ulid_format(&ulid, letter->batch);
	if (json_id(coupon, &letter->coupon, &error))
		letter->coupon = 0;
	if (cJSON_IsArray(receives))
		letter->receives_n = cJSON_GetArraySize(receives);
}

void dead_letter_read(struct dead_letter *letter, struct json_arena *arena)
{
	size_t len = letter->raw.body.len;
	const char *body = len > 0 ? letter->raw.body.bytes : "", *error;
	const cJSON *root;

	reason_read(letter);
	letter->coupon = 0;
	letter->batch[0] = '\0';
	letter->receives_n = -1;
	letter->unreadable = NULL;
	if (message_decode(arena, body, len, &letter->message, &letter->unreadable) == 0)
		letter->unreadable = NULL;
	root = json_parse(arena, body, len, &error);
	letter->body_is_text = root || dead_is_text(letter->raw.body);
	if (cJSON_IsObject(root))
		members_read(letter, root);
}

void dead_letter_fini(struct dead_letter *letter)
{
	amqp_destroy_message(&letter->raw);
}

void dead_bytes_print(amqp_bytes_t bytes, int keep_lines)
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
	if (letter->coupon)
		printf("coupon %" PRId64 ", ", letter->coupon);
	if (*letter->batch)
		printf("batch %s, ", letter->batch);
	if (letter->receives_n >= 0)
		printf("%" PRId64 " receive%s, ", letter->receives_n,
		       letter->receives_n == 1 ? "" : "s");
	printf("%zu bytes; %s\n", letter->raw.body.len,
	       *letter->reason ? letter->reason : "no reason given");
}

cJSON *dead_letter_json(const struct dead_letter *letter)
{
	cJSON *object = output_object();

	output_number(object, "number", letter->number);
	output_text(object, "reason", letter->reason);
	output_id(object, "coupon", letter->coupon);
	output_text(object, "batch", letter->batch);
	if (letter->receives_n >= 0)
		output_number(object, "receives", letter->receives_n);
	else
		output_null(object, "receives");
	output_number(object, "bytes", (int64_t)letter->raw.body.len);
	output_bool(object, "readable", !letter->unreadable);
	return object;
}
