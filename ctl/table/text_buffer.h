/* A text that grows, with the spellings of JSON and messages. */
#ifndef CTL_TABLE_TEXT_BUFFER_H
#define CTL_TABLE_TEXT_BUFFER_H

#include <stddef.h>

struct text_buffer { /* all zero: empty */
	char *data;  /* ended by a NUL, once anything was added */
	size_t len, room;
};

void text_buffer_fini(struct text_buffer *buffer);
void text_buffer_clear(struct text_buffer *buffer); /* keeps the memory */

void text_add(struct text_buffer *buffer, const char *text, size_t len);
void text_add_string(struct text_buffer *buffer, const char *text);

/* A string of JSON, in its quotes. Bytes above ASCII are left as they are. */
void text_add_json(struct text_buffer *buffer, const char *text, size_t len);
/* For a message: at most 100 bytes, and what is not printable ASCII as \xNN. */
void text_add_shown(struct text_buffer *buffer, const char *text, size_t len);

#endif
