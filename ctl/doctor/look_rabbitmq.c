/* The lines of RabbitMQ. AMQP tells little: the rest is told by the management API. */
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "common/rabbit/rabbit_publisher.h"
#include "common/rabbit/topology.h"
#include "ctl/doctor/doctor.h"
#include "ctl/rabbit.h"

#include <stdio.h>
#include <string.h>

#define QUEUE_SIZE 64
#define SYNC_MOST_MS 100
#define PING_MOST_MS 20
#define CONFIRM_WAIT_MS 5000
#define API_MEND                                                          \
	"set COUPON_RABBITMQ_API; see docs/guides/high-availability.md, " \
	"a cluster of RabbitMQ"

/* A queue that only this connection has, and a connection that publishes to it. */
struct probe {
	char queue[QUEUE_SIZE];
	struct rabbit_publisher *sender;
	int is_failed; /* the last message was not confirmed */
};

static enum health ping(struct doctor *doctor, const void *context, char *why, size_t size)
{
	char error[RABBIT_ERROR_SIZE];

	(void)context;
	amqp_basic_qos(doctor->rabbit, RABBIT_CHANNEL, 0, 1, 0);
	if (rabbit_reply_check(amqp_get_rpc_reply(doctor->rabbit), error) == 0)
		return HEALTH_OK;
	snprintf(why, size, "%s", error);
	return HEALTH_WRONG;
}

static void on_confirmed(void *context, void *item, enum confirm_result result)
{
	struct probe *probe = context;

	(void)item;
	probe->is_failed = result != CONFIRM_DONE;
}

static enum health publish_once(struct doctor *doctor, const void *context, char *why, size_t size)
{
	const struct probe *probe = context;
	const amqp_basic_properties_t properties = { ._flags = 0 };
	const char *trouble;

	(void)doctor;
	rabbit_sender_send(probe->sender, "", probe->queue, &properties, amqp_empty_bytes,
			   (void *)(uintptr_t)probe);
	trouble = rabbit_sender_wait(probe->sender, CONFIRM_WAIT_MS);
	if (trouble)
		snprintf(why, size, "%s", trouble);
	else if (probe->is_failed)
		snprintf(why, size, "RabbitMQ refused a message");
	return trouble || probe->is_failed ? HEALTH_WRONG : HEALTH_OK;
}

/*
 * A confirmed publish. The queue is exclusive: a quorum queue would outlive this connection. So the
 * time has what publishers wait for, but for the disks of the nodes.
 */
static void confirm_say(struct doctor *doctor)
{
	static const struct rabbit_publisher_port port = { .done = on_confirmed };
	struct probe probe = { .sender = NULL };
	char error[RABBIT_ERROR_SIZE];
	struct ulid ulid;
	char id[ULID_UUID_SIZE];

	ulid_new(&ulid, clock_wall_ms());
	ulid_to_uuid(&ulid, id);
	snprintf(probe.queue, sizeof(probe.queue), "coupon.doctor.%s", id);
	amqp_queue_declare(doctor->rabbit, RABBIT_CHANNEL, amqp_cstring_bytes(probe.queue), 0, 0, 1,
			   1, amqp_empty_table);
	if (rabbit_reply_check(amqp_get_rpc_reply(doctor->rabbit), error) == 0)
		probe.sender = rabbit_sender_open(doctor->config->amqp_url, &port, &probe, error);
	if (!probe.sender) {
		doctor_unknown(doctor, "rabbitmq.confirm",
			       "rabbitmqctl set_permissions, as docs/guides/security.md has it "
			       "for the operator",
			       "%s", error);
		return;
	}
	time_say(doctor,
		 &(struct timed){ .name = "rabbitmq.confirm",
				  .wanted = "at most 100 ms",
				  .what = "the answer queued waits so long, and for the "
					  "disks of the nodes",
				  .mend = "look for an alarm of memory or disk: rabbitmqctl "
					  "status",
				  .n = 5,
				  .most_ms = SYNC_MOST_MS,
				  .once = publish_once,
				  .context = &probe });
	rabbit_publisher_close(probe.sender);
	rabbit_publisher_free(probe.sender);
}

