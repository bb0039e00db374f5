#include "common/rabbit/cluster.h"

#include "common/check.h"
#include "common/fetch.h"
#include "common/message/json.h"
#include "common/rabbit/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS 3000L
#define TIMEOUT_MS 10000L /* RabbitMQ waits 4 s for a node that does not answer */
/*
 * Selects the queues with this in their name, which include those of queue move. The lengths are
 * asked for separately: with them RabbitMQ leaves out the queues that have no leader (3.10).
 */
#define QUEUES_PATH                                                                   \
	"/api/queues/%s?disable_stats=true&page=1&page_size=100&name=coupon.receive." \
	"&use_regex=false&columns="
#define MEMBERS_PATH QUEUES_PATH "name,members,online,leader"
#define LENGTHS_PATH QUEUES_PATH "name,messages&enable_queue_totals=true"
#define NODES_PATH "/api/nodes?columns=name"

static int on_progress(void *stop, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	(void)a, (void)b, (void)c, (void)d;
	return *(const atomic_int *)stop;
}

/* Gets a path from this host. NULL with a sentence in `error`. */
static cJSON *get(const struct rabbit_host *host, const char *path, const atomic_int *stop,
		  char error[RABBIT_ERROR_SIZE])
{
	const struct amqp_connection_info *info = &host->info;
	char *url, text[RABBIT_HOST_SIZE];
	cJSON *answer = NULL;
	struct fetch fetch;
	long status = 0;
	CURLcode code;

	check(asprintf(&url, "%s://%s%s", info->ssl ? "https" : "http",
		       rabbit_host_text(host, text), path) > 0);
	fetch_init(&fetch, TRUST_RABBITMQ, info->host, url, TIMEOUT_MS);
	FETCH_SET(&fetch, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	FETCH_SET(&fetch, CURLOPT_USERNAME, info->user);
	FETCH_SET(&fetch, CURLOPT_PASSWORD, info->password);
	FETCH_SET(&fetch, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
	if (stop) {
		FETCH_SET(&fetch, CURLOPT_XFERINFOFUNCTION, on_progress);
		FETCH_SET(&fetch, CURLOPT_XFERINFODATA, stop);
		FETCH_SET(&fetch, CURLOPT_NOPROGRESS, 0L);
	}
	code = curl_easy_perform(fetch.curl);
	if (code != CURLE_OK) {
		snprintf(error, RABBIT_ERROR_SIZE, "%s", fetch_why(&fetch, code));
		goto out;
	}
	check(curl_easy_getinfo(fetch.curl, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK);
	if (status == 200 && fetch.text)
		answer = cJSON_ParseWithLength(fetch.text, fetch.len);
	if (!answer)
		snprintf(error, RABBIT_ERROR_SIZE, "HTTP status %ld%s", status,
			 status == 401 ? ": the user of COUPON_RABBITMQ_API needs its password, "
					 "the tag monitoring, and permissions in the vhost"
				       : "");
out:
	fetch_fini(&fetch);
	free(url);
	return answer;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of an array, or the member `name` of each object in it, in order. */
static cJSON *names_sorted(const cJSON *array, const char *name)
{
	int n = cJSON_GetArraySize(array), known = 0;
	const char **names = checked(calloc((size_t)n + 1, sizeof(*names)));
	cJSON *sorted;
	const cJSON *item;

	cJSON_ArrayForEach(item, array)
	{
		const char *text = cJSON_GetStringValue(name ? cJSON_GetObjectItem(item, name)
							     : item);

		if (text)
			names[known++] = text;
	}
	qsort(names, (size_t)known, sizeof(*names), compare_names);
	sorted = checked(cJSON_CreateStringArray(names, known));
	free(names);
	return sorted;
}

static const cJSON *named(const cJSON *array, const char *name)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, array)
	{
		const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(item, "name"));

		if (text && strcmp(text, name) == 0)
			return item;
	}
	return NULL;
}

/* Describes the cluster by the three answers of a host. */
static cJSON *cluster_describe(const cJSON *nodes, const cJSON *queues, const cJSON *lengths)
{
	cJSON *cluster = checked(cJSON_CreateObject()), *names = names_sorted(nodes, "name"),
	      *array;
	int n = cJSON_GetArraySize(names);

	cJSON_AddItemToObject(cluster, "nodes", names);
	cJSON_AddNumberToObject(cluster, "wanted",
				n < RABBIT_MEMBERS_WANTED ? n : RABBIT_MEMBERS_WANTED);
	array = checked(cJSON_AddArrayToObject(cluster, "queues"));
	for (enum rabbit_queue i = 0; i < RABBIT_QUEUES_N; i++) {
		const char *name = rabbit_queue_places[i].name, *leader;
		const cJSON *told = named(cJSON_GetObjectItem(queues, "items"), name),
			    *length = named(cJSON_GetObjectItem(lengths, "items"), name),
			    *members = cJSON_GetObjectItem(told, "members"), *messages;
		cJSON *queue;

		if (!cJSON_IsArray(members)) /* it is not there, or is no quorum queue */
			continue;
		queue = checked(cJSON_CreateObject());
		cJSON_AddItemToArray(array, queue);
		cJSON_AddStringToObject(queue, "name", name);
		cJSON_AddItemToObject(queue, "members", names_sorted(members, NULL));
		cJSON_AddItemToObject(queue, "online",
				      names_sorted(cJSON_GetObjectItem(told, "online"), NULL));
		leader = cJSON_GetStringValue(cJSON_GetObjectItem(told, "leader"));
		if (leader && *leader)
			cJSON_AddStringToObject(queue, "leader", leader);
		else
			cJSON_AddNullToObject(queue, "leader");
		messages = cJSON_GetObjectItem(length, "messages");
		if (cJSON_IsNumber(messages))
			cJSON_AddNumberToObject(queue, "messages", messages->valuedouble);
		else
			cJSON_AddNullToObject(queue, "messages");
	}
	return cluster;
}

/* Asks one host. NULL with a sentence in `error`. */
static cJSON *host_ask(const struct rabbit_host *host, const char *vhost, const atomic_int *stop,
		       char error[RABBIT_ERROR_SIZE])
{
	cJSON *answers[3] = { NULL }, *cluster = NULL;
	char *paths[3];
	int n = 0;

	check(asprintf(&paths[0], MEMBERS_PATH, vhost) > 0);
	check(asprintf(&paths[1], LENGTHS_PATH, vhost) > 0);
	paths[2] = checked(strdup(NODES_PATH));
	while (n < 3 && (answers[n] = get(host, paths[n], stop, error)))
		n++;
	if (n == 3)
		cluster = cluster_describe(answers[2], answers[0], answers[1]);
	for (int i = 0; i < 3; i++) {
		cJSON_Delete(answers[i]);
		free(paths[i]);
	}
	return cluster;
}

cJSON *rabbit_cluster_read(const char *api_url, const char *amqp_url, const atomic_int *stop,
			   char error[RABBIT_ERROR_SIZE])
{
	char why[RABBIT_ERROR_SIZE], text[RABBIT_HOST_SIZE], *vhost = NULL;
	struct rabbit_url amqp, api = { .hosts_n = 0 };
	cJSON *cluster = NULL;
	size_t len = 0;

	if (rabbit_url_parse(&amqp, amqp_url, error) || rabbit_api_parse(&api, api_url, error))
		goto out;
	vhost = checked(curl_easy_escape(NULL, amqp.hosts[0].info.vhost, 0));
	rabbit_url_shuffle(&api);
	error[0] = '\0';
	for (size_t i = 0; i < api.hosts_n && !cluster && !(stop && *stop); i++) {
		cluster = host_ask(&api.hosts[i], vhost, stop, why);
		if (!cluster && len < RABBIT_ERROR_SIZE)
			len += (size_t)snprintf(error + len, RABBIT_ERROR_SIZE - len, "%s%s: %s",
						len > 0 ? "; " : "",
						rabbit_host_text(&api.hosts[i], text), why);
	}
out:
	curl_free(vhost);
	rabbit_url_fini(&amqp);
	rabbit_url_fini(&api);
	return cluster;
}

const cJSON *rabbit_cluster_queue(const cJSON *cluster, const char *name)
{
	return named(cJSON_GetObjectItem(cluster, "queues"), name);
}

int rabbit_cluster_least(const cJSON *cluster, const char *list)
{
	const cJSON *queue;
	int least = -1;

	cJSON_ArrayForEach(queue, cJSON_GetObjectItem(cluster, "queues"))
	{
		int n = cJSON_GetArraySize(cJSON_GetObjectItem(queue, list));

		least = least < 0 || n < least ? n : least;
	}
	return least < 0 ? 0 : least;
}

#define NAMES_SIZE 512

/*
 * Lists at most `most` of the names in `all` that are not in `some`, each between `before` and
 * `after`. Returns `out`.
 */
static char *names_missing(const cJSON *all, const cJSON *some, int most, const char *before,
			   const char *after, char out[NAMES_SIZE])
{
	const cJSON *item, *other;
	size_t len = 0;

	out[0] = '\0';
	cJSON_ArrayForEach(item, all)
	{
		const char *name = cJSON_GetStringValue(item);
		int is_missing = 1;

		cJSON_ArrayForEach(other, some)
			is_missing &= strcmp(cJSON_GetStringValue(other), name) != 0;
		if (is_missing && most-- > 0 && len < NAMES_SIZE)
			len += (size_t)snprintf(out + len, NAMES_SIZE - len, "%s%s%s%s",
						len > 0 ? ", " : "", before, name, after);
	}
	return out;
}

void rabbit_cluster_warnings(const cJSON *cluster, cJSON *array)
{
	const cJSON *nodes = cJSON_GetObjectItem(cluster, "nodes"), *queue;
	int wanted = (int)cJSON_GetNumberValue(cJSON_GetObjectItem(cluster, "wanted"));

	cJSON_ArrayForEach(queue, cJSON_GetObjectItem(cluster, "queues"))
	{
		const cJSON *members = cJSON_GetObjectItem(queue, "members"),
			    *online = cJSON_GetObjectItem(queue, "online");
		const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(queue, "name"));
		int members_n = cJSON_GetArraySize(members), online_n = cJSON_GetArraySize(online);
		char names[NAMES_SIZE];

		if (members_n < wanted)
			json_sentence_add(array, "rabbitmq: %s has %d of %d wanted members: %s",
					  name, members_n, wanted,
					  names_missing(nodes, members, wanted - members_n,
							"run rabbitmq-queues grow ", " all",
							names));
		if (online_n < members_n)
			json_sentence_add(array,
					  "rabbitmq: of %d members of %s %d are online: start "
					  "RabbitMQ on %s, or, if it is lost for good, run "
					  "rabbitmqctl forget_cluster_node for it",
					  members_n, name, online_n,
					  names_missing(members, online, members_n, "", "", names));
	}
}
