/* couponctl issue, status: one question over the gateway's socket API. */
#include "common/answer.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/receive.h"
#include "ctl/ctl.h"
#include "ctl/output.h"
#include "ctl/gateway.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_MS 15000 /* longer than the gateway's own deadlines */
#define ANSWER_MAX (1 << 20)

struct line {
	char *bytes; /* ANSWER_MAX */
	size_t len;
};

/* Waits until the socket is ready for `events`; 0, or an errno. */
static int ready_wait(int fd, short events, int64_t deadline_ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };
	int64_t left_ms = deadline_ms - clock_monotonic_ms();
	int n;

	do
		n = poll(&poll_fd, 1, left_ms > 0 ? (int)left_ms : 0);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : n < 0 ? errno : ETIMEDOUT;
}

static int all_send(int fd, const char *bytes, size_t len, int64_t deadline_ms)
{
	while (len > 0) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		} else if (errno != EAGAIN && errno != EINTR) {
			return errno;
		} else if (ready_wait(fd, POLLOUT, deadline_ms)) {
			return ETIMEDOUT;
		}
	}
	return 0;
}

/* One line, without its end. 0, or an errno. */
static int line_receive(int fd, struct line *line, int64_t deadline_ms)
{
	for (;;) {
		char *stop = memchr(line->bytes, '\n', line->len);
		ssize_t n;
		int rc;

		if (stop) {
			line->len = (size_t)(stop - line->bytes);
			return 0;
		}
		if (line->len == ANSWER_MAX)
			return EMSGSIZE;
		rc = ready_wait(fd, POLLIN, deadline_ms);
		if (rc)
			return rc;
		n = recv(fd, line->bytes + line->len, ANSWER_MAX - line->len, 0);
		if (n == 0)
			return ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return errno;
		if (n > 0)
			line->len += (size_t)n;
	}
}

/* Sends the request and receives the answer; whatever fails ends the process. */
static void exchange(const struct ctl *ctl, const char *request, struct line *answer)
{
	int64_t deadline_ms = clock_monotonic_ms() + ANSWER_TIMEOUT_MS;
	struct gateway_address address;
	int fd, error;

	gateway_address_read(&address, "COUPON_LISTEN", ctl->config.listen);
	fd = gateway_connect(&address);
	error = fd < 0 ? errno : ready_wait(fd, POLLOUT, deadline_ms);
	if (!error)
		error = gateway_connect_error(fd);
	if (error)
		log_fatal("the gateway, which COUPON_LISTEN names as %s, cannot be reached: %s",
			  ctl->config.listen, strerror(error));
	error = all_send(fd, request, strlen(request), deadline_ms);
	if (!error)
		error = all_send(fd, "\n", 1, deadline_ms);
	if (!error)
		error = line_receive(fd, answer, deadline_ms);
	if (error)
		log_fatal("the gateway gave no answer, and the outcome is unknown: %s",
			  strerror(error));
	close(fd);
}

static void answer_print(const cJSON *answer, int depth)
{
	for (const cJSON *item = answer->child; item; item = item->next) {
		const char *name = item->string ? item->string : "-";

		if (cJSON_IsString(item))
			printf("%*s%-10s %s\n", depth, "", name, item->valuestring);
		else if (cJSON_IsNumber(item))
			printf("%*s%-10s %.0f\n", depth, "", name, item->valuedouble);
		else if (cJSON_IsBool(item))
			printf("%*s%-10s %s\n", depth, "", name,
			       cJSON_IsTrue(item) ? "true" : "false");
		else if (cJSON_IsArray(item) || cJSON_IsObject(item)) {
			printf("%*s%s\n", depth, "", name);
			answer_print(item, depth + 2);
		}
	}
}

