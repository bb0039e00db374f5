/*
 * The server's thread owns the event base and everything of evhttp. It shares only atomic numbers
 * with other threads: those of worker/metrics.h and of the keeper, and the time of the last beat;
 * and, under the mutex, what the members' thread was told last.
 */
#include "worker/monitor.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/program/weak_settings.h"
#include "common/rabbit/topology.h"
#include "common/serve/web.h"
#include "common/thread.h"
#include "events/relay.h"
#include "keeper/keeper.h"
#include "worker/metrics.h"

#include <curl/curl.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TIMEOUT_S 10 /* of an idle or slow connection */
#define LIMIT_BYTES 8192
#define HTTP_FORBIDDEN 403 /* which evhttp does not name */
#define MEMBERS_EVERY_MS 10000

struct monitor {
	const struct config *config;

	/* of the server; base NULL: it does not run */
	struct thread thread;
	struct event_base *base;
	struct web *web;
	int hangup_fd;  /* can be read after SIGHUP */
	int is_guarded; /* COUPON_TLS_CLIENT_CA is set */

	/* of the thread that asks for the members of queues, with COUPON_RABBITMQ_API */
	struct thread members;
	pthread_mutex_t mutex; /* guards the rest */
	cJSON *told;           /* NULL: not known */
	char trouble[RABBIT_ERROR_SIZE];
};

static atomic_int_least64_t beat_ms;

void monitor_beat(void)
{
	beat_ms = clock_monotonic_ms();
}

/* The members of queues */

/* Logs each queue of which more than its length has changed. */
static void members_log(const cJSON *cluster, const cJSON *before)
{
	static const char *const compared[] = { "members", "online", "leader" };
	int wanted = (int)cJSON_GetNumberValue(cJSON_GetObjectItem(cluster, "wanted"));
	const cJSON *queue;

	cJSON_ArrayForEach(queue, cJSON_GetObjectItem(cluster, "queues"))
	{
		const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(queue, "name")),
			   *leader = cJSON_GetStringValue(cJSON_GetObjectItem(queue, "leader"));
		const cJSON *former = rabbit_cluster_queue(before, name);
		int members = cJSON_GetArraySize(cJSON_GetObjectItem(queue, "members")),
		    online = cJSON_GetArraySize(cJSON_GetObjectItem(queue, "online")),
		    is_short = members < wanted || online < members, is_changed = !former;

		for (size_t i = 0; i < sizeof(compared) / sizeof(compared[0]); i++)
			if (former && !cJSON_Compare(cJSON_GetObjectItem(queue, compared[i]),
						     cJSON_GetObjectItem(former, compared[i]), 1))
				is_changed = 1;
		if (is_changed)
			log_event(is_short ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, "queue_members",
				  (struct log_field[]){ LOG_S("queue", name),
							LOG_I("members", members),
							LOG_I("wanted", wanted),
							LOG_I("online", online),
							LOG_S("leader", leader ? leader : ""),
							{ 0 } });
	}
}

static void *members_run(void *data)
{
	struct monitor *monitor = data;
	const struct config *config = monitor->config;

	while (!monitor->members.stops) {
		char error[RABBIT_ERROR_SIZE] = "";
		cJSON *cluster = rabbit_cluster_read(config->rabbitmq_api, config->amqp_url,
						     &monitor->members.stops, error),
		      *before;
		const cJSON *messages;

		if (monitor->members.stops) {
			cJSON_Delete(cluster);
			break;
		}
		if (!cluster && !*monitor->trouble)
			log_warn("queue_members_unknown", LOG_S("why", error));
		if (cluster)
			members_log(cluster, monitor->told);

		messages = cJSON_GetObjectItem(rabbit_cluster_queue(cluster, AMQP_QUEUE),
					       "messages");
		metrics_set(METRIC_QUEUE_MEMBERS_WANTED,
			    cluster ? (int)cJSON_GetNumberValue(
					      cJSON_GetObjectItem(cluster, "wanted"))
				    : 0);
		metrics_set(METRIC_QUEUE_MEMBERS, rabbit_cluster_least(cluster, "members"));
		metrics_set(METRIC_QUEUE_MEMBERS_ONLINE, rabbit_cluster_least(cluster, "online"));
		metrics_set(METRIC_QUEUE_MESSAGES,
			    cJSON_IsNumber(messages) ? (int64_t)messages->valuedouble : 0);

		pthread_mutex_lock(&monitor->mutex);
		before = monitor->told;
		monitor->told = cluster;
		memcpy(monitor->trouble, error, sizeof(monitor->trouble));
		pthread_mutex_unlock(&monitor->mutex);
		cJSON_Delete(before);
		thread_pause(&monitor->members, clock_monotonic_ms() + MEMBERS_EVERY_MS, NULL, 0);
	}
	return NULL;
}

