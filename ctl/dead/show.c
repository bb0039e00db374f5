/* couponctl dead show: one dead letter with its properties, headers and body. */
#include "ctl/dead/show.h"

#include "common/check.h"
#include "ctl/dead/walk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Properties that are text. */
static const struct {
	const char *name;
	amqp_flags_t flag;
	size_t offset;
} text_properties[] = {
#define PROPERTY(member, flag_)                                     \
	{                                                           \
		.name = #member, .flag = flag_,                     \
		.offset = offsetof(amqp_basic_properties_t, member) \
	}
	PROPERTY(content_type, AMQP_BASIC_CONTENT_TYPE_FLAG),
	PROPERTY(content_encoding, AMQP_BASIC_CONTENT_ENCODING_FLAG),
	PROPERTY(correlation_id, AMQP_BASIC_CORRELATION_ID_FLAG),
	PROPERTY(reply_to, AMQP_BASIC_REPLY_TO_FLAG),
	PROPERTY(expiration, AMQP_BASIC_EXPIRATION_FLAG),
	PROPERTY(message_id, AMQP_BASIC_MESSAGE_ID_FLAG),
	PROPERTY(type, AMQP_BASIC_TYPE_FLAG),
	PROPERTY(user_id, AMQP_BASIC_USER_ID_FLAG),
	PROPERTY(app_id, AMQP_BASIC_APP_ID_FLAG),
#undef PROPERTY
};

#define TEXT_PROPERTIES_N (sizeof(text_properties) / sizeof(text_properties[0]))

static const amqp_bytes_t *property_text(const struct dead_letter *letter, size_t i)
{
	if (!(letter->raw.properties._flags & text_properties[i].flag))
		return NULL;
	return (const amqp_bytes_t *)(const void *)((const char *)&letter->raw.properties +
						    text_properties[i].offset);
}

/* The value of a header that is an integer or a boolean. 0, or -1 for other types. */
static int header_number(const amqp_field_value_t *value, int64_t *number)
{
	switch (value->kind) {
	case AMQP_FIELD_KIND_BOOLEAN:
		*number = value->value.boolean;
		return 0;
	case AMQP_FIELD_KIND_I8:
		*number = value->value.i8;
		return 0;
	case AMQP_FIELD_KIND_U8:
		*number = value->value.u8;
		return 0;
	case AMQP_FIELD_KIND_I16:
		*number = value->value.i16;
		return 0;
	case AMQP_FIELD_KIND_U16:
		*number = value->value.u16;
		return 0;
	case AMQP_FIELD_KIND_I32:
		*number = value->value.i32;
		return 0;
	case AMQP_FIELD_KIND_U32:
		*number = value->value.u32;
		return 0;
	case AMQP_FIELD_KIND_I64:
	case AMQP_FIELD_KIND_TIMESTAMP:
		*number = value->value.i64;
		return 0;
	default: /* amqp_field_value_t.kind is not an enum */
		return -1;
	}
}

static int header_is_text(const amqp_field_value_t *value)
{
	return value->kind == AMQP_FIELD_KIND_UTF8 || value->kind == AMQP_FIELD_KIND_BYTES;
}

static amqp_table_t headers_of(const struct dead_letter *letter)
{
	const amqp_basic_properties_t *properties = &letter->raw.properties;

	return properties->_flags & AMQP_BASIC_HEADERS_FLAG ? properties->headers
							    : amqp_empty_table;
}

static void headers_print(const struct dead_letter *letter)
{
	amqp_table_t headers = headers_of(letter);

	for (int i = 0; i < headers.num_entries; i++) {
		const amqp_table_entry_t *entry = &headers.entries[i];
		int64_t number;

		fputs("  header ", stdout);
		dead_bytes_print(entry->key, 0);
		fputs(": ", stdout);
		if (header_is_text(&entry->value))
			dead_bytes_print(entry->value.value.bytes, 0);
		else if (header_number(&entry->value, &number) == 0)
			printf("%" PRId64, number);
		else
			printf("of AMQP type %c", entry->value.kind);
		putchar('\n');
	}
}

void dead_show_print(const struct dead_letter *letter)
{
	const amqp_basic_properties_t *properties = &letter->raw.properties;

	printf("dead letter %" PRId64 ": ", letter->number);
	dead_letter_summary_print(letter);
	printf("  %s%s\n",
	       letter->unreadable ? "workers of this version cannot read it: "
				  : "workers of this version can read it",
	       letter->unreadable ? letter->unreadable : "");
	for (size_t i = 0; i < TEXT_PROPERTIES_N; i++) {
		if (!property_text(letter, i))
			continue;
		printf("  %s: ", text_properties[i].name);
		dead_bytes_print(*property_text(letter, i), 0);
		putchar('\n');
	}
	if (properties->_flags & AMQP_BASIC_DELIVERY_MODE_FLAG)
		printf("  delivery_mode: %u\n", properties->delivery_mode);
	if (properties->_flags & AMQP_BASIC_PRIORITY_FLAG)
		printf("  priority: %u\n", properties->priority);
	if (properties->_flags & AMQP_BASIC_TIMESTAMP_FLAG)
		printf("  timestamp: %" PRIu64 "\n", properties->timestamp);
	headers_print(letter);
	putchar('\n');
	dead_bytes_print(letter->raw.body, 1);
	putchar('\n');
}

