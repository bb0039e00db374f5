/*
 * A session of PostgreSQL: connects, prepares its statement, and runs one statement at a time. A
 * loop calls postgres_step() when the socket is ready or the deadline has passed. A thread that may
 * wait uses postgres_open() and the queries below it. One thread.
 *
 *	     connect               SET             PREPARE            send()
 *	DOWN ───────▶ CONNECTING ──────▶ SETTING ─────────▶ PREPARING ──────▶ IDLE ◀─────▶ BUSY
 *	  ▲               │   ▲             │ a pooler          │               │ ended      │
 *	  │               │   └────────── PROBING               │               │            │
 *	  └───────────────┴─ any loss, any missed deadline, postgres_lose() ────┴────────────┘
 *
 * A synchronous session is CHECKING before PREPARING: whether a standby is waited for. Each of its
 * statements is BUSY until its COMMIT is judged.
 */
#pragma once

#include "common/postgres/argument.h"

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What the failure of a statement means: of the coupons in it, or of the session. In each case but
 * DOWN the session is good, and the statement did nothing.
 */
enum postgres_failure {
	POSTGRES_OK,
	/* These concern single coupons: postgres_of_coupon(). */
	POSTGRES_BLOCKED,   /* 55P03: a lock was not granted within lock_timeout */
	POSTGRES_CANCELLED, /* 57014: by statement_timeout, or by an operator */
	POSTGRES_REFUSED,   /* classes 22 and 23: the data is refused, also when sent again */
	POSTGRES_AGAIN,     /* 40001, 40P01: another transaction was in the way */
	/*
	 * It concerns the session; any other error: a full disk, for instance, or a schema that is
	 * not as expected.
	 */
	POSTGRES_UNFIT,
	POSTGRES_DOWN /* there is no session; whether the statement took effect is unknown */
};

/*
 * The error of a session that is lost because the COMMIT of its statement was cancelled while it
 * waited for a synchronous standby: the server reports success, with a warning.
 */
#define POSTGRES_IN_DOUBT_TEXT                                                                 \
	"the COMMIT was cancelled while it waited for a synchronous standby: this server has " \
	"it, and whether it survives the loss of this server is unknown"

/*
 * Whether a COMMIT is on a synchronous standby too, where COUPON_DATABASE_SYNCHRONOUS=yes says that
 * it must be. Each is between two checks, commit_check of sql/query/program.sql, in one pipeline.
 */
#define POSTGRES_LOADED_SIZE 64
struct postgres_commit {
	/* pg_conf_load_time(): when the server had read its settings, before and after it */
	char before[POSTGRES_LOADED_SIZE], after[POSTGRES_LOADED_SIZE];
	char why[256];  /* why no standby was waited for; "": one was, by the settings */
	int is_new;     /* these settings may be newer than what COMMITs wait for: for 60 s */
	int is_reached; /* each synchronous standby has flushed the COMMIT */
};

/* AWAITED: the settings are new, and the standbys have to be asked again. */
enum postgres_verdict { POSTGRES_SHOWN, POSTGRES_AWAITED, POSTGRES_UNSHOWN };

/* What cannot be shown is unknown; then `why` has the reason. */
enum postgres_verdict postgres_commit_judge(struct postgres_commit *commit);

#define POSTGRES_UNSHOWN_TEXT                                                            \
	"whether the COMMIT is on a synchronous standby, and survives the loss of this " \
	"server, is unknown"
#define POSTGRES_NOT_REACHED_TEXT                                                          \
	"pg_stat_replication does not show that every synchronous standby has the COMMIT " \
	"(flush_lsn)"

/* Classifies an error by its SQLSTATE; NULL or "": the server has reported none, POSTGRES_DOWN. */
enum postgres_failure postgres_classify(const char *sqlstate);

/*
 * Whether a failure concerns only the coupons of the statement, which are put off while everything
 * else continues.
 */
int postgres_of_coupon(enum postgres_failure failure);

#define POSTGRES_ARGUMENTS_MAX 16

/*
 * Texts are lent. Each session sets its own encoding, UTF-8, its search_path, public, and how the
 * server writes times and bytes, whatever the role, the database or the environment says.
 */
struct postgres_options {
	const char *url;
	const char *application_name;
	int64_t connect_timeout_ms;   /* until the session is set, too */
	int64_t statement_timeout_ms; /* the server's limit for one statement; 0: its own setting */
	int64_t lock_timeout_ms;      /* and for one lock; 0: its own setting */
	const char *session;          /* further SET statements, LISTEN; NULL: none */
	const char *prepared;         /* the statement that is sent most often; NULL: none */
	const char *binary; /* another, whose result is in PostgreSQL's binary form; NULL: none */

