/* The thread owns what it reads; it shares what was told last, under the mutex. */
#include "worker/members.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/rabbit/cluster.h"
#include "common/thread.h"
#include "worker/metrics.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ASK_EVERY_MS 10000

static const struct config *settings; /* NULL: it does not run */
static struct thread thread;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static cJSON *told;                                       /* NULL: not known */
static char trouble[RABBIT_ERROR_SIZE];

static int members_n(const cJSON *queue, const char *list)
{
	return cJSON_GetArraySize(cJSON_GetObjectItem(queue, list));
}

/* Whether two answers about a queue differ in more than its length. */
static int is_changed(const cJSON *queue, const cJSON *before)
{
	static const char *const compared[] = { "members", "online", "leader" };

	for (size_t i = 0; i < sizeof(compared) / sizeof(compared[0]); i++)
		if (!before || !cJSON_Compare(cJSON_GetObjectItem(queue, compared[i]),
					      cJSON_GetObjectItem(before, compared[i]), 1))
			return 1;
	return 0;
}

static void change_log(const cJSON *cluster, const cJSON *before)
{
	int wanted = (int)cJSON_GetNumberValue(cJSON_GetObjectItem(cluster, "wanted"));
	const cJSON *queue;

	cJSON_ArrayForEach(queue, cJSON_GetObjectItem(cluster, "queues"))
	{
		const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(queue, "name")),
			   *leader = cJSON_GetStringValue(cJSON_GetObjectItem(queue, "leader"));
		int members = members_n(queue, "members"), online = members_n(queue, "online"),
		    is_short = members < wanted || online < members;

		if (is_changed(queue, rabbit_cluster_queue(before, name)))
			log_event(is_short ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, "queue_members",
				  (struct log_field[]){ LOG_S("queue", name),
							LOG_I("members", members),
							LOG_I("wanted", wanted),
							LOG_I("online", online),
							LOG_S("leader", leader ? leader : ""),
							{ 0 } });
	}
}

static void metrics_tell(const cJSON *cluster)
{
	const cJSON *messages = cJSON_GetObjectItem(rabbit_cluster_queue(cluster, AMQP_QUEUE),
						    "messages");

	metrics_set(METRIC_QUEUE_MEMBERS_WANTED,
		    cluster ? (int)cJSON_GetNumberValue(cJSON_GetObjectItem(cluster, "wanted"))
			    : 0);
	metrics_set(METRIC_QUEUE_MEMBERS, rabbit_cluster_least(cluster, "members"));
	metrics_set(METRIC_QUEUE_MEMBERS_ONLINE, rabbit_cluster_least(cluster, "online"));
	metrics_set(METRIC_QUEUE_MESSAGES,
		    cJSON_IsNumber(messages) ? (int64_t)messages->valuedouble : 0);
}

/* How many queues the node leads; NULL: have no leader. */
static int led_n(const char *node)
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

void members_prometheus(struct evbuffer *out)
{
	const cJSON *node;

	exposition_head(out, "worker_queues_led", "gauge",
			"Queues that the node of RabbitMQ leads; of no node: without a leader.");
	pthread_mutex_lock(&mutex);
	cJSON_ArrayForEach(node, cJSON_GetObjectItem(told, "nodes"))
		exposition_value(out, "worker_queues_led", "node", node->valuestring,
				 led_n(node->valuestring));
	if (told)
		exposition_value(out, "worker_queues_led", "node", "", led_n(NULL));
	pthread_mutex_unlock(&mutex);
}

static void ask(void)
{
	char error[RABBIT_ERROR_SIZE] = "";
	cJSON *cluster = rabbit_cluster_read(settings->rabbitmq_api, settings->amqp_url,
					     &thread.stops, error),
	      *before;

	if (thread.stops) {
		cJSON_Delete(cluster);
		return;
	}
	if (!cluster && !*trouble)
		log_warn("queue_members_unknown", LOG_S("why", error));
	if (cluster)
		change_log(cluster, told);
	metrics_tell(cluster);
	pthread_mutex_lock(&mutex);
	before = told;
	told = cluster;
	memcpy(trouble, error, sizeof(trouble));
	pthread_mutex_unlock(&mutex);
	cJSON_Delete(before);
}

static void *run(void *unused)
{
	(void)unused;
	while (!thread.stops) {
		ask();
		thread_pause(&thread, clock_monotonic_ms() + ASK_EVERY_MS, NULL, 0);
	}
	return NULL;
}

void members_start(const struct config *config)
{
	if (!*config->rabbitmq_api)
		return;
	check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
	settings = config;
	thread_start(&thread, run, NULL);
}

void members_stop(void)
{
	if (!settings)
		return;
	thread_stop(&thread);
	cJSON_Delete(told);
	curl_global_cleanup();
}

void members_warnings(cJSON *array)
{
	pthread_mutex_lock(&mutex);
	if (told)
		rabbit_cluster_warnings(told, array);
	else if (*trouble)
		json_sentence_add(array,
				  "rabbitmq: on which nodes the queues have members is unknown: %s",
				  trouble);
	pthread_mutex_unlock(&mutex);
}
