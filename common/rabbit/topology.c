#include "common/rabbit/topology.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fetch.h"
#include "common/log/log.h"
#include "common/message/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNLIMITED_FROM 4 /* the major version of RabbitMQ that has a delivery limit by default */

const struct rabbit_queue_place rabbit_queue_places[RABBIT_QUEUES_N] = {
	[RABBIT_QUEUE_RECEIVES] = { .name = AMQP_QUEUE,
				    .exchange = AMQP_EXCHANGE,
				    .routing_key = AMQP_ROUTING_KEY },
	[RABBIT_QUEUE_PARKED] = { .name = AMQP_PARKED_QUEUE,
				  .exchange = AMQP_EXCHANGE,
				  .routing_key = AMQP_PARKED_KEY },
	[RABBIT_QUEUE_USES] = { .name = AMQP_USE_QUEUE,
				.exchange = AMQP_EXCHANGE,
				.routing_key = AMQP_USE_KEY },
	[RABBIT_QUEUE_DEAD] = { .name = AMQP_DEAD_QUEUE,
				.exchange = AMQP_DEAD_EXCHANGE,
				.routing_key = "#" },
};

static atomic_uint differing; /* one bit for each queue; all connections have the same broker */

static int differs(enum rabbit_queue queue)
{
	return (atomic_load(&differing) & 1u << queue) != 0;
}

struct declaring {
	amqp_connection_state_t connection;
	int nowait;
	int confirms;
	int64_t deadline_ms;
	char *error;
};

/*
 * One declaration or binding. Without `nowait` its reply has the next method number. 0, the status
 * of the library, or -1 with `*code`: why the broker closed the channel, 0 if it did not.
 */
static int step(const struct declaring *declaring, amqp_method_number_t id, void *method, int *code)
{
	amqp_method_number_t replies[] = { id + 1, 0 };
	amqp_rpc_reply_t reply;

	*code = 0;
	if (declaring->nowait)
		return amqp_send_method(declaring->connection, RABBIT_CHANNEL, id, method);
	rabbit_time_left_set(declaring->connection, declaring->deadline_ms);
	reply = amqp_simple_rpc(declaring->connection, RABBIT_CHANNEL, id, replies, method);
	*code = rabbit_reply_code(reply);
	return rabbit_reply_check(reply, declaring->error);
}

static int queue_declare(const struct declaring *declaring, const char *name, int passive,
			 int *code)
{
	amqp_table_entry_t arguments[] = {
		{ .key = amqp_cstring_bytes("x-queue-type"),
		  .value = { .kind = AMQP_FIELD_KIND_UTF8,
			     .value.bytes = amqp_cstring_bytes("quorum") } },
		{ .key = amqp_cstring_bytes("x-delivery-limit"),
		  .value = { .kind = AMQP_FIELD_KIND_I32, .value.i32 = -1 } },
	};
	int arguments_n = rabbit_server_major(declaring->connection) >= UNLIMITED_FROM ? 2 : 1;
	amqp_queue_declare_t method = { .queue = amqp_cstring_bytes(name),
					.durable = 1,
					.passive = passive,
					.nowait = declaring->nowait,
					.arguments = { .num_entries = arguments_n,
						       .entries = arguments } };

	return step(declaring, AMQP_QUEUE_DECLARE_METHOD, &method, code);
}

/*
 * As queue_declare(). If the broker refuses for the reason `refusal`, it closes the channel, which
 * is opened again: 1.
 */
static int queue_declare_or_reopen(const struct declaring *declaring, const char *name, int passive,
				   int refusal)
{
	char ignored[RABBIT_ERROR_SIZE];
	int code, status = queue_declare(declaring, name, passive, &code);

	if (code != refusal)
		return status;
	return rabbit_channel_reopen(declaring->connection, declaring->confirms,
				     declaring->deadline_ms, ignored)
		       ? -1
		       : 1;
}

/*
 * Declares the queue, or finds it as it is, and binds it. A queue that is there is not bound again:
 * RabbitMQ before Khepri locks its tables on all nodes for a binding, even for one that exists, and
 * while one of them does not answer this waits for a minute, until it counts as down. A binding
 * that is missing is noticed by the publisher whose message is returned, and it declares with
 * `nowait`.
 */
static int queue_place(const struct declaring *declaring, enum rabbit_queue queue)
{
	const struct rabbit_queue_place *place = &rabbit_queue_places[queue];
	amqp_queue_bind_t binding = { .queue = amqp_cstring_bytes(place->name),
				      .exchange = amqp_cstring_bytes(place->exchange),
				      .routing_key = amqp_cstring_bytes(place->routing_key),
				      .nowait = declaring->nowait };
	int code, status, is_new = 1;

	if (declaring->nowait) {
		status = queue_declare(declaring, place->name, differs(queue), &code);
	} else {
		is_new = queue_declare_or_reopen(declaring, place->name, 1, AMQP_NOT_FOUND);
		if (is_new < 0)
			return is_new;
		status = queue_declare_or_reopen(declaring, place->name, 0,
						 AMQP_PRECONDITION_FAILED);
		if (status == 0)
			atomic_fetch_and(&differing, ~(1u << queue));
		if (status == 1) {
			if (!(atomic_fetch_or(&differing, 1u << queue) & 1u << queue))
				log_error("queue_differs", LOG_S("name", place->name),
					  LOG_S("error", declaring->error),
					  LOG_S("mend", "couponctl queue move"));
			status = queue_declare(declaring, place->name, 1, &code);
		}
	}
	if (status || !is_new)
		return status;
	return step(declaring, AMQP_QUEUE_BIND_METHOD, &binding, &code);
}

