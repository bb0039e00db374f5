/*
 * The thread owns the event base and everything of evhttp. It shares only atomic numbers with other
 * threads: those of worker/metrics.h and of the keeper, and the time of the last beat.
 */
#include "worker/monitor.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/json.h"
#include "common/program/durability.h"
#include "common/rabbit/topology.h"
#include "common/serve/web.h"
#include "common/thread.h"
#include "events/relay.h"
#include "keeper/keeper.h"
#include "worker/members.h"
#include "worker/metrics.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_S 10 /* of an idle or slow connection */
#define LIMIT_BYTES 8192
#define HTTP_FORBIDDEN 403 /* which evhttp does not name */

struct monitor {
	struct thread thread;
	struct event_base *base;
	struct web *web;
	int is_guarded; /* COUPON_TLS_CLIENT_CA is set */
};

static atomic_int_least64_t beat_ms;

void monitor_beat(void)
{
	beat_ms = clock_monotonic_ms();
}

static void on_healthz(struct evhttp_request *request)
{
	int64_t silent_ms = clock_monotonic_ms() - beat_ms;
	int is_ok = silent_ms < MONITOR_SILENCE_MS;
	char text[96];

	snprintf(text, sizeof(text), "{\"status\":\"%s\",\"silent_ms\":%lld}",
		 is_ok ? "ok" : "stuck", (long long)silent_ms);
	web_reply_json(request, is_ok ? HTTP_OK : HTTP_SERVUNAVAIL, text);
}

static const char *word(int up)
{
	return up ? "ok" : "not connected";
}

static const char *redis_word(const struct keeper_state *keeper)
{
	switch (keeper->relation) {
	case RELATION_FOREIGN:
		return RELATION_FOREIGN_TEXT "; see couponctl installation";
	case RELATION_UNADOPTED:
		return "belongs to no installation yet";
	case RELATION_UNKNOWN:
	case RELATION_OWN:
	case RELATION_BEHIND:
	case RELATION_OLD:
	case RELATION_STANDBY:
	case RELATION_OTHER:
		break;
	}
	return word(keeper->redis_up);
}

static const char *postgresql_word(const struct keeper_state *keeper)
{
	if (metrics_get(METRIC_POSTGRESQL_OLD))
		return RELATION_OLD_TEXT "; " SERVER_OLD_MEND;
	if (keeper->relation == RELATION_BEHIND)
		return keeper->recovers ? "put back to an earlier moment; the keeper recovers"
					: "put back to an earlier moment; run couponctl recover";
	return word(metrics_get(METRIC_DATABASE_UP) != 0);
}

/*
 * Whether it may see what operators see: where there is a CA for clients, who has shown a
 * certificate of it. One of another has ended the handshake.
 */
static int is_operator(struct evhttp_request *request, const struct monitor *monitor)
{
	return !monitor->is_guarded || web_is_certified(request);
}

/*
 * Ready means that it can settle. Redis and the publisher are reported; to settle it is enough that
 * Redis was once known to belong to this PostgreSQL.
 */
static void on_readyz(struct evhttp_request *request, const struct monitor *monitor)
{
	int rabbitmq = metrics_get(METRIC_CONSUMER_UP) != 0,
	    postgresql = metrics_get(METRIC_DATABASE_UP) != 0;
	const struct tls *tls = web_tls(monitor->web);
	struct keeper_state keeper = keeper_state();
	int is_own = relation_is_followed(keeper.relation),
	    ready = rabbitmq && postgresql && keeper.relation == RELATION_OWN &&
		    !metrics_get(METRIC_POSTGRESQL_OLD);
	cJSON *body = checked(cJSON_CreateObject()), *warnings;
	char *text;

	cJSON_AddStringToObject(body, "rabbitmq",
				rabbitmq || is_own ? word(rabbitmq)
						   : "not consumed before Redis is known");
	cJSON_AddStringToObject(body, "publisher", word(metrics_get(METRIC_PUBLISHER_UP) != 0));
	cJSON_AddStringToObject(body, "postgresql", postgresql_word(&keeper));
	cJSON_AddStringToObject(body, "redis", redis_word(&keeper));
	cJSON_AddBoolToObject(body, "keeper", keeper.elected);
	cJSON_AddBoolToObject(body, "ready", ready);
	warnings = checked(cJSON_AddArrayToObject(body, "warnings"));
	transport_warnings(warnings);
	rabbit_topology_warnings(warnings);
	members_warnings(warnings);
	relay_warnings(warnings);
	if (tls && tls_trouble(tls))
		cJSON_AddItemToArray(warnings, cJSON_CreateString(tls_trouble(tls)));
	if (!is_operator(request, monitor)) {
		cJSON_Delete(body);
		body = checked(cJSON_CreateObject());
		cJSON_AddBoolToObject(body, "ready", ready);
	}
	text = checked(json_write(body));
	web_reply_json(request, ready ? HTTP_OK : HTTP_SERVUNAVAIL, text);
	free(text);
	cJSON_Delete(body);
}