/* How many queues the node leads; NULL: how many have no leader. */
static int led_n(const cJSON *told, const char *node)
{
	int n = 0;
	const cJSON *queue;

	cJSON_ArrayForEach(queue, cJSON_GetObjectItem(told, "queues"))
	{
		const char *leader = cJSON_GetStringValue(cJSON_GetObjectItem(queue, "leader"));

		n += node && leader ? strcmp(node, leader) == 0 : node == leader;
	}
	return n;
}

/* Readiness */

/*
 * Ready means that the worker can settle. Redis and the publisher are only reported: to settle, it
 * is enough that Redis was once known to belong to this PostgreSQL.
 */
struct readiness {
	int is_ready;
	const char *rabbitmq, *publisher, *postgresql, *redis; /* "ok", or what is wrong */
	int is_keeper;
};

static const char *word(int up)
{
	return up ? "ok" : "not connected";
}

static struct readiness readiness_find(void)
{
	int rabbitmq = metrics_get(METRIC_CONSUMER_UP) != 0,
	    postgresql = metrics_get(METRIC_DATABASE_UP) != 0;
	struct keeper_state keeper = keeper_state();
	struct readiness found = { .is_ready = rabbitmq && postgresql &&
					       keeper.relation == RELATION_OWN &&
					       !metrics_get(METRIC_POSTGRESQL_OLD),
				   .rabbitmq = rabbitmq || relation_is_followed(keeper.relation)
						       ? word(rabbitmq)
						       : "not consumed until Redis is identified",
				   .publisher = word(metrics_get(METRIC_PUBLISHER_UP) != 0),
				   .postgresql = word(postgresql),
				   .redis = word(keeper.redis_up),
				   .is_keeper = keeper.elected };

	if (metrics_get(METRIC_POSTGRESQL_OLD))
		found.postgresql = RELATION_OLD_TEXT "; " SERVER_OLD_MEND;
	else if (keeper.relation == RELATION_BEHIND)
		found.postgresql = keeper.recovers
					   ? "put back to an earlier moment; the keeper recovers"
					   : "put back to an earlier moment; run couponctl recover";
	if (keeper.relation == RELATION_FOREIGN)
		found.redis = RELATION_FOREIGN_TEXT "; see couponctl installation";
	else if (keeper.relation == RELATION_UNADOPTED)
		found.redis = "belongs to no installation yet";
	return found;
}

int monitor_status(char status[SERVICE_STATUS_SIZE])
{
	const struct readiness found = readiness_find();
	const struct {
		const char *part, *state;
	} parts[] = { { "rabbitmq", found.rabbitmq },
		      { "publisher", found.publisher },
		      { "postgresql", found.postgresql },
		      { "redis", found.redis } };
	int len = snprintf(status, SERVICE_STATUS_SIZE, "%s%s",
			   found.is_ready ? "ready" : "not ready",
			   found.is_keeper ? "; the keeper" : "");

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcmp(parts[i].state, "ok") != 0 && len < SERVICE_STATUS_SIZE)
			len += snprintf(status + len, SERVICE_STATUS_SIZE - (size_t)len, "; %s: %s",
					parts[i].part, parts[i].state);
	return found.is_ready;
}

/* The server */

/*
 * Whether the client may see what operators see. Where there is a CA for clients, only one with a
 * certificate of it may; a certificate of another CA has ended the handshake.
 */
static int is_operator(struct evhttp_request *request, const struct monitor *monitor)
{
	return !monitor->is_guarded || web_is_certified(request);
}

static void on_readyz(struct evhttp_request *request, struct monitor *monitor)
{
	const struct tls *tls = web_tls(monitor->web);
	const struct readiness found = readiness_find();
	cJSON *body = checked(cJSON_CreateObject()), *warnings;
	char *text;

	cJSON_AddStringToObject(body, "rabbitmq", found.rabbitmq);
	cJSON_AddStringToObject(body, "publisher", found.publisher);
	cJSON_AddStringToObject(body, "postgresql", found.postgresql);
	cJSON_AddStringToObject(body, "redis", found.redis);
	cJSON_AddBoolToObject(body, "keeper", found.is_keeper);
	cJSON_AddBoolToObject(body, "ready", found.is_ready);
	warnings = checked(cJSON_AddArrayToObject(body, "warnings"));
	transport_warnings(warnings);
	rabbit_topology_warnings(warnings);
	pthread_mutex_lock(&monitor->mutex);
	if (monitor->told)
		rabbit_cluster_warnings(monitor->told, warnings);
	else if (*monitor->trouble)
		json_sentence_add(
			warnings,
			"rabbitmq: the nodes that have members of the queues are unknown: %s",
			monitor->trouble);
	pthread_mutex_unlock(&monitor->mutex);
	relay_warnings(warnings);
	if (tls && tls_trouble(tls))
		cJSON_AddItemToArray(warnings, cJSON_CreateString(tls_trouble(tls)));
	if (!is_operator(request, monitor)) {
		cJSON_Delete(body);
		body = checked(cJSON_CreateObject());
		cJSON_AddBoolToObject(body, "ready", found.is_ready);
	}
	text = checked(json_write(body));
	web_reply_json(request, found.is_ready ? HTTP_OK : HTTP_SERVUNAVAIL, text);
	free(text);
	cJSON_Delete(body);
}