/*
 * Declares all of it; everything is idempotent. 0, or the status of the step that failed. An
 * exchange that exists with other properties is an error, and is logged.
 */
static int declaring_run(const struct declaring *declaring)
{
	static const char *const exchanges[] = { AMQP_EXCHANGE, AMQP_DEAD_EXCHANGE,
						 AMQP_EVENT_EXCHANGE };
	int status, code;

	for (size_t i = 0; i < sizeof(exchanges) / sizeof(exchanges[0]); i++) {
		amqp_exchange_declare_t method = { .exchange = amqp_cstring_bytes(exchanges[i]),
						   .type = amqp_cstring_bytes("topic"),
						   .durable = 1,
						   .nowait = declaring->nowait };

		status = step(declaring, AMQP_EXCHANGE_DECLARE_METHOD, &method, &code);
		if (code == AMQP_PRECONDITION_FAILED)
			log_error("exchange_differs", LOG_S("name", exchanges[i]),
				  LOG_S("error", declaring->error));
		if (status)
			return status;
	}
	for (enum rabbit_queue queue = 0; queue < RABBIT_QUEUES_N; queue++)
		if ((status = queue_place(declaring, queue)))
			return status;
	return 0;
}

int rabbit_topology_declare(amqp_connection_state_t connection, int confirms, int64_t deadline_ms,
			    char error[RABBIT_ERROR_SIZE])
{
	const struct declaring declaring = { .connection = connection,
					     .confirms = confirms,
					     .deadline_ms = deadline_ms,
					     .error = error };

	return declaring_run(&declaring) ? -1 : 0;
}

int rabbit_topology_declare_send(amqp_connection_state_t connection)
{
	return declaring_run(&(struct declaring){ .connection = connection, .nowait = 1 });
}

int rabbit_queue_declare(amqp_connection_state_t connection, int confirms, const char *name,
			 char error[RABBIT_ERROR_SIZE])
{
	struct declaring declaring = { .connection = connection,
				       .confirms = confirms,
				       .deadline_ms = clock_monotonic_ms() +
						      2000 * RABBIT_TIMEOUT_S,
				       .error = error };
	int rc = queue_declare_or_reopen(&declaring, name, 0, AMQP_PRECONDITION_FAILED);

	rabbit_time_restore(connection);
	return rc;
}

int rabbit_topology_differing_n(void)
{
	int n = 0;

	for (enum rabbit_queue queue = 0; queue < RABBIT_QUEUES_N; queue++)
		n += differs(queue);
	return n;
}

void rabbit_topology_warnings(cJSON *array)
{
	for (enum rabbit_queue queue = 0; queue < RABBIT_QUEUES_N; queue++)
		if (differs(queue))
			json_sentence_add(array,
					  "rabbitmq: %s exists with other arguments, for instance "
					  "a delivery limit; run couponctl queue move",
					  rabbit_queue_places[queue].name);
}

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
#define HEALTH_PATH \
	NODES_PATH ",running,disk_free,disk_free_limit,disk_free_alarm,mem_alarm,fd_used,fd_total"

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

cJSON *rabbit_cluster_read(const char *api_url, const char *amqp_url, const atomic_int *stop,
			   char error[RABBIT_ERROR_SIZE])
{
	char why[RABBIT_ERROR_SIZE], text[RABBIT_HOST_SIZE], *vhost = NULL, *paths[3] = { NULL };
	struct rabbit_url amqp, api = { .hosts_n = 0 };
	cJSON *cluster = NULL;
	size_t len = 0;

	if (rabbit_url_parse(&amqp, amqp_url, error) || rabbit_api_parse(&api, api_url, error))
		goto out;
	vhost = checked(curl_easy_escape(NULL, amqp.hosts[0].info.vhost, 0));
	check(asprintf(&paths[0], MEMBERS_PATH, vhost) > 0);
	check(asprintf(&paths[1], LENGTHS_PATH, vhost) > 0);
	paths[2] = checked(strdup(NODES_PATH));
	rabbit_url_shuffle(&api);
	error[0] = '\0';
	for (size_t i = 0; i < api.hosts_n && !cluster && !(stop && *stop); i++) {
		cJSON *answers[3] = { NULL };
		int n = 0;

		while (n < 3 && (answers[n] = get(&api.hosts[i], paths[n], stop, why)))
			n++;
		if (n == 3)
			cluster = cluster_describe(answers[2], answers[0], answers[1]);
		else if (len < RABBIT_ERROR_SIZE)
			len += (size_t)snprintf(error + len, RABBIT_ERROR_SIZE - len, "%s%s: %s",
						len > 0 ? "; " : "",
						rabbit_host_text(&api.hosts[i], text), why);
		while (n > 0)
			cJSON_Delete(answers[--n]);
	}
out:
	for (int i = 0; i < 3; i++)
		free(paths[i]);
	curl_free(vhost);
	rabbit_url_fini(&amqp);
	rabbit_url_fini(&api);
	return cluster;
}

cJSON *rabbit_nodes_read(const char *api_url, char error[RABBIT_ERROR_SIZE])
{
	struct rabbit_url api;
	cJSON *nodes = NULL;

	if (rabbit_api_parse(&api, api_url, error) == 0) {
		rabbit_url_shuffle(&api);
		for (size_t i = 0; i < api.hosts_n && !nodes; i++)
			nodes = get(&api.hosts[i], HEALTH_PATH, NULL, error);
	}
	rabbit_url_fini(&api);
	return nodes;
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
