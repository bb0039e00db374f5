#include "ctl/distribute/end.h"

#include <string.h>

struct end_row {
	const char *name, *status, *text;
	enum answer answer; /* ANSWER_COUNT: none has this end */
};

static struct end_row row_of(enum end end)
{
	switch (end) {
	case END_WAITING:
		return (struct end_row){ "waiting", "waiting", "", ANSWER_COUNT };
	case END_SENT:
		return (struct end_row){ "sent", "sent", "", ANSWER_COUNT };
	case END_ISSUED:
		return (struct end_row){ "issued", "issued", "", ANSWER_OK };
	case END_REJECTED:
	case ENDS_N:
		break;
#define END(name_, answer_) \
	case name_:         \
		return (struct end_row){ #name_, NULL, NULL, answer_ };
#define FLAW(name_, status_, text_) \
	case name_:                 \
		return (struct end_row){ #name_, status_, text_, ANSWER_COUNT };
#include "ctl/distribute/end_table.h"
#undef FLAW
#undef END
#define REASON(name_, text_)       \
	case END_REJECTED_##name_: \
		return (struct end_row){ "rejected_" text_, NULL, text_, ANSWER_REJECTED };
#include "common/message/reason_table.h"
#undef REASON
	}
	return (struct end_row){ "rejected", NULL, NULL, ANSWER_REJECTED };
}

const char *end_name(enum end end)
{
	return row_of(end).name;
}

const char *end_status(enum end end)
{
	struct end_row row = row_of(end);

	return row.status ? row.status : answer_status(row.answer);
}

const char *end_text(enum end end)
{
	struct end_row row = row_of(end);

	return row.text ? row.text : answer_text(row.answer);
}

static enum end rejected_end(const char *reason)
{
#define REASON(name, text)                       \
	if (reason && strcmp(reason, text) == 0) \
		return END_REJECTED_##name;
#include "common/message/reason_table.h"
#undef REASON
	return END_REJECTED;
}

enum verdict end_of_reply(const struct client_reply *reply, enum end *end)
{
	enum answer answer = answer_from_code(reply->code);

	switch (answer) {
	case ANSWER_OK:
		*end = END_ISSUED;
		return VERDICT_FINAL;
	case ANSWER_REJECTED:
		*end = rejected_end(reply->reason);
		/* Redis had lost the key: the user has its coupon, by an earlier request. */
		if (*end == END_REJECTED_KEY_TAKEN)
			*end = END_ISSUED;
		return VERDICT_FINAL;
#define END(name, answer)    \
	case answer:         \
		*end = name; \
		return VERDICT_FINAL;
#define FLAW(name, status, text)
#include "ctl/distribute/end_table.h"
#undef FLAW
#undef END
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