static void on_metrics(struct evhttp_request *request, const struct monitor *monitor)
{
	struct evbuffer *body;

	if (!is_operator(request, monitor)) {
		web_reply_json(request, HTTP_FORBIDDEN,
			       "{\"message\":\"this needs a client certificate\"}");
		return;
	}
	body = checked(evbuffer_new());
	metrics_prometheus(body);
	members_prometheus(body);
	keeper_exposition(body);
	web_reply(request, HTTP_OK, NULL, EXPOSITION_TYPE, body);
}

static void on_request(struct evhttp_request *request, void *monitor)
{
	const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));

	if (!path)
		path = "";
	if (strcmp(path, "/metrics") == 0)
		on_metrics(request, monitor);
	else if (strcmp(path, "/healthz") == 0)
		on_healthz(request);
	else if (strcmp(path, "/readyz") == 0)
		on_readyz(request, monitor);
	else
		web_reply_json(request, HTTP_NOTFOUND,
			       "{\"message\":\"no such path: there are /metrics, /healthz and "
			       "/readyz\"}");
}

static void refuse(struct evhttp_request *request, int status, const char *detail, void *monitor)
{
	char text[400];

	(void)monitor;
	snprintf(text, sizeof(text), "{\"message\":\"%s\"}", detail);
	web_reply_json(request, status, text);
}

static void on_tick(void *context, const struct tls *tls)
{
	(void)context;
	metrics_set(METRIC_TLS_EXPIRES, tls_expires_s(tls));
	metrics_set(METRIC_TLS_TROUBLE, tls_trouble(tls) != NULL);
}

static void on_stop(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	event_base_loopbreak(data);
}

static void *run(void *data)
{
	struct monitor *monitor = data;
	struct event *stop = checked(
		event_new(monitor->base, monitor->thread.fd, EV_READ, on_stop, monitor->base));

	event_add(stop, NULL);
	event_base_dispatch(monitor->base);
	event_free(stop);
	return NULL;
}

struct monitor *monitor_start(int fd, const struct config *config)
{
	struct monitor *monitor;

	if (fd < 0)
		return NULL;
	monitor = checked(calloc(1, sizeof(*monitor)));
	monitor_beat();
	monitor->base = event_base_new();
	check(monitor->base != NULL);
	monitor->is_guarded = *config->tls_cert && *config->tls_client_ca;
	monitor->web = web_new(monitor->base, fd, config,
			       &(struct web_options){ .methods = EVHTTP_REQ_GET | EVHTTP_REQ_HEAD,
						      .head_bytes_max = LIMIT_BYTES,
						      .body_bytes_max = LIMIT_BYTES,
						      .timeout_s = TIMEOUT_S,
						      .request = on_request,
						      .refuse = refuse,
						      .tick = on_tick,
						      .context = monitor });
	thread_start(&monitor->thread, run, monitor);
	return monitor;
}

void monitor_stop(struct monitor *monitor)
{
	if (!monitor)
		return;
	thread_stop(&monitor->thread);
	web_free(monitor->web);
	event_base_free(monitor->base);
	free(monitor);
}
