#include "ctl/table/text_buffer.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 100

void text_buffer_fini(struct text_buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct text_buffer){ 0 };
}

void text_buffer_clear(struct text_buffer *buffer)
{
	buffer->len = 0;
	if (buffer->data)
		buffer->data[0] = '\0';
}

void text_add(struct text_buffer *buffer, const char *text, size_t len)
{
	if (buffer->room - buffer->len <= len) {
		buffer->room = 2 * buffer->room + len + 64;
		buffer->data = realloc(buffer->data, buffer->room);
		check(buffer->data != NULL);
	}
	memcpy(buffer->data + buffer->len, text, len);
	buffer->len += len;
	buffer->data[buffer->len] = '\0';
}

void text_add_string(struct text_buffer *buffer, const char *text)
{
	text_add(buffer, text, strlen(text));
}

void text_add_json(struct text_buffer *buffer, const char *text, size_t len)
{
	size_t plain = 0; /* where bytes begin that stay as they are */

	text_add(buffer, "\"", 1);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		char escaped[8];

		if (c >= ' ' && c != '"' && c != '\\')
			continue;
		text_add(buffer, text + plain, i - plain);
		plain = i + 1;
		snprintf(escaped, sizeof(escaped), c < ' ' ? "\\u%04x" : "\\%c", c);
		text_add_string(buffer, escaped);
	}
	text_add(buffer, text + plain, len - plain);
	text_add(buffer, "\"", 1);
}

void text_add_shown(struct text_buffer *buffer, const char *text, size_t len)
{
	for (size_t i = 0; i < len && i < SHOWN_MAX; i++) {
		char escaped[8];

		snprintf(escaped, sizeof(escaped), "\\x%02x", (unsigned char)text[i]);
		if (text[i] >= ' ' && text[i] <= '~')
			text_add(buffer, text + i, 1);
		else
			text_add_string(buffer, escaped);
	}
	if (len > SHOWN_MAX)
		text_add_string(buffer, "...");
}