static void on_request(struct evhttp_request *request, void *data)
{
	const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
	struct monitor *monitor = data;
	struct evbuffer *body;
	const cJSON *node;
	int64_t silent_ms = clock_monotonic_ms() - beat_ms;
	int is_ok = silent_ms < MONITOR_SILENCE_MS;
	char text[96];

	if (!path)
		path = "";
	if (strcmp(path, "/readyz") == 0) {
		on_readyz(request, monitor);
	} else if (strcmp(path, "/healthz") == 0) {
		snprintf(text, sizeof(text), "{\"status\":\"%s\",\"silent_ms\":%lld}",
			 is_ok ? "ok" : "stuck", (long long)silent_ms);
		web_reply_json(request, is_ok ? HTTP_OK : HTTP_SERVUNAVAIL, text);
	} else if (strcmp(path, "/metrics") != 0) {
		web_reply_json(request, HTTP_NOTFOUND,
			       "{\"message\":\"no such path: there are /metrics, /healthz and "
			       "/readyz\"}");
	} else if (!is_operator(request, monitor)) {
		web_reply_json(request, HTTP_FORBIDDEN,
			       "{\"message\":\"this needs a client certificate\"}");
	} else {
		body = checked(evbuffer_new());
		metrics_prometheus(body);
		exposition_head(body, "worker_queues_led", "gauge",
				"Queues led by each RabbitMQ node; queues without a leader have an "
				"empty node.");
		pthread_mutex_lock(&monitor->mutex);
		cJSON_ArrayForEach(node, cJSON_GetObjectItem(monitor->told, "nodes"))
			exposition_value(body, "worker_queues_led", "node", node->valuestring,
					 led_n(monitor->told, node->valuestring));
		if (monitor->told)
			exposition_value(body, "worker_queues_led", "node", "",
					 led_n(monitor->told, NULL));
		pthread_mutex_unlock(&monitor->mutex);
		keeper_exposition(body);
		web_reply(request, HTTP_OK, NULL, EXPOSITION_TYPE, body);
	}
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

static void on_hangup(evutil_socket_t fd, short what, void *data)
{
	struct monitor *monitor = data;
	struct signalfd_siginfo signal;

	(void)what;
	if (read(fd, &signal, sizeof(signal)) != sizeof(signal))
		return;
	service_reloading();
	web_reload(monitor->web);
	service_reloaded();
}

static void *run(void *data)
{
	struct monitor *monitor = data;
	struct event *stop = checked(
		event_new(monitor->base, monitor->thread.fd, EV_READ, on_stop, monitor->base));
	struct event *hangup = checked(event_new(monitor->base, monitor->hangup_fd,
						 EV_READ | EV_PERSIST, on_hangup, monitor));

	event_add(stop, NULL);
	event_add(hangup, NULL);
	event_base_dispatch(monitor->base);
	event_free(stop);
	event_free(hangup);
	return NULL;
}

struct monitor *monitor_start(int fd, const struct config *config)
{
	struct monitor *monitor = checked(calloc(1, sizeof(*monitor)));
	sigset_t hangup;

	monitor->config = config;
	check(pthread_mutex_init(&monitor->mutex, NULL) == 0);
	if (*config->rabbitmq_api) {
		check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
		thread_start(&monitor->members, members_run, monitor);
	}
	if (fd < 0)
		return monitor;
	monitor_beat();
	sigemptyset(&hangup);
	sigaddset(&hangup, SIGHUP);
	sigprocmask(SIG_BLOCK, &hangup, NULL);
	monitor->hangup_fd = signalfd(-1, &hangup, SFD_CLOEXEC | SFD_NONBLOCK);
	check(monitor->hangup_fd >= 0);
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
	if (monitor->base) {
		thread_stop(&monitor->thread);
		web_free(monitor->web);
		event_base_free(monitor->base);
		close(monitor->hangup_fd);
	}
	if (*monitor->config->rabbitmq_api) {
		thread_stop(&monitor->members);
		cJSON_Delete(monitor->told);
		curl_global_cleanup();
	}
	pthread_mutex_destroy(&monitor->mutex);
	free(monitor);
}
