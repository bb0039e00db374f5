/*
 * HTTP by evhttp, plain or under TLS, for those who operate the programs: few clients. The thread
 * of its event base.
 *
 * Strangers may connect, too. A request must arrive in REQUEST_S; an address that is not of
 * COUPON_CONNECTIONS_NETWORKS has at most OF_ADDRESS_MAX connections; and when there is no place
 * left, the connection that has waited longest for a request is closed. If all of them are being
 * answered, RESERVE more are, for what is monitored alone.
 */
#pragma once

#include "common/program/config.h"
#include "common/serve/tls.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stddef.h>

struct web;

struct web_options {
	int methods; /* bits of enum evhttp_cmd_type; others are refused */
	size_t head_bytes_max, body_bytes_max;
	int timeout_s;     /* for an idle connection, and for one that does not read */
	const char *hosts; /* COUPON_HTTP_HOSTS: Host and Origin are checked; NULL: they are not */
	void (*request)(struct evhttp_request *request, void *context);
	/* Answers a request that is refused, with 403, 421 or 503. */
	void (*refuse)(struct evhttp_request *request, int status, const char *detail,
		       void *context);
	/* With TLS, called twice a second, after the files were looked at; NULL: not called. */
	void (*tick)(void *context, const struct tls *tls);
	void *context;
};

/* Takes over the bound socket `fd`. */
struct web *web_new(struct event_base *base, int fd, const struct config *config,
		    const struct web_options *options);
void web_free(struct web *web);

void web_close(struct web *web);  /* accepts no more, and serves what it has accepted */
void web_reload(struct web *web); /* the files of certificates, now */

const struct tls *web_tls(const struct web *web); /* NULL: there is no certificate */
/* Whether the client has shown a certificate of COUPON_TLS_CLIENT_CA that is still valid. */
int web_is_certified(struct evhttp_request *request);

/*
 * Each ends the request. The body is taken, and not sent after HEAD. `reason` NULL: evhttp's, which
 * does not know every status.
 */
void web_reply(struct evhttp_request *request, int status, const char *reason, const char *type,
	       struct evbuffer *body);
void web_reply_json(struct evhttp_request *request, int status, const char *text);
