/* Requests of clients, as they are parsed, and their replies. */
#pragma once

#include "common/api_keys.h"
#include "common/message/answer.h"
#include "common/message/json.h"
#include "common/message/receive.h"
#include "common/message/use.h"
#include "gateway/auth/token.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct request;

/* The caller: an API key, the user of a token, or unknown. Changed by auth.h only. */
struct identity {
	struct key_grant grant;    /* .key NULL: no key */
	const struct token *token; /* held; NULL: none */
	int is_needed;             /* nobody that is known may do nothing */
};

void identity_forget(struct identity *identity);
/*
 * Whether it may know of this coupon: also of one that is found only later, by a code. By then a
 * connection may have presented something else.
 */
int identity_has_coupon(const struct identity *identity, int64_t coupon);

/*
 * The destination of replies: a connection of the socket API or an HTTP exchange. It does not
 * depend on requests, because a line that cannot be parsed is answered too. Embedded by its
 * implementations.
 */
struct responder {
	/*
	 * Takes one reply line (without its end) and counts the request as answered. `request` is
	 * NULL where it could not be parsed.
	 */
	void (*reply)(struct responder *responder, const struct request *request,
		      enum answer answer, const char *line, size_t len);
	/* What the request has beside its object, until it is parsed; or NULL. */
	const char *key;
	const char *trace;         /* trace_context_format(), or empty */
	const char *name;          /* X-Request-Id */
	uint64_t peer;             /* whose connection it is (arrival.h) */
	int is_local;              /* of this machine */
	int has_left;              /* it sends no more, and may have gone */
	int64_t left_waited_ms;    /* so long it had waited before it was first read from */
	struct identity identity;  /* who asks (auth.h) */
	int64_t codes_wrong_by_us; /* attempts.h */
};

/* Replies with this line, of answer.h, and frees it. */
void responder_line(struct responder *responder, const struct request *request, enum answer answer,
		    char *line);

#define REQUEST_ID_STRING_MAX 64                        /* bytes of a request's id */
#define REQUEST_ID_SIZE (6 * REQUEST_ID_STRING_MAX + 8) /* the same as JSON, every byte escaped */

enum request_op {
#define OP(name, text, reads, cost) name,
#include "gateway/listen/op_table.h"
#undef OP
	OP_COUNT
};

/* The step that the client waits for. */
enum request_ack { ACK_ACCEPTED, ACK_QUEUED, ACK_ISSUED };

#define REQUEST_PAGE_MAX 100
#define REQUEST_PAGE_DEFAULT 20

#define REQUEST_WITHIN_DEFAULT_S (7 * 86400) /* when what is on offer begins at the latest */
#define REQUEST_WITHIN_MAX 999999999         /* before its unit */
#define REQUEST_CODE_MAX 128                 /* bytes of an exchange code as the client writes it */
/* Bytes of which code it is, as lua/issue.lua takes it: with its end, if that is its own. */
#define REQUEST_CODE_FOUND_MAX (RECEIVE_CODE_MAX + 1 + 20)

/*
 * A cursor: the place in a user's coupons, newest first, at which the next page begins; or that in
 * the offers, whose time is their begin and whose slot is 1. Clients see it as a text of 54
 * hexadecimal digits and make nothing of it.
 *
 *	version 1 | time 8 | coupon 8 | slot 2 | check 8	bytes, the highest first
 *
 * The check is a hash of the user and of the bytes before it: it finds a text that is damaged or
 * belongs to another user. It is no secret, because a cursor gives no rights.
 */

#define COUPON_CURSOR_LEN 54
#define COUPON_CURSOR_SIZE (COUPON_CURSOR_LEN + 1)

/* The last coupon before it. */
struct coupon_cursor {
	int64_t at_us;  /* the time of its receive: microseconds since 1970 */
	int64_t coupon; /* 1 or more */
	int slot;       /* 1 to RECEIVE_SLOT_MAX */
};

/* Writes the text with its NUL; returns `out`. */
char *coupon_cursor_format(const struct coupon_cursor *cursor, const struct user_id *user,
			   char out[COUPON_CURSOR_SIZE]);

/* Parses exactly `len` bytes. 0, or -1 unless coupon_cursor_format() wrote them for this user. */
int coupon_cursor_parse(struct coupon_cursor *cursor, const struct user_id *user, const char *text,
			size_t len);

