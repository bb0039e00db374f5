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
static void members_read(struct dead_batch *batch, const cJSON *root)
{
	const cJSON *ulid_item = cJSON_GetObjectItemCaseSensitive(root, "batch");
	const cJSON *coupon = cJSON_GetObjectItemCaseSensitive(root, "coupon");
	const cJSON *receives = cJSON_GetObjectItemCaseSensitive(root, "receives");
	const char *error;
	struct ulid ulid;

	if (cJSON_IsString(ulid_item) &&
	    ulid_parse(&ulid, ulid_item->valuestring, strlen(ulid_item->valuestring)) == 0)
		ulid_format(&ulid, batch->ulid);
	if (json_id(coupon, &batch->coupon, &error))
		batch->coupon = 0;
	if (cJSON_IsArray(receives))
		batch->receives_n = cJSON_GetArraySize(receives);
}

static void batch_add(struct dead_letter *letter, struct json_arena *arena, const char *text,
		      size_t len)
{
	static struct message message;
	struct dead_batch *batch = &letter->batches[letter->batches_n++];
	const cJSON *root;
	const char *error;

	*batch = (struct dead_batch){ .receives_n = -1 };
	batch->body.len = len;
	memcpy(&batch->body.bytes, &text, sizeof(text)); /* the library's type is not const */
	if (message_decode(arena, text, len, &message, &batch->unreadable) == 0)
		batch->unreadable = NULL;
	root = json_parse(arena, text, len, &error);
	if (cJSON_IsObject(root))
		members_read(batch, root);
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
	struct packed packed;

	reason_read(letter);
	letter->batches_n = 0;
	letter->receives_n = 0;
	letter->unreadable = NULL;
	letter->body_is_text = json_parse(arena, body, len, &error) ||
			       dead_is_text(letter->raw.body);
	if (packed_open(&packed, body, len, &error) <= 0)
		batch_add(letter, arena, body, len);
	else
		while (packed_next(&packed, &text, &len))
			batch_add(letter, arena, text, len);
}

const struct dead_batch *dead_letter_batch(const struct dead_letter *letter)
{
	return letter->batches_n == 1 ? &letter->batches[0] : NULL;
}

int dead_batch_decode(const struct dead_batch *batch, struct json_arena *arena,
		      struct message *message)
{
	const char *error;

	return message_decode(arena, batch->body.bytes, batch->body.len, message, &error);
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
	const struct dead_batch *batch = dead_letter_batch(letter);

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

cJSON *dead_letter_json(const struct dead_letter *letter)
{
	const struct dead_batch *batch = dead_letter_batch(letter);
	cJSON *object = output_object();

	output_number(object, "number", letter->number);
	output_text(object, "reason", letter->reason);
	output_number(object, "batches", (int64_t)letter->batches_n);
	output_id(object, "coupon", batch ? batch->coupon : 0);
	output_text(object, "batch", batch ? batch->ulid : "");
	if (letter->receives_n >= 0)
		output_number(object, "receives", letter->receives_n);
	else
		output_null(object, "receives");
	output_number(object, "bytes", (int64_t)letter->raw.body.len);
	output_bool(object, "readable", !letter->unreadable);
	return object;
}
