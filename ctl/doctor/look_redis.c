/* The lines of Redis. */
#include "common/log/log.h"
#include "common/resolving.h"
#include "ctl/doctor/doctor.h"
#include "ctl/doctor/vitals.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define WHERE_SIZE 320
#define INFO_SIZE 64
#define PROBE_KEY "couponmq:doctor"
#define PROBE_MS "1000"
#define SYNC_MOST_MS 50
#define PING_MOST_MS 20

/* The member of a reply to INFO; "" when it has none. */
static const char *info_text(const redisReply *info, const char *name, char out[INFO_SIZE])
{
	char line[INFO_SIZE];
	const char *at;

	snprintf(line, sizeof(line), "\n%s:", name);
	at = info && info->str ? strstr(info->str, line) : NULL;
	at = at ? at + strlen(line) : "";
	snprintf(out, INFO_SIZE, "%.*s", (int)strcspn(at, "\r\n"), at);
	return out;
}

static int64_t info_number(const redisReply *info, const char *name)
{
	char text[INFO_SIZE];

	return strtoll(info_text(info, name, text), NULL, 10);
}

/* One command, also after a refusal that has closed the connection. */
static redisReply *ask(struct doctor *doctor, int argc, const char **argv)
{
	return redis_client_open(doctor->redis) ? NULL
						: redis_client_call(doctor->redis, argc, argv);
}

static redisReply *info_read(struct doctor *doctor, const char *section)
{
	return ask(doctor, 2, (const char *[]){ "INFO", section });
}

/* What mends it that Redis did not tell: the right, if that was the reason; else NULL. */
static const char *right_mend(const struct doctor *doctor, const char *mend)
{
	const char *error = redis_client_error(doctor->redis);

	return !*error || strstr(error, "NOPERM") || strstr(error, "unknown command") ? mend : NULL;
}

static void settings_say(struct doctor *doctor, struct durability *durability)
{
	struct durability_setting one;
	int has_sentinels = redis_url_has_sentinels(doctor->config->redis_url), is_unknown;
	char name[64], mend[160];
	const char *error = redis_client_error(doctor->redis);

	vitals_redis_settings(doctor->redis, has_sentinels, durability);
	is_unknown = durability->unknown[DURABILITY_REDIS];
	for (int i = 0; durability_setting_read(durability, i, &one) == 0; i++) {
		if (one.part != DURABILITY_REDIS ||
		    (!*one.value && !is_unknown && !durability->is_acknowledged) ||
		    (!has_sentinels && strcmp(one.name, "min-replicas-to-write") == 0))
			continue;
		snprintf(name, sizeof(name), "redis.%s", one.name);
		snprintf(mend, sizeof(mend),
			 "redis-cli CONFIG SET %s %s && redis-cli CONFIG REWRITE", one.name,
			 one.wanted);
		if (*one.value)
			durability_say(doctor, name, &one, mend);
		else if (durability->is_acknowledged)
			doctor_say(doctor, &(struct sign){ .name = name, .wanted = one.wanted },
				   "not shown, and acknowledged by COUPON_REDIS_DURABILITY");
		else
			doctor_unknown(doctor, name,
				       right_mend(doctor,
						  "look it up another way, then set "
						  "COUPON_REDIS_DURABILITY=acknowledged; or allow "
						  "couponctl's user +config|get"),
				       "Redis does not show its settings%s%s", *error ? ": " : "",
				       error);
	}
}

static enum health ping(struct doctor *doctor, const void *context, char *why, size_t size)
{
	redisReply *reply = ask(doctor, 1, (const char *[]){ "PING" });

	(void)context;
	snprintf(why, size, "%s", redis_client_error(doctor->redis));
	freeReplyObject(reply);
	return reply ? HEALTH_OK : HEALTH_WRONG;
}

