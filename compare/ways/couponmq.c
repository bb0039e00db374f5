/*
 * 10. couponmq, over its socket API: a connection carries many clients, and replies come in the
 * order of completion. The answer says that the receive is recorded (ack=accepted), or that it is
 * committed (ack=issued).
 */
#include "compare/way.h"

#include "common/check.h"
#include "common/message/answer.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_SIZE 512
#define LOOK_MS 2 /* so much later than it was, at most, a COMMIT is seen */

/* The operator's tool, which is beside this program. Returns the number that it prints. */
static long long ctl(const char *words)
{
	char program[512], command[1024], line[LINE_SIZE] = "";
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
	FILE *output;

	check(len > 0);
	program[len] = '\0';
	*strrchr(program, '/') = '\0';
	snprintf(command, sizeof(command), "%s/couponctl %s", program, words);
	output = popen(command, "r");
	check(output != NULL);
	if (!fgets(line, sizeof(line), output))
		line[0] = '\0';
	if (pclose(output))
		client_fail("couponctl", words, "failed");
	return strtoll(line, NULL, 10);
}

/* A coupon for each item. */
static void prepare(struct client *client)
{
	struct market *market = client->market;
	char words[LINE_SIZE];

	for (int item = 1; item <= market->items; item++) {
		snprintf(words, sizeof(words), "create --name compare --total %d --valid-days 30",
			 market->stock);
		market->coupons[item] = ctl(words);
		snprintf(words, sizeof(words), "publish %lld", (long long)market->coupons[item]);
		ctl(words);
	}
}

static long long issued(struct client *client)
{
	long long n = 0;

	for (int item = 1; item <= client->market->items; item++)
		n += sql(client, "SELECT issued_num FROM public.coupon WHERE id = $1",
			 (long long)client->market->coupons[item]);
	return n;
}

/* Also with a connection to PostgreSQL, for watch(). */
static void open_both(struct client *client)
{
	gateway_open(client);
	issued(client);
}

static enum outcome outcome_of(int code)
{
	switch (code) {
	case ANSWER_OK:
		return SOLD;
	case ANSWER_OUT_OF_STOCK:
		return SOLD_OUT;
	case ANSWER_LIMIT_REACHED:
		return HAS_ONE;
	default:
		return FAILED;
	}
}

/* One request line, if there is another request. 1, or 0. */
static int ask(struct client *client, struct load *load, const char *ack)
{
	int number;
	const struct request *request = load_next(load, &number);

	if (!request)
		return 0;
	fprintf(client->gateway_out,
		"{\"id\":%d,\"op\":\"issue\",\"coupon\":\"%lld\",\"user\":%d,\"ack\":\"%s\"}\n",
		number, (long long)client->market->coupons[request->item], request->user, ack);
	return 1;
}

/* A reply begins with the id of its request, and the code. */
static void answer(struct client *client, struct load *load)
{
	char line[LINE_SIZE], *end;
	long number, code;

	if (!fgets_unlocked(line, sizeof(line), client->gateway_in))
		client_fail("gateway", "reply", "the connection is lost");
	number = strtol(line + strlen("{\"id\":"), &end, 10);
	code = strtol(end + strlen(",\"code\":"), &end, 10);
	check(*end == ',');
	load_answer(load, (int)number, outcome_of((int)code));
}

/* As many requests in flight as the connection carries clients; sent by the quarter. */
static void serve(struct client *client, struct load *load, const char *ack)
{
	int window = load_window(load), in_flight = 0, unsent = 0;

	while (in_flight < window && ask(client, load, ack))
		in_flight++;
	fflush(client->gateway_out);
	for (; in_flight > 0; in_flight--) {
		int is_asked;

		answer(client, load);
		is_asked = ask(client, load, ack);
		in_flight += is_asked;
		unsent += is_asked;
		if (is_asked && unsent < window / 4)
			continue;
		fflush(client->gateway_out);
		unsent = 0;
	}
}

static void serve_accepted(struct client *client, struct load *load)
{
	serve(client, load, "accepted");
}

static void serve_issued(struct client *client, struct load *load)
{
	serve(client, load, "issued");
}

/* couponmq's workers are processes of their own: this looks at what they have committed. */
static void watch(struct client *client, struct load *load)
{
	long long seen = 0;

	while (!load_is_over(load) || seen < load_sold(load)) {
		long long now = issued(client);

		if (now > seen)
			load_committed(load);
		seen = now;
		poll(NULL, 0, LOOK_MS);
	}
}

const struct way way_couponmq_accepted = {
	.id = "10a",
	.name = "couponmq, ack=accepted",
	.ledger = IN_COUPONMQ,
	.is_batch = 1,
	.prepare = prepare,
	.open = open_both,
	.serve = serve_accepted,
	.watch = watch,
};
const struct way way_couponmq_issued = {
	.id = "10b",
	.name = "couponmq, ack=issued",
	.ledger = IN_COUPONMQ,
	.is_batch = 1,
	.prepare = prepare,
	.open = open_both,
	.serve = serve_issued,
	.watch = watch,
};