/* Whether the queues are there, are those that the programs declare, and are consumed. */
static void queues_say(struct doctor *doctor)
{
	for (enum rabbit_queue i = 0; i < RABBIT_QUEUES_N && doctor->rabbit; i++) {
		const char *queue = rabbit_queue_places[i].name;
		int is_consumed = i != RABBIT_QUEUE_DEAD, is_there, differs = 0;
		char name[64], error[RABBIT_ERROR_SIZE];
		int64_t ready, consumers;
		struct sign sign = { .name = name, .wanted = "quorum" };

		snprintf(name, sizeof(name), "rabbitmq.%s", queue);
		is_there = rabbit_queue_try(doctor->rabbit, queue, &ready, &consumers, error);
		if (is_there == 1)
			differs = rabbit_queue_declare(doctor->rabbit, 0, queue, error);
		if (is_there < 0 || differs < 0) {
			doctor_unknown(doctor, name,
				       "rabbitmqctl set_permissions, as "
				       "docs/guides/security.md has it for the operator",
				       "%s", error);
			amqp_destroy_connection(doctor->rabbit);
			doctor->rabbit = rabbit_connection_open(doctor->config->amqp_url, 0, error);
			if (!doctor->rabbit)
				store_away(doctor, "rabbitmq.reached", NULL, error, NULL);
			continue;
		}
		if (is_there == 0) {
			sign.health = HEALTH_WRONG;
			sign.why = "the programs declare it when they start";
			sign.mend = "start a coupon-worker";
		} else if (differs) {
			sign.health = HEALTH_WRONG;
			sign.why =
				"it is no quorum queue without a delivery limit: receives may be "
				"lost with a node, or dropped";
			sign.mend = "couponctl queue move";
		} else if (is_consumed && consumers == 0) {
			sign.health = HEALTH_WRONG;
			sign.why = "nobody settles what is accepted";
			sign.mend = "start a coupon-worker (systemctl start coupon-worker@1)";
		}
		doctor_say(doctor, &sign, "%s%s",
			   is_there == 0 ? "absent"
			   : differs     ? "other arguments"
					 : "quorum",
			   sign.health == HEALTH_WRONG && is_there && !differs ? ", no consumer"
									       : "");
	}
}

/* The nodes by the management API: memory, disk and descriptors; and the members of the queues. */
static void nodes_say(struct doctor *doctor)
{
	static const char *const names[] = { "rabbitmq.disk", "rabbitmq.descriptors",
					     "rabbitmq.members" };
	const struct config *config = doctor->config;
	char error[RABBIT_ERROR_SIZE] = "AMQP does not tell it, and COUPON_RABBITMQ_API is not set";
	cJSON *nodes = *config->rabbitmq_api ? rabbit_nodes_read(config->rabbitmq_api, error)
					     : NULL,
	      *cluster, *warnings;
	const cJSON *node, *sentence;

	for (size_t i = 0; !nodes && i < sizeof(names) / sizeof(names[0]); i++)
		doctor_unknown(doctor, names[i], API_MEND, "%s", error);
	if (!nodes)
		return;

	cJSON_ArrayForEach(node, nodes)
	{
		const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(node, "name"));
		const cJSON *space = cJSON_GetObjectItem(node, "disk_free");
		double left = cJSON_GetNumberValue(space),
		       least = cJSON_GetNumberValue(cJSON_GetObjectItem(node, "disk_free_limit")),
		       total = cJSON_GetNumberValue(cJSON_GetObjectItem(node, "fd_total"));
		int is_alarm = cJSON_IsTrue(cJSON_GetObjectItem(node, "disk_free_alarm")),
		    is_memory = cJSON_IsTrue(cJSON_GetObjectItem(node, "mem_alarm"));

		name = name ? name : "?";
		if (cJSON_IsFalse(cJSON_GetObjectItem(node, "running")) || !cJSON_IsNumber(space)) {
			doctor_unknown(doctor, "rabbitmq.disk", "start RabbitMQ on that node",
				       "node %s does not run", name);
			continue;
		}
		if (is_memory)
			doctor_say(doctor,
				   &(struct sign){
					   .name = "rabbitmq.memory",
					   .health = HEALTH_WRONG,
					   .wanted = "no alarm",
					   .why = "RabbitMQ takes nothing from publishers",
					   .mend = "raise vm_memory_high_watermark, or give "
						   "the node more memory" },
				   "node %s: alarm", name);
		doctor_say(doctor,
			   &(struct sign){ .name = "rabbitmq.disk",
					   .health = is_alarm           ? HEALTH_WRONG
						     : left < 2 * least ? HEALTH_WARNING
									: HEALTH_OK,
					   .wanted = "more than twice disk_free_limit",
					   .why = is_alarm
							  ? "RabbitMQ takes nothing from publishers"
							  : "below disk_free_limit RabbitMQ takes "
							    "nothing from publishers",
					   .mend = DISK_MEND },
			   "node %s: %.0f MB free, limit %.0f MB", name, left / 1e6, least / 1e6);
		if (total > 0) /* version 4 has no such number */
			share_say(doctor, "rabbitmq.descriptors",
				  (int64_t)cJSON_GetNumberValue(
					  cJSON_GetObjectItem(node, "fd_used")),
				  (int64_t)total, "RabbitMQ refuses further connections",
				  "raise LimitNOFILE of its unit");
		else
			doctor_unknown(doctor, "rabbitmq.descriptors", NULL,
				       "this version of RabbitMQ does not tell it");
	}
	cJSON_Delete(nodes);

	cluster = rabbit_cluster_read(config->rabbitmq_api, config->amqp_url, NULL, error);
	if (!cluster) {
		doctor_unknown(doctor, "rabbitmq.members", API_MEND, "%s", error);
		return;
	}
	warnings = checked(cJSON_CreateArray());
	rabbit_cluster_warnings(cluster, warnings);
	cJSON_ArrayForEach(sentence, warnings)
	{
		doctor_say(doctor,
			   &(struct sign){ .name = "rabbitmq.members",
					   .health = HEALTH_WRONG,
					   .wanted = "all online",
					   .why = "a queue survives the loss of fewer nodes",
					   .mend = "as the value says" },
			   "%s", sentence->valuestring);
	}
	if (cJSON_GetArraySize(warnings) == 0)
		doctor_say(doctor,
			   &(struct sign){ .name = "rabbitmq.members", .wanted = "all online" },
			   "%d of %d online", rabbit_cluster_least(cluster, "online"),
			   rabbit_cluster_least(cluster, "members"));
	cJSON_Delete(warnings);
	cJSON_Delete(cluster);
}

