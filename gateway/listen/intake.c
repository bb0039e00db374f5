#include "gateway/listen/intake.h"

#include "common/check.h"
#include "gateway/metrics.h"

#include <stdlib.h>

struct intake {
	struct json_arena *arena;
	size_t inflight;
	size_t inflight_max;
	size_t connections;
	size_t connections_max;
	intake_dispatch_fn *dispatch;
	void *context;
};

struct intake *intake_new(const struct config *config, intake_dispatch_fn *dispatch, void *context)
{
	struct intake *intake = calloc(1, sizeof(*intake));

	check(intake != NULL);
	intake->arena = json_arena_new();
	intake->inflight_max = (size_t)config->inflight_max;
	intake->connections_max = (size_t)config->connections_max;
	intake->dispatch = dispatch;
	intake->context = context;
	return intake;
}

void intake_free(struct intake *intake)
{
	if (!intake)
		return;
	json_arena_free(intake->arena);
	free(intake);
}

static void request_enter(struct intake *intake)
{
	intake->inflight++;
	metrics_add(METRIC_REQUESTS, 1);
	metrics_set(METRIC_INFLIGHT, (int64_t)intake->inflight);
}

void intake_request(struct intake *intake, const char *text, size_t len, enum request_op op,
		    struct responder *responder)
{
	int over = intake->inflight >= intake->inflight_max;
	struct request *request;

	request_enter(intake);
	request = request_parse(intake->arena, text, len, op, responder);
	if (!request)
		return;
	if (over)
		request_fail(request, ANSWER_BUSY, NULL);
	else
		intake->dispatch(intake->context, request);
}

void intake_refuse(struct intake *intake, struct responder *responder, enum answer answer,
		   const char *message)
{
	request_enter(intake);
	responder_fail(responder, "", answer, message);
}

int intake_connection_open(struct intake *intake)
{
	if (intake->connections >= intake->connections_max)
		return -1;
	intake->connections++;
	return 0;
}

void intake_connection_close(struct intake *intake)
{
	check(intake->connections > 0);
	intake->connections--;
}

void intake_answered(struct intake *intake, enum answer answer)
{
	check(intake->inflight > 0);
	intake->inflight--;
	metrics_set(METRIC_INFLIGHT, (int64_t)intake->inflight);
	metrics_answer(answer);
}

size_t intake_inflight(const struct intake *intake)
{
	return intake->inflight;
}