/* The page that the client wants. */
struct request_page {
	int limit;        /* 1 to REQUEST_PAGE_MAX */
	int is_usable;    /* only coupons that an order could use now */
	int64_t within_s; /* OP_OFFERS: those that begin so soon */
	int is_next;      /* of the first page there is no `after` */
	struct coupon_cursor after;
};

/* What an order asks for; OP_QUOTE has only an amount and a currency. */
struct request_use {
	struct use use; /* without its action */
	struct receive receives[];
};

struct request {
	STAILQ_ENTRY(request) next; /* for the part that holds the request */
	struct responder *responder;
	enum request_op op;
	enum request_ack ack;
	int by_receive; /* of one that it names, not of all or any of a user */
	int names_many; /* an order names receives in an array, and so does the answer */
	int64_t coupon;
	struct user_id user; /* of OP_HOLD to OP_ROLLBACK: who must have them; empty: anybody */
	struct receive receive;
	struct request_page page; /* OP_COUPONS and OP_OFFERS */
	struct request_use *use;  /* OP_HOLD to OP_QUOTE, behind the text; else NULL */
	int64_t begun_us;         /* monotonic */
	const struct api_key *by; /* NULL: no key */
	size_t id_len;            /* 0: the request had none */
	size_t key_len;           /* 0: none */
	size_t trace_len;         /* 0: nothing is handed on of its caller's tracing */
	int is_used;              /* OP_CODE: the code was used when it was imported */
	size_t code_len;          /* OP_CLAIM; OP_AUTH: what is presented; OP_OFFERS: the tag */
	char text[];              /* the id as JSON, key, trace, code, each with a NUL */
};

STAILQ_HEAD(request_list, request);

const char *request_key(const struct request *request);
const char *request_trace(const struct request *request);
/* The code as the client wrote it, until request_code_set() replaces it. */
const char *request_code(const struct request *request);
/*
 * Which code it is (receive_code_valid()), and until when it can be claimed (ms; 0: as long as the
 * campaign). Its coupon is then that of the request.
 */
void request_code_set(struct request *request, const char *code, int64_t end_ms);
/* What was set: writes the code, and returns its end. */
int64_t request_code_found(const struct request *request, char code[RECEIVE_CODE_MAX + 1]);

extern const char *const request_ack_names[]; /* by enum request_ack */

/*
 * Whether its client has left, and the request has waited for a second, so that the client has
 * probably given up. Such a request is not begun. It is answered busy, because the client may only
 * have closed its own side.
 */
int request_is_abandoned(const struct request *request, int64_t now_us);

/*
 * Parses a request's object. `op` is OP_COUNT when the object itself must name it (socket), else
 * the operation that the path named (HTTP). The responder's key, which is valid, is another
 * spelling of the member; operations without that member do not look at it. Returns the new
 * request, or NULL after the error was sent to the responder (which counts it as answered).
 */
struct request *request_parse(struct json_arena *arena, const char *text, size_t len,
			      enum request_op op, struct responder *responder);

/*
 * Replies: the line that goes to the responder. Each request is answered exactly once, by one of
 * these functions, which also free it.
 */

/* The fields of the answer to an issue, beside its code. */
struct result {
	enum answer answer;
	enum request_ack reached; /* ANSWER_OK: accepted, queued or issued */
	int slot;                 /* 0: the answer names no receive */
	int is_replayed;          /* the receive is of an earlier request with this key or code */
	struct receive receive;
	const char *reason; /* ANSWER_REJECTED */
};

/* Answers an issue. */
void request_answer(struct request *request, const struct result *result);
/* Answers a use: an outcome for each of its receives. */
void request_answer_use(struct request *request, const struct use_outcome *outcomes, size_t n);
/* Answers with a code and a sentence; NULL: the code's own text. */
void request_fail(struct request *request, enum answer answer, const char *message);
/* Answers with a code, a sentence and retry_after_ms; `wait_ms` is at least 1. */
void request_fail_wait(struct request *request, enum answer answer, int64_t wait_ms,
		       const char *message);
/*
 * Answers with id, code, status (NULL: the answer's own) and the members of `object`. Takes the
 * object.
 */
void request_answer_object(struct request *request, enum answer answer, const char *status,
			   cJSON *object);

struct request_operation {
	const char *name;
	int reads; /* changes nothing, so that HTTP allows GET */
	int cost;  /* intake.h */
};

extern const struct request_operation request_operations[OP_COUNT];

/* The operation of this name, or OP_COUNT. */
enum request_op request_op_find(const char *name);
