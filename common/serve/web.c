#include "common/serve/web.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/serve/loop.h"

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <stdlib.h>
#include <unistd.h>

#define TICK_MS 1000

struct web {
	struct evhttp *evhttp;
	struct evconnlistener *listener; /* evhttp's */
	struct tls *tls;                 /* NULL: none is set */
	struct ticker *ticker;           /* for the files of TLS */
	web_tick_fn *tick;
	void *context;
};

/* evhttp would send the body after HEAD too, which must have none. */
void web_reply(struct evhttp_request *request, int status, const char *reason, const char *type,
	       struct evbuffer *body)
{
	if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD)
		evbuffer_drain(body, evbuffer_get_length(body));
	evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", type);
	evhttp_send_reply(request, status, reason, body);
	evbuffer_free(body);
}

void web_reply_json(struct evhttp_request *request, int status, const char *text)
{
	struct evbuffer *body = evbuffer_new();

	check(body != NULL && evbuffer_add_printf(body, "%s\n", text) > 0);
	web_reply(request, status, NULL, "application/json", body);
}

int web_is_certified(struct evhttp_request *request)
{
	struct evhttp_connection *connection = evhttp_request_get_connection(request);
	SSL *session = bufferevent_openssl_get_ssl(evhttp_connection_get_bufferevent(connection));

	return session && tls_client_expires_s(session) > 0;
}

/* Called by evhttp for each accepted connection. */
static struct bufferevent *on_connection(struct event_base *base, void *data)
{
	struct web *web = data;

	listener_accepted(web->listener);
	/* Without this option it would close the descriptor, and keep what TLS has. */
	if (!web->tls)
		return bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	return bufferevent_openssl_socket_new(base, -1, tls_session_new(web->tls, "http/1.1"),
					      BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
}

static int on_tick(void *data)
{
	struct web *web = data;

	tls_tick(web->tls, clock_monotonic_ms());
	if (web->tick)
		web->tick(web->context, web->tls);
	return 1;
}

const struct tls *web_tls(const struct web *web)
{
	return web->tls;
}

struct web *web_new(struct event_base *base, int fd, const struct config *config,
		    const struct web_options *options)
{
	struct web *web = checked(calloc(1, sizeof(*web)));

	web->tick = options->tick;
	web->context = options->context;
	web->evhttp = checked(evhttp_new(base));
	web->tls = tls_new(config);
	web->ticker = ticker_new(base, TICK_MS, on_tick, web);
	if (web->tls)
		ticker_start(web->ticker);
	evhttp_set_allowed_methods(web->evhttp, (ev_uint16_t)options->methods);
	evhttp_set_max_headers_size(web->evhttp, (ev_ssize_t)options->head_bytes_max);
	evhttp_set_max_body_size(web->evhttp, (ev_ssize_t)options->body_bytes_max);
	evhttp_set_timeout(web->evhttp, options->timeout_s);
	evhttp_set_gencb(web->evhttp, options->request, options->context);
	evhttp_set_bevcb(web->evhttp, on_connection, web);
	web->listener = listener_new(base, fd, NULL, NULL);
	check(evhttp_bind_listener(web->evhttp, web->listener) != NULL);
	close(fd); /* the listener has a copy */
	return web;
}

void web_free(struct web *web)
{
	evhttp_free(web->evhttp);
	ticker_free(web->ticker);
	tls_free(web->tls);
	free(web);
}
