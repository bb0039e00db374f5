/* How the request for a listed user has ended. */
#ifndef CTL_DISTRIBUTE_END_H
#define CTL_DISTRIBUTE_END_H

#include "common/message/answer.h"
#include "client/client.h"

#include <stdint.h>

/* Fits into a byte, of which there is one for each listed user. */
enum end {
	END_WAITING, /* not sent yet, or to be sent again */
	END_SENT,
	END_ISSUED,
#define END(name, answer) name,
#define FLAW(name, status, text) name,
#include "ctl/distribute/end_table.h"
#undef FLAW
#undef END
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

/* Its name in the state file; different ends have different names. */
const char *end_name(enum end end);
/* What the file of refused users has: the status, and a sentence. */
const char *end_status(enum end end);
const char *end_text(enum end end);

#endif
