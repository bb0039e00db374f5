#include "ctl/distribute/state.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "ctl/file.h"
#include "ctl/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

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

static int object_read(struct state *state, const cJSON *root)
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

int state_parse(struct state *state, const char *text, size_t len)
{
	struct json_arena *arena = json_arena_new();
	const char *error;
	int rc = object_read(state, json_parse(arena, text, len, &error));

	json_arena_free(arena);
	return rc;
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

char *state_text(const struct state *state)
{
	cJSON *root = state_object(state);
	char *text = cJSON_PrintUnformatted(root);

	check(text != NULL);
	cJSON_Delete(root);
	return text;
}

_Noreturn static void failed(const char *path, const char *what, int error)
{
	log_fatal("--state: %s cannot be %s: %s", path, what,
		  error == EWOULDBLOCK ? "another couponctl distribute is writing it"
				       : file_error(error));
}

void state_open(struct state_file *file, const char *path)
{
	*file = (struct state_file){ .path = path, .fd = -1 };
	for (;;) {
		file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (file->fd < 0 && errno == ENOENT)
			return;
		if (file->fd < 0)
			failed(path, "read", errno);
		if (flock(file->fd, LOCK_EX | LOCK_NB))
			failed(path, "written", errno);
		if (file_has_name(file->fd, path))
			return;
		close(file->fd);
	}
}

int state_read(const struct state_file *file, struct state *state)
{
	char bytes[BYTES_MAX];
	size_t len = 0;
	ssize_t n;

	if (file->fd < 0)
		return 0;
	while ((n = read(file->fd, bytes + len, sizeof(bytes) - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		failed(file->path, "read", errno);
	if (state_parse(state, bytes, len))
		log_fatal("--state: %s is no state file of couponctl distribute: name another "
			  "file, or begin anew with --again",
			  file->path);
	return 1;
}

/* The new file is locked before it gets the name, and the one before it until then. */
void state_write(struct state_file *file, const struct state *state)
{
	char *text = state_text(state);
	struct file_new new;
	int fd = -1;

	if (file_new_begin(&new, file->path))
		failed(file->path, "written", errno);
	fprintf(new.stream, "%s\n", text);
	fd = fcntl(fileno(new.stream), F_DUPFD_CLOEXEC, 0);
	check(fd >= 0);
	if (file_new_end(&new, file->fd < 0 ? FILE_KEEP : FILE_REPLACE))
		failed(file->path, "written", errno);
	state_close(file);
	file->fd = fd;
	cJSON_free(text);
}

void state_close(struct state_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}
