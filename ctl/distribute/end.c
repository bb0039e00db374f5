#include "ctl/distribute/end.h"

#include "common/message/answer.h"

#include <string.h>

/* NULL: as of the answer. */
static const struct {
	enum answer answer;
	const char *status, *text;
} ends[ENDS_N] = {
	[END_ISSUED] = { .status = "issued" },
	[END_OUT_OF_STOCK] = { .answer = ANSWER_OUT_OF_STOCK },
	[END_ENDED] = { .answer = ANSWER_ENDED },
	[END_LIMIT_REACHED] = { .answer = ANSWER_LIMIT_REACHED },
	[END_INVALID] = { .status = "invalid", .text = "the line has no valid user id" },
	[END_DUPLICATE] = { .status = "duplicate", .text = "the user is listed before" },
	[END_TOO_MANY] = { .status = "duplicate",
			   .text = "the user is listed more often than any limit allows" },
	[END_REJECTED] = { .answer = ANSWER_REJECTED },
#define REASON(name, text_) [END_REJECTED_##name] = { .answer = ANSWER_REJECTED, .text = text_ },
#include "common/message/reason_table.h"
#undef REASON
};

const char *end_status(enum end end)
{
	return ends[end].status ? ends[end].status : answer_status(ends[end].answer);
}

const char *end_text(enum end end)
{
	return ends[end].text ? ends[end].text : answer_text(ends[end].answer);
}

static enum end rejected_end(const char *reason)
{
	int end = ENDS_N - 1;

	while (end > END_REJECTED && !(reason && strcmp(reason, ends[end].text) == 0))
		end--;
	/* Redis had lost the key: the user has its coupon, by an earlier request. */
	return end == END_REJECTED_KEY_TAKEN ? END_ISSUED : (enum end)end;
}

enum verdict end_of_reply(const struct client_reply *reply, enum end *end)
{
	switch (answer_from_code(reply->code)) {
	case ANSWER_OK:
		*end = END_ISSUED;
		return VERDICT_FINAL;
	case ANSWER_REJECTED:
		*end = rejected_end(reply->reason);
		return VERDICT_FINAL;
	case ANSWER_OUT_OF_STOCK:
		*end = END_OUT_OF_STOCK;
		return VERDICT_FINAL;
	case ANSWER_ENDED:
		*end = END_ENDED;
		return VERDICT_FINAL;
	case ANSWER_LIMIT_REACHED:
		*end = END_LIMIT_REACHED;
		return VERDICT_FINAL;
	case ANSWER_NOT_STARTED:
	case ANSWER_PAUSED:
	case ANSWER_BUSY:
	case ANSWER_UNAVAILABLE:
	case ANSWER_UNKNOWN:
		return VERDICT_AGAIN;
	case ANSWER_NOT_FOUND:
	case ANSWER_CODE_INVALID:
	case ANSWER_CODE_USED:
	case ANSWER_BAD_REQUEST:
	case ANSWER_UNAUTHORIZED:
	case ANSWER_FORBIDDEN:
	case ANSWER_TOO_LARGE:
	case ANSWER_COUNT:
		break;
	}
	return VERDICT_STOP;
}