	/*
	 * COUPON_DATABASE_SYNCHRONOUS: a COMMIT that is not shown to be on a synchronous standby is
	 * unknown, and its session is lost. There is no session while none is waited for. `judged`
	 * is the one statement of a session of look-ups whose rows tell of COMMITs: it fails then,
	 * and the session goes on. With NULL each statement is judged, but none within a
	 * transaction; it may not be several statements.
	 */
	int is_synchronous;
	const char *judged;

	/* When it is lost, postgres_step() connects again after a pause. Else its owner decides. */
	int reconnects;
	/* The name of the host is looked up on another thread; only of one that reconnects. */
	int looks_up;

	/* Events of the log; NULL: it is not logged. */
	const char *lost_event;        /* the session, which was up */
	const char *unreachable_event; /* an attempt to connect, once for each reason */
	const char *refused_event;     /* a statement, by postgres_fail() */
	const char *notice_event;      /* what the server notes */

	/* Each is called from within a step; NULL: not called. */
	void (*notice)(void *context, const char *text); /* what the server notes */
	/* NOTIFY; NULL: the session is a new one, and may have missed any. */
	void (*notified)(void *context, const char *payload);
	void *context;
};

enum postgres_event {
	POSTGRES_NOTHING,
	POSTGRES_CONNECTED, /* ready for the first statement */
	POSTGRES_ENDED,     /* the statement has ended: postgres_failure() */
	POSTGRES_LOST       /* the session, and the statement, or an attempt to connect */
};

struct postgres;

struct postgres *postgres_new(const struct postgres_options *options); /* copied; down */
void postgres_free(struct postgres *postgres);                         /* NULL is allowed */

/* Begins to connect, while down. 0, or -1: postgres_why(), or the pause is not over. */
int postgres_connect(struct postgres *postgres, int64_t now_ms);
/* Ends the session, if there is one. Nothing is logged. */
void postgres_close(struct postgres *postgres);
/*
 * Ends the session after a failure, and logs `why`, or postgres_why() with NULL. The pause before
 * the next attempt begins. Does nothing while the session is down.
 */
void postgres_lose(struct postgres *postgres, const char *why);

/*
 * Ends the session without logging: the server is not the one that was looked for, and the next
 * attempt begins with the next host.
 */
void postgres_leave(struct postgres *postgres, const char *why);

/*
 * A statement has failed. An error of the data or of a lock is logged as refused. With any other,
 * which may last, as a schema that is older than this program, the session is lost.
 */
void postgres_fail(struct postgres *postgres);

/* Does what can be done now. */
enum postgres_event postgres_step(struct postgres *postgres, int64_t now_ms);

/*
 * Sends one statement, while idle; the arguments are copied. After `deadline_ms` without its end
 * the session is lost. Without arguments `sql` may be several statements, which are one
 * transaction; the result is that of the last one, or the first error. The text `prepared` is not
 * parsed and planned again. If PostgreSQL cannot run it as it was prepared, since the schema has
 * changed, the session is lost: it is prepared again in the next one.
 */
void postgres_send(struct postgres *postgres, const char *sql, int n,
		   const struct postgres_argument *arguments, int64_t deadline_ms);
/*
 * From here on each statement of a synchronous session is judged. The caller has seen that a
 * standby is waited for.
 */
void postgres_judge(struct postgres *postgres);
/*
 * Changes settings of the session. The name, which is shown in pg_stat_activity, is lent and
 * contains no quotes. 1: sent, and ends as a statement does; 0: it has these settings.
 */
int postgres_set(struct postgres *postgres, int64_t lock_timeout_ms, const char *application_name,
		 int64_t deadline_ms);

/* The outcome of the last statement, until the next one is sent. */
enum postgres_failure postgres_failure(const struct postgres *postgres);
const char *postgres_sqlstate(const struct postgres *postgres); /* "": none */
const PGresult *postgres_result(const struct postgres *postgres);
PGresult *postgres_result_take(struct postgres *postgres); /* owned by the caller, to be cleared */

/* libpq's message about the last failure: its first line, and all of it on one line. */
const char *postgres_why(const struct postgres *postgres);
const char *postgres_why_long(const struct postgres *postgres);

