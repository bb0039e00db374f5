#include "rush/plan.h"

#include "common/array.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/receive.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS 50
#define CONNECTIONS_MAX 10000
#define OPEN_CONNECTIONS 10000 /* of an open loop, at once */
#define OPEN_CONNECTIONS_MAX 60000
#define DURATION_MAX_S 3600
#define GIVE_UP_S 2
#define GIVE_UP_MAX_S 60
#define RETRIES 3
#define PAUSE_US 1000000 /* the fixed one, and the first that is doubled */
#define SOURCES_MAX 1000
#define PIPELINE 64
#define PIPELINE_MAX 4096
#define TIMEOUT_S 10
#define NAMED_MAX 60 /* bytes of a wrong id that an error shows */
#define USERS_MAX 50000000
/* of a UUID of version 4, in the upper and the lower half */
#define VERSION_4 UINT64_C(0x4000)
#define VARIANT (UINT64_C(1) << 63)
#define WORD UINT64_MAX
#define STEP UINT64_C(0x9e3779b97f4a7c15) /* odd */
#define CHOICE (UINT64_C(1) << 63)        /* keeps choices apart from ids, beyond all seeds */
#define ARRIVAL (UINT64_C(1) << 62)       /* and times */

/* Coupons. */

void rush_coupons_add(struct rush_coupons *coupons, int64_t id)
{
	coupons->list = array_room(coupons->list, coupons->n, &coupons->size, sizeof(id));
	coupons->list[coupons->n++] = id;
}

int64_t rush_coupons_sort(struct rush_coupons *coupons)
{
	qsort(coupons->list, coupons->n, sizeof(*coupons->list), number_compare);
	for (uint32_t i = 1; i < coupons->n; i++)
		if (coupons->list[i] == coupons->list[i - 1])
			return coupons->list[i];
	return 0;
}

int64_t rush_coupons_find(const struct rush_coupons *coupons, int64_t id)
{
	const int64_t *found = bsearch(&id, coupons->list, coupons->n, sizeof(id), number_compare);

	return found ? found - coupons->list : -1;
}

/* Adds an id that `where` has; an error names it. */
static void text_add(struct rush_coupons *coupons, const char *text, size_t len, const char *where)
{
	int64_t id;

	if (id_parse(text, len, &id))
		args_fail("%s is \"%.*s\": allowed is an integer from 1 to 9223372036854775807",
			  where, (int)(len < NAMED_MAX ? len : NAMED_MAX), text);
	if (coupons->n == RUSH_COUPONS_MAX)
		args_fail("%s is one coupon too many: allowed are %d", where, RUSH_COUPONS_MAX);
	rush_coupons_add(coupons, id);
}

void rush_coupons_read(struct rush_coupons *coupons, const struct args *args)
{
	const char *list = args_text(args, "coupon"), *name = args_text(args, "coupons-from");
	int is_stdin = name && strcmp(name, "-") == 0;
	FILE *file = NULL;
	char *line = NULL, where[300];
	int64_t twice;
	size_t room = 0;
	ssize_t len;

	memset(coupons, 0, sizeof(*coupons));
	if (list && name)
		args_fail("--coupon and --coupons-from are both given: allowed is one of them");
	if (name) {
		/* One id a line. Empty lines are skipped. */
		file = is_stdin ? stdin : fopen(name, "r");
		if (is_stdin)
			name = "standard input";
		for (int number = 1; file && (len = getline(&line, &room, file)) >= 0; number++) {
			while (len > 0 && memchr(" \t\r\n", line[len - 1], 4))
				len--;
			snprintf(where, sizeof(where), "--coupons-from: line %d of %.200s", number,
				 name);
			if (len > 0)
				text_add(coupons, line, (size_t)len, where);
		}
		if (!file || ferror(file))
			args_fail("--coupons-from: %s cannot be read: %s", name, strerror(errno));
		free(line);
		if (!is_stdin)
			fclose(file);
		if (coupons->n == 0)
			args_fail("--coupons-from: %s has no coupon", name);
	} else {
		/* ID,ID,… */
		list = args_required(args, "coupon");
		snprintf(where, sizeof(where), "%s",
			 strchr(list, ',') ? "an id of --coupon" : "--coupon");
		for (;; list++) {
			text_add(coupons, list, strcspn(list, ","), where);
			list += strcspn(list, ",");
			if (!*list)
				break;
		}
	}
	twice = rush_coupons_sort(coupons);
	if (twice)
		args_fail("coupon %lld is given twice", (long long)twice);
}

