#include "gateway/publish/use_requests.h"

#include "common/check.h"
#include "common/fault.h"
#include "common/hash.h"
#include "gateway/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INFLIGHT_PART 4 /* a fourth of what a process may have in flight: the rest is for issuing */

/*
 * Requests for receives of one user and coupon. A worker makes operations on one receive wait for
 * each other, and others in the same transaction with them: so only some are under way.
 */
struct user_requests {
	uint64_t key; /* a hash of coupon and user */
	size_t under_way;
	struct request_list waiting; /* for these; none unless they are UNDER_WAY_MAX */
	UT_hash_handle hh;
};

#define UNDER_WAY_MAX 16

struct use_requests {
	struct use_requests_port port;
	int64_t timeout_ms;
	size_t inflight_max;
	struct waiters *waiters;
	struct request_list arrived;
	size_t waiting; /* requests that are not answered */
	size_t unconfirmed;
	struct batch_rate rate;
	struct user_requests *users;
	struct use_message message; /* that is being made */
	char text[USE_MESSAGE_SIZE];
};

struct use_requests *use_requests_new(const struct use_requests_port *port,
				      const struct config *config, struct waiters *waiters)
{
	struct use_requests *uses = checked(calloc(1, sizeof(*uses)));
	size_t part = (size_t)config->inflight_max / INFLIGHT_PART;

	uses->port = *port;
	uses->timeout_ms = config->issued_timeout_ms;
	uses->inflight_max = part > 0 ? part : 1;
	uses->waiters = waiters;
	STAILQ_INIT(&uses->arrived);
	return uses;
}

void use_requests_free(struct use_requests *uses)
{
	check(uses->waiting == 0 && !uses->users);
	free(uses);
}

/* The users and coupons of the request's receives, each once. Returns how many there are. */
static size_t user_keys(const struct request *request, uint64_t keys[USE_RECEIVES_MAX])
{
	const struct request_use *use = request->use;
	char bytes[sizeof(int64_t) + sizeof(request->user.text)];
	size_t n = 0;

	for (size_t i = 0; i < use->use.receives_n; i++) {
		const struct receive *receive = &use->receives[i];
		size_t same = 0;

		memcpy(bytes, &receive->coupon, sizeof(receive->coupon));
		memcpy(bytes + sizeof(receive->coupon), receive->user.text, receive->user.len);
		keys[n] = hash_keyed(bytes, sizeof(receive->coupon) + receive->user.len);
		while (keys[same] != keys[n])
			same++;
		n += same == n;
	}
	return n;
}

static struct user_requests *user_find(const struct use_requests *uses, uint64_t key)
{
	struct user_requests *user;

	HASH_FIND(hh, uses->users, &key, sizeof(key), user);
	return user;
}

/* Begins the operation, or queues it until there is room. */
static void request_enter(struct use_requests *uses, struct request *request)
{
	uint64_t keys[USE_RECEIVES_MAX];
	size_t n = user_keys(request, keys);
	struct user_requests *user;

	for (size_t i = 0; i < n; i++) {
		user = user_find(uses, keys[i]);
		if (user && user->under_way == UNDER_WAY_MAX) {
			STAILQ_INSERT_TAIL(&user->waiting, request, next);
			return;
		}
	}
	for (size_t i = 0; i < n; i++) {
		user = user_find(uses, keys[i]);
		if (!user) {
			user = checked(calloc(1, sizeof(*user)));
			user->key = keys[i];
			STAILQ_INIT(&user->waiting);
			HASH_ADD(hh, uses->users, key, sizeof(user->key), user);
		}
		user->under_way++;
	}
	STAILQ_INSERT_TAIL(&uses->arrived, request, next);
}

void use_requests_submit(struct use_requests *uses, struct request *request)
{
	const struct request_use *use = request->use;

	/* Each receive must be of the user whom the request names, if it names one. */
	for (size_t i = 0; i < use->use.receives_n && request->user.len > 0; i++) {
		const struct receive *receive = &use->receives[i];

		if (!user_id_same(&receive->user, &request->user)) {
			request_answer_use(request,
					   &(struct use_outcome){ .result = USE_NOT_FOUND,
								  .receive = *receive },
					   1);
			return;
		}
	}
	if (uses->waiting >= uses->inflight_max || uses->unconfirmed >= uses->inflight_max) {
		request_fail(request, ANSWER_BUSY, NULL);
		return;
	}
	uses->waiting++;
	request_enter(uses, request);
}

