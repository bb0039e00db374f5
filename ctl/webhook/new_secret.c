#include "ctl/webhook/new_secret.h"

#include "ctl/output.h"
#include "embed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void file_read(char text[SECRET_TEXT_SIZE], const char *path)
{
	char line[SECRET_TEXT_SIZE + 2];
	struct secret secret;
	FILE *file = fopen(path, "re");

	if (!file)
		args_fail("--secret-file is \"%s\": the file cannot be read: %s", path,
			  strerror(errno));
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\r\n")] = '\0';
	if (secret_parse(&secret, line, strlen(line)))
		args_fail("--secret-file is \"%s\": its first line is no secret; allowed "
			  "is " SECRET_PREFIX " and %d to %d bytes in base64",
			  path, SECRET_BYTES_LEAST, SECRET_BYTES_MOST);
	snprintf(text, SECRET_TEXT_SIZE, "%.*s", SECRET_TEXT_SIZE - 1, line);
}

void new_secret_get(struct new_secret *secret, const struct args *args)
{
	const char *path = args_text(args, "secret-file");

	secret->is_made = !path;
	if (path)
		file_read(secret->text, path);
	else
		secret_make(secret->text);
}

int new_secret_store(struct db *db, int64_t webhook, const struct new_secret *secret,
		     int64_t overlap_s)
{
	char id[DB_NUMBER_SIZE], seconds[DB_NUMBER_SIZE];
	PGresult *row = db_query(db, sql_query_webhook_secret_add, 3,
				 (const char *[]){ db_number(webhook, id), secret->text,
						   db_number(overlap_s, seconds) });
	int is_stored = PQntuples(row) > 0;

	PQclear(row);
	return is_stored ? 0 : -1;
}

void new_secret_print(int64_t webhook, const struct new_secret *secret, int as_json)
{
	cJSON *object;

	if (!as_json) {
		printf("webhook %" PRId64 "\n", webhook);
		if (secret->is_made)
			printf("secret %s\n", secret->text);
		return;
	}
	object = output_object();
	output_id(object, "webhook", webhook);
	output_text(object, "secret", secret->is_made ? secret->text : "");
	output_print(object);
}