/* Users. */

const char *const rush_forms[] = { "int", "uuid", NULL };

/*
 * The output function of splitmix64 (variant 13 of David Stafford), for numbers of as many bits as
 * `mask` has. Each of its steps can be reversed, at any number of bits: two numbers never have the
 * same result.
 */
static uint64_t mix(uint64_t x, uint64_t mask)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9) & mask;
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb) & mask;
	return x ^ x >> 31;
}

struct user_id rush_users_id(const struct rush_users *users, uint32_t i)
{
	uint64_t number = (uint64_t)users->first + i, random = 0;
	struct user_id user = { .len = RUSH_USER_MAX };
	struct ulid bits;

	/* Another number of 62 bits. Different ones have different results: the factor is odd. */
	if (users->seeded) {
		number = mix((uint64_t)users->seed + 1, WORD) + number * STEP;
		number = mix(number & RUSH_NUMBER_MAX, RUSH_NUMBER_MAX);
	}
	switch (users->form) {
	case RUSH_INT:
		return user_id_of_number((int64_t)(number + (uint64_t)users->seeded));
	case RUSH_UUID:
		if (users->seeded)
			random = mix(number, WORD);
		/* Four bits of the upper half give way to the version. */
		random = htobe64((random & ~UINT64_C(0xf000)) | VERSION_4);
		number = htobe64(number | VARIANT);
		memcpy(bits.bytes, &random, sizeof(random));
		memcpy(bits.bytes + sizeof(random), &number, sizeof(number));
		ulid_to_uuid(&bits, user.text);
		return user;
	}
	return (struct user_id){ .len = 0 };
}

uint32_t rush_users_choice(const struct rush_users *users, uint32_t i, uint32_t choices)
{
	uint64_t number = (uint64_t)users->first + i, start;

	if (choices == 1)
		return 0;
	start = mix((uint64_t)users->seed + CHOICE, WORD);
	return (uint32_t)((mix(start + number * STEP, WORD) >> 32) * choices >> 32);
}

/*
 * The first `needed` codes or receives, from the first column of a file, below its head, if it has
 * one. Too few, or a wrong file, end the process.
 */
static void codes_read(struct rush_plan *plan, const char *path, const char *what, size_t needed)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t size = 0, n = 0;

	if (!file)
		log_fatal("%s cannot be read: %s", path, strerror(errno));
	plan->codes = checked(calloc(needed, sizeof(*plan->codes)));
	for (size_t number = 1; n < needed && getline(&line, &size, file) > 0; number++) {
		size_t len = strcspn(line, ",\r\n");

		if (number == 1 && len == strlen(what) && memcmp(line, what, len) == 0)
			continue;
		if (len == 0 || len > RUSH_CODE_MAX || memchr(line, '"', len) ||
		    memchr(line, '\\', len))
			log_fatal("%s:%zu: not a %s: the file needs one in the first column of "
				  "each line",
				  path, number, what);
		memcpy(plan->codes[n++], line, len);
	}
	free(line);
	fclose(file);
	if (n < needed)
		log_fatal("%s has %zu %ss, but the rush has %zu users", path, n, what, needed);
}

/* The open loop. */

const char *const rush_pauses[] = { "none", "fixed", "exponential", NULL };

void rush_arrivals_init(struct rush_arrivals *arrivals, const struct rush_plan *plan)
{
	*arrivals = (struct rush_arrivals){
		.state = mix((uint64_t)plan->users.seed + ARRIVAL, WORD),
		.gap_us = 1e6 / (double)plan->rate,
	};
}

/* The gaps of a Poisson process have an exponential distribution. */
int64_t rush_arrivals_next(struct rush_arrivals *arrivals)
{
	double random; /* above 0, at most 1 */

	arrivals->state += STEP;
	random = (double)((mix(arrivals->state, WORD) >> 11) + 1) / 0x1p53;
	arrivals->at_us -= log(random) * arrivals->gap_us;
	return (int64_t)arrivals->at_us;
}

int64_t rush_plan_pause_us(const struct rush_plan *plan, uint32_t retry)
{
	switch (plan->open.pause) {
	case RUSH_PAUSE_NONE:
		return 0;
	case RUSH_PAUSE_FIXED:
		return PAUSE_US;
	case RUSH_PAUSE_EXPONENTIAL:
		return (int64_t)PAUSE_US << (retry - 1);
	}
	return 0;
}