_Static_assert(OP_USE - OP_HOLD == USE_USE && OP_RELEASE - OP_HOLD == USE_RELEASE &&
		       OP_ROLLBACK - OP_HOLD == USE_ROLLBACK,
	       "the operations are in the order of the actions");

void use_requests_flush(struct use_requests *uses)
{
	struct use_message *message = &uses->message;
	struct request *request;
	struct batch *batch;
	size_t len;

	while (!STAILQ_EMPTY(&uses->arrived)) {
		/* The requests at the front that go in one batch. */
		message->at_ms = uses->port.wall_ms();
		ulid_new(&message->batch, message->at_ms);
		message->uses_n = message->receives_n = message->traces.n = 0;
		while ((request = STAILQ_FIRST(&uses->arrived)) &&
		       message->receives_n + request->use->use.receives_n <= MESSAGE_RECEIVES_MAX) {
			struct use *use;
			struct message_traces *traces;
			char ulid[ULID_SIZE];

			STAILQ_REMOVE_HEAD(&uses->arrived, next);
			waiters_add_use(uses->waiters, request, &message->batch, message->uses_n);

			/* One without a key gets the only one that it can have. */
			use = &message->uses[message->uses_n];
			traces = &message->traces;
			*use = request->use->use;
			use->action = (enum use_action)(request->op - OP_HOLD);
			if (use->action != USE_HOLD)
				use->ttl_s = 0;
			if (!*use->key)
				snprintf(use->key, sizeof(use->key), "%s.%zu",
					 ulid_format(&message->batch, ulid), message->uses_n);
			if (request->by && !*use->by)
				strcpy(use->by, request->by->id);
			if (request->trace_len > 0 && traces->n < MESSAGE_TRACES_MAX) {
				traces->list[traces->n].index = message->uses_n;
				strcpy(traces->list[traces->n++].text, request_trace(request));
			}
			memcpy(&message->receives[message->receives_n], request->use->receives,
			       use->receives_n * sizeof(message->receives[0]));
			message->uses_n++;
			message->receives_n += use->receives_n;
		}

		len = use_message_write(message, uses->text);
		batch = checked(malloc(sizeof(*batch) + len));
		*batch = (struct batch){ .ulid = message->batch,
					 .way = BATCH_USES,
					 .receives = message->receives_n,
					 .wants_outcome = 1,
					 .body_len = len };
		memcpy(batch->body, uses->text, len);

		uses->unconfirmed += batch->receives;
		uses->rate.receives += batch->receives;
		metrics_add(METRIC_USES, (int64_t)message->uses_n);
		fault_point(FAULT_GATEWAY_BEFORE_USES);
		uses->port.publish(uses->port.publisher, batch);
	}
}

void use_requests_answer(struct use_requests *uses, struct request *request,
			 const struct use_outcome *outcomes, size_t n)
{
	int64_t begun_us = (uses->port.now_ms() - uses->timeout_ms) * 1000;
	uint64_t keys[USE_RECEIVES_MAX];
	size_t keys_n = user_keys(request, keys);
	struct request *next;

	uses->waiting--;

	/*
	 * Its operation is no longer under way: others may begin. Those that have waited for others
	 * as long as for a worker are not begun any more.
	 */
	for (size_t i = 0; i < keys_n; i++) {
		struct user_requests *user = user_find(uses, keys[i]);

		user->under_way--;
		while (user->under_way < UNDER_WAY_MAX && (next = STAILQ_FIRST(&user->waiting))) {
			STAILQ_REMOVE_HEAD(&user->waiting, next);
			if (next->begun_us > begun_us) {
				request_enter(uses, next);
				continue;
			}
			uses->waiting--;
			request_fail(next, ANSWER_BUSY, NULL);
		}
		if (user->under_way > 0)
			continue;
		HASH_DEL(uses->users, user);
		free(user);
	}

	if (n > 0)
		request_answer_use(request, outcomes, n);
	else
		request_fail(request, ANSWER_UNKNOWN, NULL);
}

void use_requests_confirmed(struct use_requests *uses, const struct batch *batch)
{
	check(uses->unconfirmed >= batch->receives);
	fault_point(FAULT_GATEWAY_AFTER_USES);
	uses->unconfirmed -= batch->receives;
}

int use_requests_are_full(struct use_requests *uses)
{
	return uses->waiting > 0 && batch_rate_is_full(&uses->rate, uses->port.now_ms());
}

size_t use_requests_waiting(const struct use_requests *uses)
{
	return uses->waiting;
}

size_t use_requests_unconfirmed(const struct use_requests *uses)
{
	return uses->unconfirmed;
}