/* Redis replies to the transaction when its disk has it: appendfsync is always. */
static enum health write_once(struct doctor *doctor, const void *context, char *why, size_t size)
{
	static const struct redis_words commands[] = {
		{ { "HSET", PROBE_KEY, "by", "doctor" } },
		{ { "PEXPIRE", PROBE_KEY, PROBE_MS } },
	};
	redisReply *reply = redis_client_open(doctor->redis)
				    ? NULL
				    : redis_client_transaction(doctor->redis, commands, 2);
	int is_done = reply && reply->type == REDIS_REPLY_ARRAY;

	(void)context;
	snprintf(why, size, "%s", redis_client_error(doctor->redis));
	for (size_t i = 0; is_done && i < reply->elements; i++) {
		if (reply->element[i]->type != REDIS_REPLY_ERROR)
			continue;
		snprintf(why, size, "%s", reply->element[i]->str);
		is_done = 0;
	}
	if (reply)
		freeReplyObject(reply);
	return is_done ? HEALTH_OK : strncmp(why, "NOPERM", 6) == 0 ? HEALTH_UNKNOWN : HEALTH_WRONG;
}

/* The time of a sync can only be seen where Redis waits for it. */
static void sync_say(struct doctor *doctor, const struct durability *durability,
		     const redisReply *persistence)
{
	const char *only_file = "", *only_sync = "";
	struct durability_setting one;

	for (int i = 0; durability_setting_read(durability, i, &one) == 0; i++) {
		if (strcmp(one.name, "appendonly") == 0)
			only_file = one.value;
		else if (strcmp(one.name, "appendfsync") == 0)
			only_sync = one.value;
	}
	if (strcmp(only_file, "yes") == 0 && strcmp(only_sync, "always") == 0)
		time_say(doctor,
			 &(struct timed){ .name = "redis.sync",
					  .wanted = "at most 50 ms",
					  .what = "each batch of receives waits so long for the "
						  "disk of Redis",
					  .mend = SYNC_MEND,
					  .n = 5,
					  .most_ms = SYNC_MOST_MS,
					  .once = write_once });
	else
		doctor_unknown(doctor, "redis.sync", NULL,
			       "Redis replies before its disk has a write, unless appendonly is "
			       "yes and appendfsync is always; so far %lld writes waited for a "
			       "sync (aof_delayed_fsync)",
			       (long long)info_number(persistence, "aof_delayed_fsync"));
}

static void disk_look(struct doctor *doctor, const redisReply *persistence, int is_here)
{
	char status[INFO_SIZE];
	redisReply *reply;

	if (strcmp(info_text(persistence, "aof_last_write_status", status), "err") == 0) {
		doctor_say(doctor,
			   &(struct sign){ .name = "redis.disk",
					   .health = HEALTH_WRONG,
					   .wanted = "ok",
					   .why = "Redis could not write its file, and refuses "
						  "writes",
					   .mend = DISK_MEND },
			   "%s", status);
		return;
	}
	if (!is_here) {
		doctor_unknown(doctor, "redis.disk", NULL,
			       "Redis runs on another machine, and does not tell the space");
		return;
	}
	reply = ask(doctor, 3, (const char *[]){ "CONFIG", "GET", "dir" });
	if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
		disk_say(doctor, "redis.disk", reply->element[1]->str);
	else
		doctor_unknown(doctor, "redis.disk",
			       right_mend(doctor, "allow couponctl's user +config|get"),
			       "Redis does not show its folder");
	freeReplyObject(reply);
}

