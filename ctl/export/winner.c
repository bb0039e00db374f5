#include "ctl/export/winner.h"

#include <string.h>

void winner_heading_write(enum winner_format format, FILE *out)
{
	if (format == WINNER_CSV)
		fputs("user,receive,slot,received_at,valid_from,valid_to,key" CSV_END, out);
}

static void field_write(const char *text, enum csv_reader reader, FILE *out)
{
	if (*text)
		csv_put(out, text, strlen(text), reader);
}

static void csv_write(const struct winner *winner, enum csv_reader reader, FILE *out)
{
	field_write(winner->user, reader, out);
	putc_unlocked(',', out);
	field_write(winner->receive, reader, out);
	fprintf(out, ",%lld,%s,%s,%s,", (long long)winner->slot, winner->received_at,
		winner->valid_from, winner->valid_to);
	field_write(winner->key, reader, out);
	fputs_unlocked(CSV_END, out);
}

/* A string of JSON, or null for "". */
static void string_write(const char *text, FILE *out)
{
	if (!*text) {
		fputs_unlocked("null", out);
		return;
	}
	putc_unlocked('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			putc_unlocked('\\', out);
		if (c < ' ')
			fprintf(out, "\\u%04x", c);
		else
			putc_unlocked(c, out);
	}
	putc_unlocked('"', out);
}

static void member_write(const char *name, const char *text, FILE *out)
{
	fputs_unlocked(name, out);
	string_write(text, out);
}

static void jsonl_write(const struct winner *winner, FILE *out)
{
	member_write("{\"user\":", winner->user, out);
	member_write(",\"receive\":", winner->receive, out);
	fprintf(out, ",\"slot\":%lld", (long long)winner->slot);
	member_write(",\"received_at\":", winner->received_at, out);
	member_write(",\"valid_from\":", winner->valid_from, out);
	member_write(",\"valid_to\":", winner->valid_to, out);
	member_write(",\"key\":", winner->key, out);
	fputs_unlocked("}\n", out);
}

void winner_write(const struct winner *winner, enum winner_format format, enum csv_reader reader,
		  FILE *out)
{
	switch (format) {
	case WINNER_CSV:
		csv_write(winner, reader, out);
		break;
	case WINNER_JSONL:
		jsonl_write(winner, out);
		break;
	}
}