void look_rabbitmq(struct doctor *doctor)
{
	char error[RABBIT_ERROR_SIZE], where[RABBIT_HOST_SIZE], version[SERVICE_VERSION_SIZE];
	struct rabbit_url url;
	size_t len = 0;
	char all[RABBIT_ERROR_SIZE] = "";
	int is_guest;

	if (rabbit_url_parse(&url, doctor->config->amqp_url, error)) {
		rabbit_url_fini(&url);
		log_fatal("%s", error);
	}
	for (size_t i = 0; i < url.hosts_n && len < sizeof(all); i++) {
		const struct rabbit_host *host = &url.hosts[i];

		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", len > 0 ? "," : "",
					rabbit_host_text(host, where));
		if (host->info.ssl)
			presented_say(doctor, "rabbitmq.certificate", host->info.host,
				      host->info.port);
	}
	is_guest = !url.user || strcmp(url.user, "guest") == 0;
	doctor->rabbit = rabbit_connection_open(doctor->config->amqp_url, 0, error);
	if (!doctor->rabbit) {
		store_away(doctor, "rabbitmq.reached", all, error,
			   "start RabbitMQ (systemctl start rabbitmq-server), or correct "
			   "AMQP_URL");
		goto out;
	}
	doctor_say(doctor, &(struct sign){ .name = "rabbitmq.reached" }, "%s", all);
	version_say(doctor, "rabbitmq.version", service_version_text(SERVICE_RABBITMQ, version));
	doctor_say(doctor,
		   &(struct sign){
			   .name = "rabbitmq.login",
			   .health = is_guest ? HEALTH_WARNING : HEALTH_OK,
			   .wanted = "couponmq_operator",
			   .why = "guest may do everything, and has a known password",
			   .mend = "make the users of deploy/rabbitmq.json, and name one in "
				   "AMQP_URL" },
		   "%s", url.user ? url.user : "guest");
	queues_say(doctor);
	if (doctor->rabbit)
		time_say(doctor, &(struct timed){ .name = "rabbitmq.latency",
						  .is_ping = 1,
						  .wanted = "at most 20 ms",
						  .what = "each message takes a round trip to "
							  "RabbitMQ",
						  .mend = LATENCY_MEND,
						  .n = 9,
						  .most_ms = PING_MOST_MS,
						  .once = ping });
	if (doctor->rabbit)
		confirm_say(doctor);
	nodes_say(doctor);
	rabbit_connection_close(doctor->rabbit);
out:
	rabbit_url_fini(&url);
}
