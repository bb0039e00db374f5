/*
 * The ways with couponmq.
 *
 * 10. couponmq, over its socket API: a connection carries many clients, and replies come in the
 * order of completion. The answer says that the receive is recorded (ack=accepted), or that it is
 * committed (ack=issued).
 */
#include "compare/way.h"

#include "common/check.h"
#include "common/message/answer.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
	output = checked(popen(command, "r"));
	if (!fgets(line, sizeof(line), output))
		line[0] = '\0';
	if (pclose(output))
		store_fail("couponctl", words, "failed");
	return strtoll(line, NULL, 10);
}

/* A coupon for each item. */
static void prepare(struct seller *seller)
{
	struct market *market = seller->market;
	char words[LINE_SIZE];

	for (int item = 1; item <= market->items + 1; item++) {
		snprintf(words, sizeof(words), "create --name compare --total %d --valid-days 30",
			 market->stock);
		market->coupons[item] = ctl(words);
		snprintf(words, sizeof(words), "publish %lld", (long long)market->coupons[item]);
		ctl(words);
	}
}

static void ask(struct seller *seller, const struct sale_asked *asked)
{
	if (!seller->gateway_out) {
		const char *address = seller->market->gateway, *colon = strrchr(address, ':');
		struct addrinfo *found, hints = { .ai_socktype = SOCK_STREAM };
		char host[256];
		int fd;

		if (!colon || colon - address >= (long)sizeof(host))
			store_fail("gateway", "COUPON_LISTEN", address);
		snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
		if (getaddrinfo(host, colon + 1, &hints, &found))
			store_fail("gateway", "resolve", address);
		fd = socket(found->ai_family, SOCK_STREAM, 0);
		if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen))
			store_fail("gateway", "connect", address);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
		freeaddrinfo(found);
		seller->gateway_in = checked(fdopen(fd, "r"));
		seller->gateway_out = checked(fdopen(dup(fd), "w"));
	}
	fprintf(seller->gateway_out,
		"{\"id\":%d,\"op\":\"issue\",\"coupon\":\"%lld\",\"user\":%d,\"ack\":\"%s\"}\n",
		asked->number, (long long)seller->market->coupons[asked->request->item],
		asked->request->user, seller->way->ack);
}

static void flush(struct seller *seller)
{
	fflush(seller->gateway_out);
}

/* A reply begins with the id of its request, and the code. */
static enum sale_outcome answer(struct seller *seller, struct sale_asked *asked)
{
	char line[LINE_SIZE], *end;
	long code;

	if (!fgets_unlocked(line, sizeof(line), seller->gateway_in))
		store_fail("gateway", "reply", "the connection is lost");
	asked->number = (int)strtol(line + strlen("{\"id\":"), &end, 10);
	code = strtol(end + strlen(",\"code\":"), &end, 10);
	check(*end == ',');
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

/* couponmq's workers are processes of their own: this looks at what they have committed. */
static void watch(struct seller *seller, struct sales *sales)
{
	long long seen = 0;

	while (!sales_are_over(sales, seen)) {
		long long now = 0;

		for (int item = 1; item <= seller->market->items; item++)
			now += sql(seller, "SELECT issued_num FROM public.coupon WHERE id = $1",
				   (long long)seller->market->coupons[item]);
		if (now > seen)
			sales_committed(sales);
		seen = now;
		poll(NULL, 0, LOOK_MS);
	}
}

const struct way ways_couponmq[] = {
	{
		.id = "10a",
		.name = "couponmq, ack=accepted",
		.ledger = IN_COUPONMQ,
		.is_batch = 1,
		.prepare = prepare,
		.ask = ask,
		.ack = "accepted",
		.flush = flush,
		.answer = answer,
		.watch = watch,
	},
	{
		.id = "10b",
		.name = "couponmq, ack=issued",
		.ledger = IN_COUPONMQ,
		.is_batch = 1,
		.prepare = prepare,
		.ask = ask,
		.ack = "issued",
		.flush = flush,
		.answer = answer,
		.watch = watch,
	},
	{ 0 },
};