/* Under Sentinels the server is known only by its connection. */
static void master_presented_say(struct doctor *doctor)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	char host[WHERE_SIZE], port[16];

	if (getpeername(redis_client_fd(doctor->redis), (struct sockaddr *)&address, &size) == 0 &&
	    getnameinfo((struct sockaddr *)&address, size, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		presented_say(doctor, "redis.certificate", host, atoi(port));
}

void look_redis(struct doctor *doctor)
{
	const struct config *config = doctor->config;
	struct durability durability = { .is_acknowledged = durability_is_acknowledged(config),
					 .is_silent = 1 };
	char where[WHERE_SIZE] = "the Sentinels", run_id[REDIS_RUN_ID_SIZE],
	     version[SERVICE_VERSION_SIZE];
	redisReply *memory, *clients, *persistence;
	int64_t uptime_s, ahead_ms, most, used;
	struct redis_url url;
	int is_here;

	redis_url_need(&url, config->redis_url);
	if (url.host)
		snprintf(where, sizeof(where), "%s:%d", url.host, url.port);
	is_here = url.host && host_is_loopback(url.host);
	if (url.is_tls && url.host)
		presented_say(doctor, "redis.certificate", url.host, url.port);

	doctor->redis = redis_client_new(config->redis_url, NULL);
	if (redis_client_open(doctor->redis)) {
		store_away(doctor, "redis.reached", where, redis_client_error(doctor->redis),
			   "start Redis (systemctl start redis-server), or correct REDIS_URL");
		redis_client_free(doctor->redis);
		doctor->redis = NULL;
		goto out;
	}
	doctor_say(doctor, &(struct sign){ .name = "redis.reached" }, "%s", where);
	if (url.is_tls && !url.host)
		master_presented_say(doctor);
	if (redis_client_process(doctor->redis, run_id, &uptime_s) == 0)
		version_say(doctor, "redis.version", service_version_text(SERVICE_REDIS, version));
	else
		doctor_unknown(doctor, "redis.version",
			       right_mend(doctor, "allow couponctl's user +info"), "%s",
			       redis_client_error(doctor->redis));
	doctor_say(doctor,
		   &(struct sign){
			   .name = "redis.login",
			   .health = url.user ? HEALTH_OK : HEALTH_WARNING,
			   .wanted = "couponmq_operator",
			   .why = "the default user may do everything, on all keys",
			   .mend = "make the users of deploy/redis-users.conf, and name one "
				   "in REDIS_URL" },
		   "%s", url.user ? url.user : "default");
	settings_say(doctor, &durability);

	memory = info_read(doctor, "memory");
	clients = info_read(doctor, "clients");
	persistence = info_read(doctor, "persistence");
	most = info_number(memory, "maxmemory");
	used = info_number(memory, "used_memory");
	if (!memory)
		doctor_unknown(doctor, "redis.memory",
			       right_mend(doctor, "allow couponctl's user +info"), "%s",
			       redis_client_error(doctor->redis));
	else if (most > 0)
		share_say(doctor, "redis.memory", used, most, "a full Redis refuses every receive",
			  "give Redis more memory (maxmemory)");
	else
		doctor_say(doctor, &(struct sign){ .name = "redis.memory" },
			   "%lld MB, no limit by maxmemory", (long long)(used >> 20));
	if (clients)
		share_say(doctor, "redis.descriptors", info_number(clients, "connected_clients"),
			  info_number(clients, "maxclients"),
			  "Redis refuses further connections of the programs",
			  "raise maxclients, and LimitNOFILE of its unit");
	else
		doctor_unknown(doctor, "redis.descriptors",
			       right_mend(doctor, "allow couponctl's user +info"), "%s",
			       redis_client_error(doctor->redis));
	disk_look(doctor, persistence, is_here);
	time_say(doctor, &(struct timed){ .name = "redis.latency",
					  .is_ping = 1,
					  .wanted = "at most 20 ms",
					  .what = "each batch of receives takes a round trip to "
						  "Redis",
					  .mend = LATENCY_MEND,
					  .n = 9,
					  .most_ms = PING_MOST_MS,
					  .once = ping });
	sync_say(doctor, &durability, persistence);
	if (vitals_clock_ahead(doctor->redis, NULL, &ahead_ms) == 0)
		clock_say(doctor, "redis.clock", ahead_ms);
	else
		doctor_unknown(doctor, "redis.clock", NULL, "%s",
			       redis_client_error(doctor->redis));
	freeReplyObject(memory);
	freeReplyObject(clients);
	freeReplyObject(persistence);
out:
	redis_url_fini(&url);
}