static char *base64(amqp_bytes_t bytes)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *text = malloc((bytes.len + 2) / 3 * 4 + 1), *out = text;
	const unsigned char *in = bytes.bytes;

	check(text != NULL);
	for (size_t left = bytes.len; left > 0; in += 3, left -= left < 3 ? left : 3) {
		uint32_t group = (uint32_t)in[0] << 16 | (uint32_t)(left > 1 ? in[1] : 0) << 8 |
				 (left > 2 ? in[2] : 0);

		*out++ = digits[group >> 18];
		*out++ = digits[group >> 12 & 63];
		*out++ = left > 1 ? digits[group >> 6 & 63] : '=';
		*out++ = left > 2 ? digits[group & 63] : '=';
	}
	*out = '\0';
	return text;
}

/* Adds text unchanged, other bytes as base 64 under NAME_base64. */
static void bytes_json(cJSON *object, const char *name, amqp_bytes_t bytes, int is_text)
{
	char other[128];
	char *text = is_text ? malloc(bytes.len + 1) : base64(bytes);

	check(text != NULL);
	if (is_text) {
		if (bytes.len > 0) /* an empty one has no address */
			memcpy(text, bytes.bytes, bytes.len);
		text[bytes.len] = '\0';
	}
	snprintf(other, sizeof(other), "%s%s", name, is_text ? "" : "_base64");
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

	if (!dead_is_text(key) || key.len + sizeof(suffix) > size)
		return -1;
	memcpy(name, key.bytes, key.len);
	strcpy(name + key.len, suffix);
	if (cJSON_GetObjectItemCaseSensitive(object, name))
		return -1;
	name[key.len] = '\0';
	return cJSON_GetObjectItemCaseSensitive(object, name) ? -1 : 0;
}

/* Of headers with the same name only the first. */
static cJSON *headers_json(const struct dead_letter *letter)
{
	amqp_table_t headers = headers_of(letter);
	cJSON *object = output_object();

	for (int i = 0; i < headers.num_entries; i++) {
		const amqp_table_entry_t *entry = &headers.entries[i];
		char name[96];
		int64_t number;

		if (header_name(object, entry->key, name, sizeof(name)))
			continue;
		if (header_is_text(&entry->value))
			bytes_json(object, name, entry->value.value.bytes,
				   dead_is_text(entry->value.value.bytes));
		else if (header_number(&entry->value, &number) == 0)
			output_number(object, name, number);
		else
			output_null(object, name);
	}
	return object;
}

void dead_show_json(const struct dead_letter *letter, cJSON *object)
{
	const amqp_basic_properties_t *properties = &letter->raw.properties;
	cJSON *named = output_object();

	for (size_t i = 0; i < TEXT_PROPERTIES_N; i++)
		if (property_text(letter, i))
			bytes_json(named, text_properties[i].name, *property_text(letter, i),
				   dead_is_text(*property_text(letter, i)));
	if (properties->_flags & AMQP_BASIC_DELIVERY_MODE_FLAG)
		output_number(named, "delivery_mode", properties->delivery_mode);
	if (properties->_flags & AMQP_BASIC_PRIORITY_FLAG)
		output_number(named, "priority", properties->priority);
	if (properties->_flags & AMQP_BASIC_TIMESTAMP_FLAG)
		output_number(named, "timestamp", (int64_t)properties->timestamp);
	output_text(object, "unreadable", letter->unreadable);
	output_add(object, "properties", named);
	output_add(object, "headers", headers_json(letter));
	bytes_json(object, "body", letter->raw.body, letter->body_is_text);
}

static void letter_show(const struct dead_letter *letter, int as_json)
{
	cJSON *object;

	if (!as_json) {
		dead_show_print(letter);
		return;
	}
	object = dead_letter_json(letter);
	dead_show_json(letter, object);
	output_print(object);
}

static int show_run(struct ctl *ctl)
{
	static struct dead_letter letter;
	struct dead_walk walk;
	enum dead_step step;

	dead_choice_read(&walk.choice, ctl);
	walk.choice.first = 1;
	dead_walk_begin(&walk, ctl);
	while ((step = dead_walk_step(&walk, &letter)) == DEAD_STEP_PASSED)
		;
	if (step == DEAD_STEP_CHOSEN) {
		letter_show(&letter, args_has(&ctl->args, "json"));
		dead_letter_fini(&letter);
	}
	dead_walk_end(&walk);
	dead_walk_check_found(&walk);
	return 0;
}

static const struct option show_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command dead_show_command = {
	.name = "dead show",
	.run = show_run,
	.argument = "N|BATCH",
	.options = show_options,
	.summary = "print one dead letter, by its number or its batch",
};