static int64_t seconds_read(const struct args *args, const char *name, int64_t most_s,
			    int64_t fallback_s)
{
	int64_t seconds = args_duration_s(args, name, 1, fallback_s);

	if (seconds < 1 || seconds > most_s)
		args_fail("--%s is \"%s\": allowed are 1s to %llds", name, args_text(args, name),
			  (long long)most_s);
	return seconds;
}

/* Ends the process if one of these options, which are of the other loop, is given. */
static void options_refuse(const struct args *args, const char *const *names, const char *why)
{
	for (; *names; names++)
		if (args_has(args, *names))
			args_fail("--%s is given: %s", *names, why);
}

/* Returns how many users come within the duration; 0: there is no open loop. */
static uint32_t open_loop_read(struct rush_plan *plan, const struct args *args)
{
	static const char *const of_closed[] = { "users",    "requests-per-user", "keys",
						 "pipeline", "timeout-s",         NULL };
	static const char *const of_open[] = { "duration", "give-up", "retries", "pause",
					       "http",     "sources", NULL };
	struct rush_open_loop *open = &plan->open;
	struct rush_arrivals arrivals;
	int64_t duration_s;
	uint32_t n = 0;

	if (!args_has(args, "open-loop")) {
		options_refuse(args, of_open, "it needs --open-loop");
		return 0;
	}
	options_refuse(args, of_closed, "it has no effect with --open-loop");
	args_required(args, "rate");
	args_required(args, "duration");
	duration_s = seconds_read(args, "duration", DURATION_MAX_S, 1);
	if (plan->rate * duration_s > USERS_MAX)
		args_fail("--rate is %lld: in %lld s %lld users come, and allowed are %d",
			  (long long)plan->rate, (long long)duration_s,
			  (long long)(plan->rate * duration_s), USERS_MAX);
	*open = (struct rush_open_loop){
		.duration_us = duration_s * 1000000,
		.give_up_us = seconds_read(args, "give-up", GIVE_UP_MAX_S, GIVE_UP_S) * 1000000,
		.retries = (uint32_t)args_number(args, "retries", 0, RUSH_RETRIES_MAX, RETRIES),
		.pause = (enum rush_pause)args_choice(args, "pause", RUSH_PAUSE_NONE),
		.is_http = args_has(args, "http"),
		.sources = (uint32_t)args_number(args, "sources", 1, SOURCES_MAX, 0),
	};
	rush_arrivals_init(&arrivals, plan);
	while (n < USERS_MAX && rush_arrivals_next(&arrivals) < open->duration_us)
		n++;
	if (n == 0)
		args_fail("--duration is \"%s\": no user comes within it",
			  args_text(args, "duration"));
	return n;
}

/* Requests. */

const char *const rush_acks[] = { "accepted", "queued", "issued", "used" };

