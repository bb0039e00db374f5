#include "gateway/listen/dispatch.h"

#include "common/check.h"
#include "gateway/metrics.h"

#include <stdlib.h>

struct front {
	struct json_arena *arena;
	size_t inflight;
	size_t inflight_max;
	front_dispatch_fn *dispatch;
	void *context;
};

struct front *front_new(size_t inflight_max, front_dispatch_fn *dispatch, void *context)
{
	struct front *front = calloc(1, sizeof(*front));

	check(front != NULL);
	front->arena = json_arena_new();
	front->inflight_max = inflight_max;
	front->dispatch = dispatch;
	front->context = context;
	return front;
}

void front_free(struct front *front)
{
	if (!front)
		return;
	json_arena_free(front->arena);
	free(front);
}

static void request_enter(struct front *front)
{
	front->inflight++;
	metrics_add(METRIC_REQUESTS, 1);
	metrics_set(METRIC_INFLIGHT, (int64_t)front->inflight);
}

void front_request(struct front *front, const char *text, size_t len, enum request_op op,
		   struct responder *responder, int busy)
{
	int over = busy || front->inflight >= front->inflight_max;
	struct request *request;

	request_enter(front);
	request = request_parse(front->arena, text, len, op, responder);
	if (!request)
		return;
	if (over)
		request_fail(request, ANSWER_BUSY, NULL);
	else
		front->dispatch(front->context, request);
}

void front_refuse(struct front *front, struct responder *responder, enum answer answer,
		  const char *message)
{
	request_enter(front);
	responder_fail(responder, "", answer, message);
}

void front_answered(struct front *front, enum answer answer)
{
	check(front->inflight > 0);
	front->inflight--;
	metrics_set(METRIC_INFLIGHT, (int64_t)front->inflight);
	metrics_answer(answer);
}

size_t front_inflight(const struct front *front)
{
	return front->inflight;
}