/* How often postgres_open() tries: one that does not reconnect begins with each host once. */
size_t postgres_tries_n(const struct postgres *postgres);
int postgres_up(const struct postgres *postgres);              /* idle or busy */
int postgres_idle(const struct postgres *postgres);            /* a statement can be sent */
PGconn *postgres_libpq(struct postgres *postgres);             /* NULL: down */
int64_t postgres_since_ms(const struct postgres *postgres);    /* when it was last connected */
uint64_t postgres_connects_n(const struct postgres *postgres); /* how many times it was */

int postgres_fd(const struct postgres *postgres); /* for poll(); -1 when down */
short postgres_poll_events(const struct postgres *postgres);
/* the latest time for the next postgres_step(); INT64_MAX: no limit */
int64_t postgres_deadline_ms(const struct postgres *postgres);

/*
 * Takes in all input that has arrived. libpq takes only as much of a TLS record as it has space
 * for; the rest is in OpenSSL then, where poll() does not see it. 0, or -1 when the connection is
 * lost.
 */
int postgres_input_read(PGconn *libpq);

/* Connection strings */

/*
 * Ends the process with a sentence that names `setting` unless libpq can use the string. It repeats
 * nothing of it: libpq's own messages repeat the part that libpq does not understand, which may be
 * the password.
 */
void postgres_url_check(const char *setting, const char *url);
/*
 * The host name that libpq would look up (malloc), of a string that was checked. NULL: an address,
 * the path of a socket, or several hosts, which libpq looks up in order.
 */
char *postgres_url_host(const char *url);

size_t postgres_url_hosts_n(const char *url); /* the URL was checked; 1 if it names none */
/*
 * A list that is joined by commas, as of hosts, that begins at this place, and has those before it
 * at its end (malloc). NULL: it has fewer than two entries.
 */
char *postgres_list_rotate(const char *list, size_t place);

/*
 * Whether libpq can read the files of TLS without waiting: those that are there are regular files.
 * 0, or -1 with a sentence. After libpq has begun to connect, and before its first step.
 */
int postgres_files_check(PGconn *libpq, char *why, size_t size);
/*
 * Whether libpq can read its service file without waiting, if the URL or PGSERVICE names a service.
 * 0, or -1 with a sentence. Before libpq begins to connect, which reads that file.
 */
int postgres_service_check(const char *url, char *why, size_t size);

/* The value of one keyword of a connection string; "" when it is absent. */
const char *postgres_option(const PQconninfoOption *options, const char *keyword);

#define POSTGRES_SSLMODE_SIZE 16

/*
 * Whether a string that was checked leads to another machine without what proves that it is the
 * right one: sslmode=verify-full, or gssencmode=require. PGSSLMODE, PGHOST, a service file and so
 * on count as they do for libpq. Then `sslmode` is what is used instead. Nothing is connected.
 */
int postgres_url_is_weak(const char *url, char sslmode[POSTGRES_SSLMODE_SIZE]);

/* Rows */

/* A column by its name, which the statement must have: its text, "" for NULL, and its number. */
const char *column_text(const PGresult *rows, int row, const char *name);
int64_t column_number(const PGresult *rows, int row, const char *name);
int64_t number_at(const PGresult *rows, int row, int column); /* 0 for NULL */

/* Blocking */

/* The limits of the wait for the end of a statement. */
struct postgres_patience {
	int64_t timeout_ms; /* 0: as long as the session lives */
	/* NULL, or called several times a second meanwhile: other than 0 ends the wait */
	int (*waiting)(void *context);
	void *context;
};

/* Connects, where it is down. 0, or -1, as postgres_connect(). */
int postgres_open(struct postgres *postgres);

/*
 * One statement, in a session that is up: its result, to be cleared with PQclear(), or NULL:
 * postgres_failure(), postgres_why(). The session is lost when its connection is, or when the wait
 * is over, but not for an error that the server reports.
 */
PGresult *postgres_query(struct postgres *postgres, const char *sql, int n,
			 const struct postgres_argument *arguments,
			 const struct postgres_patience *patience);
/*
 * postgres_query() in two steps: the statement runs meanwhile. Nothing else may be sent in between.
 */
void postgres_query_send(struct postgres *postgres, const char *sql, int n,
			 const struct postgres_argument *arguments,
			 const struct postgres_patience *patience);
PGresult *postgres_query_take(struct postgres *postgres, const struct postgres_patience *patience);

/*
 * As postgres_query(), for an owner that opens the session again: returns NULL also while it is
 * down or busy, and calls postgres_fail() after a failure.
 */
PGresult *postgres_ask(struct postgres *postgres, const char *sql, int n,
		       const struct postgres_argument *arguments,
		       const struct postgres_patience *patience);
