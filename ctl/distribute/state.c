#include "ctl/distribute/state.h"

#include "common/log/log.h"
#include "common/message/json.h"
#include "ctl/file.h"
#include "ctl/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define BYTES_MAX 65536

#define MEMBER(root, name) cJSON_GetObjectItemCaseSensitive(root, name)

static int number_read(const cJSON *root, const char *name, int64_t *number)
{
	return json_integer(MEMBER(root, name), 0, JSON_INTEGER_MAX, number);
}

static int text_read(const cJSON *root, const char *name, char *out, size_t size)
{
	const cJSON *item = MEMBER(root, name);

	if (!cJSON_IsString(item) || strlen(item->valuestring) >= size)
		return -1;
	memcpy(out, item->valuestring, strlen(item->valuestring) + 1);
	return 0;
}

static int counts_read(struct state *state, const cJSON *root)
{
	const cJSON *ends = MEMBER(root, "ends");
	int64_t sum = 0;

	if (!cJSON_IsObject(ends))
		return -1;
	for (int end = END_ISSUED; end < ENDS_N; end++) {
		const char *name = end_name((enum end)end);

		if (MEMBER(ends, name) && number_read(ends, name, &state->counts[end]))
			return -1;
		sum += state->counts[end];
	}
	return sum == state->settled ? 0 : -1;
}

static int state_parse(struct state *state, const cJSON *root)
{
	char print[24], *end;
	const char *error;
	int64_t version, with_repeats;

	memset(state, 0, sizeof(*state));
	if (!cJSON_IsObject(root) || number_read(root, "v", &version) || version != VERSION ||
	    json_id(MEMBER(root, "coupon"), &state->coupon, &error) ||
	    text_read(root, "name", state->name, sizeof(state->name)) ||
	    text_read(root, "list", print, sizeof(print)) ||
	    number_read(root, "users", &state->users) ||
	    number_read(root, "repeats", &with_repeats) ||
	    number_read(root, "settled", &state->settled) ||
	    number_read(root, "refused_bytes", &state->refused_bytes) ||
	    state->settled > state->users || counts_read(state, root))
		return -1;
	state->with_repeats = with_repeats != 0;
	state->print = strtoull(print, &end, 16);
	return *end ? -1 : 0;
}

int state_read(struct state *state, const char *path)
{
	struct json_arena *arena;
	char bytes[BYTES_MAX];
	FILE *file = fopen(path, "re");
	const char *error;
	size_t len;
	int rc;

	if (!file && errno == ENOENT)
		return 0;
	if (!file)
		log_fatal("--state: %s cannot be read: %s", path, strerror(errno));
	len = fread(bytes, 1, sizeof(bytes), file);
	if (ferror(file))
		log_fatal("--state: %s cannot be read: %s", path, strerror(errno));
	fclose(file);
	arena = json_arena_new();
	rc = state_parse(state, json_parse(arena, bytes, len, &error));
	json_arena_free(arena);
	if (rc)
		log_fatal("--state: %s is no state file of couponctl distribute: name another "
			  "file, or begin anew with --again",
			  path);
	return 1;
}

static cJSON *state_object(const struct state *state)
{
	cJSON *root = output_object(), *ends = output_object();
	char print[24];

	snprintf(print, sizeof(print), "%016" PRIx64, state->print);
	output_number(root, "v", VERSION);
	output_id(root, "coupon", state->coupon);
	output_text(root, "name", state->name);
	output_text(root, "list", print);
	output_number(root, "users", state->users);
	output_number(root, "repeats", state->with_repeats);
	output_number(root, "settled", state->settled);
	output_number(root, "refused_bytes", state->refused_bytes);
	for (int end = END_ISSUED; end < ENDS_N; end++)
		if (state->counts[end] > 0)
			output_number(ends, end_name((enum end)end), state->counts[end]);
	output_add(root, "ends", ends);
	return root;
}

void state_write(const struct state *state, const char *path)
{
	cJSON *root = state_object(state);
	char *text = cJSON_PrintUnformatted(root);
	struct file_new file;
	int rc = file_new_begin(&file, path);

	if (rc == 0) {
		fprintf(file.stream, "%s\n", text);
		rc = file_new_end(&file, FILE_REPLACE);
	}
	if (rc)
		log_fatal("--state: %s cannot be written: %s", path, file_error(errno));
	cJSON_free(text);
	cJSON_Delete(root);
}
