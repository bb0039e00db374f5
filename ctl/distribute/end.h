/* How the request for a listed user has ended. */
#ifndef CTL_DISTRIBUTE_END_H
#define CTL_DISTRIBUTE_END_H

#include "client/client.h"

enum end {
	END_WAITING, /* not sent yet, or to be sent again */
	END_SENT,
	END_ISSUED,
	END_OUT_OF_STOCK,
	END_ENDED,
	END_LIMIT_REACHED,
	/* what the list has wrong: not sent */
	END_INVALID,
	END_DUPLICATE,
	END_TOO_MANY,
	END_REJECTED, /* for a reason that this program does not know */
#define REASON(name, text) END_REJECTED_##name,
#include "common/message/reason_table.h"
#undef REASON
	ENDS_N
};

/* What an answer means for the request. */
enum verdict {
	VERDICT_FINAL,
	VERDICT_AGAIN, /* not decided, or not known: sent again with the same key */
	VERDICT_STOP   /* no further request can be answered otherwise */
};

/* `*end` is set with VERDICT_FINAL. */
enum verdict end_of_reply(const struct client_reply *reply, enum end *end);

static inline int end_is_final(enum end end)
{
	return end >= END_ISSUED;
}

/*
 * What the file of refused users has: the status, and a sentence. Ends with the same status follow
 * each other.
 */
const char *end_status(enum end end);
const char *end_text(enum end end);

#endif