void rush_plan_read(struct rush_plan *plan, const struct args *args)
{
	static const char *const of_issue[] = { "codes", "ack", NULL };
	struct rush_users *users = &plan->users;
	int is_use = args_has(args, "receives");
	const char *named = is_use ? "receives" : "codes";
	int64_t requests_n, most;
	uint32_t n;

	memset(plan, 0, sizeof(*plan));
	rush_coupons_read(&plan->coupons, args);
	plan->rate = args_number(args, "rate", 1, 10000000, 0);
	users->seed = args_number(args, "user-seed", 0, JSON_INTEGER_MAX, 0);
	n = open_loop_read(plan, args);

	if (n == 0)
		args_required(args, "users");
	users->n = n ? n : (uint32_t)args_number(args, "users", 1, USERS_MAX, 1);
	users->first = args_has(args, "first-user") ? args_id(args, "first-user") : 1;
	users->form = (enum rush_form)args_choice(args, "user-ids", RUSH_INT);
	users->seeded = args_has(args, "user-seed");
	most = users->seeded || users->form == RUSH_UUID ? RUSH_NUMBER_MAX : INT64_MAX;
	if (users->first > most - (users->n - 1))
		args_fail("--first-user is \"%s\": with --users that goes beyond %lld%s",
			  args_text(args, "first-user"), (long long)most,
			  most == INT64_MAX ? "" : ", the last of UUIDs and of a seed");

	/* What each user claims or uses. */
	plan->ack = (enum rush_ack)args_choice(args, "ack", RUSH_ACCEPTED);
	if (is_use) {
		options_refuse(args, of_issue, "it has no effect with --receives");
		plan->ack = RUSH_USED;
	}
	if (args_has(args, named)) {
		if (plan->coupons.n > 1)
			args_fail("--%s allows only one coupon, that of the %s, but %u are given",
				  named, named, (unsigned)plan->coupons.n);
		codes_read(plan, args_text(args, named), is_use ? "receive" : "code", users->n);
	}

	plan->requests_per_user = (uint32_t)args_number(args, "requests-per-user", 1, 1000, 1);
	requests_n = (int64_t)plan->users.n * plan->requests_per_user;
	if (requests_n > RUSH_REQUESTS_MAX)
		args_fail("--requests-per-user is %u: with --users that is %lld requests, and "
			  "allowed are %d",
			  plan->requests_per_user, (long long)requests_n, RUSH_REQUESTS_MAX);
	plan->requests_n = (uint32_t)requests_n;
	plan->keys = n > 0 || args_has(args, "keys");
	plan->connections_n = (uint32_t)args_number(args, "connections", 1,
						    n ? OPEN_CONNECTIONS_MAX : CONNECTIONS_MAX,
						    n ? OPEN_CONNECTIONS : CONNECTIONS);
	plan->pipeline = (uint32_t)args_number(args, "pipeline", 1, PIPELINE_MAX, PIPELINE);
	plan->timeout_us = args_number(args, "timeout-s", 1, 3600, TIMEOUT_S) * 1000000;
	if (plan->connections_n > plan->requests_n)
		plan->connections_n = plan->requests_n;
}

void rush_plan_fini(struct rush_plan *plan)
{
	free(plan->coupons.list);
	free(plan->codes);
}

static const char *op(const struct rush_plan *plan)
{
	if (plan->ack == RUSH_USED)
		return "use";
	return plan->codes ? "claim" : "issue";
}

/* The members of a request; `with_op`: it is a line. Returns their end. */
static char *members_append(const struct rush_plan *plan, uint32_t request, int with_op, char *p)
{
	uint32_t i = rush_plan_user(plan, request);
	struct user_id user = rush_users_id(&plan->users, i);
	int is_use = plan->ack == RUSH_USED;

	p = number_append(text_append(p, "{\"id\":"), request);
	if (with_op)
		p = text_append(text_append(text_append(p, ",\"op\":\""), op(plan)), "\"");
	if (plan->codes) {
		p = text_append(p, is_use ? ",\"receive\":\"" : ",\"code\":\"");
		p = text_append(p, plan->codes[i]);
	} else {
		p = text_append(p, ",\"coupon\":\"");
		p = number_append(p, plan->coupons.list[rush_plan_coupon(plan, i)]);
	}
	p = text_append(text_append(p, "\",\"user\":\""), user.text);
	if (plan->keys) /* of a use: an operation on this receive */
		p = text_append(text_append(p, "\",\"key\":\"rush-"),
				is_use ? plan->codes[i] : user.text);
	if (is_use)
		p = text_append(text_append(p, "\",\"order\":\"rush-"), user.text);
	else if (plan->ack != RUSH_ACCEPTED)
		p = text_append(text_append(p, "\",\"ack\":\""), rush_acks[plan->ack]);
	return text_append(p, "\"}");
}

size_t rush_plan_line(const struct rush_plan *plan, uint32_t request, char *out)
{
	return (size_t)(text_append(members_append(plan, request, 1, out), "\n") - out);
}

size_t rush_plan_http(const struct rush_plan *plan, uint32_t request, const char *fields, char *out)
{
	char body[RUSH_LINE_MAX];
	size_t len = (size_t)(members_append(plan, request, 0, body) - body);
	char *p = text_append(text_append(out, "POST /v1/"), op(plan));

	p = text_append(text_append(p, " HTTP/1.1\r\n"), fields);
	p = text_append(p, "Content-Type: application/json\r\nContent-Length: ");
	p = text_append(number_append(p, (int64_t)len), "\r\n\r\n");
	memcpy(p, body, len);
	return (size_t)(p - out) + len;
}

int64_t rush_plan_due_us(const struct rush_plan *plan, uint32_t request)
{
	return (int64_t)request * 1000000 / plan->rate;
}