/* Asks, prints the answer and frees the request. Returns the exit status. */
static int ask(struct ctl *ctl, cJSON *request)
{
	char *text = cJSON_PrintUnformatted(request);
	struct json_arena *arena = json_arena_new();
	struct line answer = { malloc(ANSWER_MAX), 0 };
	const char *error;
	const cJSON *root;
	int64_t code;

	check(text != NULL && answer.bytes != NULL);
	exchange(ctl, text, &answer);
	root = json_parse(arena, answer.bytes, answer.len, &error);
	if (!root ||
	    json_integer(cJSON_GetObjectItemCaseSensitive(root, "code"), 0, INT32_MAX, &code))
		log_fatal("the gateway's answer has no code: %.*s", (int)answer.len, answer.bytes);
	if (args_has(&ctl->args, "json"))
		printf("%.*s\n", (int)answer.len, answer.bytes);
	else
		answer_print(root, 0);
	free(answer.bytes);
	json_arena_free(arena);
	cJSON_free(text);
	cJSON_Delete(request);
	return code == answer_code(ANSWER_OK) ? 0 : 1;
}

/* The option is an id: it goes out as a string. */
static void id_add(cJSON *request, const struct args *args, const char *name)
{
	args_required(args, name);
	args_id(args, name);
	output_text(request, name, args_text(args, name));
}

static int issue_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *key = args_text(args, "key"), *ack = args_text(args, "ack");
	cJSON *request = output_object();

	output_text(request, "op", "issue");
	id_add(request, args, "coupon");
	id_add(request, args, "user");
	if (key && !receive_key_valid(key, strlen(key)))
		args_fail("--key is \"%s\": allowed are 1 to %d bytes of printable ASCII", key,
			  RECEIVE_KEY_MAX);
	if (key)
		output_text(request, "key", key);
	if (ack && strcmp(ack, "accepted") != 0 && strcmp(ack, "queued") != 0 &&
	    strcmp(ack, "issued") != 0)
		args_fail("--ack is \"%s\": allowed are accepted, queued and issued", ack);
	if (ack)
		output_text(request, "ack", ack);
	return ask(ctl, request);
}

static int status_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	cJSON *request = output_object();
	struct receive receive;

	output_text(request, "op", "status");
	if (args->argument && (args_has(args, "coupon") || args_has(args, "user")))
		args_fail("status takes a RECEIVE, or --coupon and --user, not both");
	if (args->argument) {
		if (receive_parse(&receive, args->argument, strlen(args->argument)))
			args_fail("RECEIVE is \"%s\": allowed is <coupon>.<user>.<batch>.<index>, "
				  "as it was answered",
				  args->argument);
		output_text(request, "receive", args->argument);
	} else {
		id_add(request, args, "coupon");
		id_add(request, args, "user");
	}
	return ask(ctl, request);
}

static const struct option issue_options[] = {
	{ "coupon", "ID", "the coupon" },
	{ "user", "ID", "the user" },
	{ "key", "KEY", "idempotency key: the same key gives the same receive again" },
	{ "ack", "LEVEL", "wait until accepted (default), queued or issued" },
	{ "json", NULL, "print the answer as it came" },
	{ NULL, NULL, NULL },
};

static const struct option status_options[] = {
	{ "coupon", "ID", "instead of a receive: all that" },
	{ "user", "ID", "this user has of this coupon" },
	{ "json", NULL, "print the answer as it came" },
	{ NULL, NULL, NULL },
};

const struct command issue_command = {
	.name = "issue",
	.run = issue_run,
	.options = issue_options,
	.summary = "ask for a coupon for a user",
	.detail = "Needs --coupon and --user. Over the gateway's socket, COUPON_LISTEN. Exit "
		  "status 0 only for code 0.",
};

const struct command status_command = {
	.name = "status",
	.run = status_run,
	.argument = "[RECEIVE]",
	.options = status_options,
	.summary = "ask what became of a receive, or of a user's receives",
	.detail = "Over the gateway's socket, COUPON_LISTEN. Exit status 0 only for code 0.",
};
