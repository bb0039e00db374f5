#include "compare/client.h"

#include "common/check.h"
#include "common/message/number.h"
#include "common/redis/redis.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define NUMBERS_MAX 8 /* of a statement */

#define QUEUE "compare"
#define PREFETCH 500
#define MESSAGE_SIZE 32

void client_fail(const char *store, const char *what, const char *why)
{
	fprintf(stderr, "compare: %s: %s: %s\n", store, what, why);
	exit(1);
}

/* ---- PostgreSQL: statements, prepared once for each connection */

static void postgres_open(struct client *client)
{
	client->postgres = PQconnectdb(client->market->postgres);
	if (PQstatus(client->postgres) != CONNECTION_OK)
		client_fail("PostgreSQL", "connect", PQerrorMessage(client->postgres));
	PQclear(PQexec(client->postgres,
		       "SET search_path = compare; SET client_min_messages = warning"));
}

void sql_script(struct client *client, const char *script)
{
	PGresult *result;

	if (!client->postgres)
		postgres_open(client);
	result = PQexec(client->postgres, script);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		client_fail("PostgreSQL", script, PQerrorMessage(client->postgres));
	PQclear(result);
}

/* A statement's name, and its arguments. */
struct call {
	char name[16], texts[NUMBERS_MAX][NUMBER_SIZE];
	const char *values[NUMBERS_MAX];
};

/* Prepares it when it is new. Each statement is one constant of the program. */
static const char *prepared(struct client *client, const char *statement, int n, char name[16])
{
	int i = 0;
	PGresult *result;

	if (!client->postgres)
		postgres_open(client);
	while (i < STATEMENTS_MAX && client->statements[i] && client->statements[i] != statement)
		i++;
	check(i < STATEMENTS_MAX);
	snprintf(name, 16, "s%d", i);
	if (client->statements[i])
		return name;
	client->statements[i] = statement;
	result = PQprepare(client->postgres, name, statement, n, NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		client_fail("PostgreSQL", statement, PQerrorMessage(client->postgres));
	PQclear(result);
	return name;
}

static long long result_number(const PGresult *result)
{
	if (PQresultStatus(result) == PGRES_COMMAND_OK)
		return strtoll(PQcmdTuples((PGresult *)(uintptr_t)result), NULL, 10);
	return PQntuples(result) > 0 ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : NONE;
}

static PGresult *result_check(struct client *client, const char *statement, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		client_fail("PostgreSQL", statement, PQerrorMessage(client->postgres));
	return result;
}

static void call_make(struct client *client, const char *statement, const long long *numbers, int n,
		      struct call *call)
{
	check(n <= NUMBERS_MAX);
	prepared(client, statement, n, call->name);
	for (int i = 0; i < n; i++)
		call->values[i] = number_text(numbers[i], call->texts[i]);
}

long long sql_run(struct client *client, const char *statement, const long long *numbers, int n)
{
	struct call call;
	PGresult *result;
	long long number;

	call_make(client, statement, numbers, n, &call);
	result = PQexecPrepared(client->postgres, call.name, n, call.values, NULL, NULL, 0);
	number = result_number(result_check(client, statement, result));
	PQclear(result);
	return number;
}

/* An array of PostgreSQL, allocated. */
static char *array_write(const long long *numbers, int n)
{
	char *text = malloc((size_t)n * (NUMBER_SIZE + 1) + 3), *at = text;

	check(text != NULL);
	for (int i = 0; i < n; i++)
		at += sprintf(at, "%c%lld", i ? ',' : '{', numbers[i]);
	strcpy(at, n ? "}" : "{}");
	return text;
}

void sql_many(struct client *client, const char *statement, long long number, const long long *many,
	      int n, long long *out)
{
	char text[NUMBER_SIZE], name[16], *array = array_write(many, n);
	const char *values[] = { number_text(number, text), array };
	PGresult *result = PQexecPrepared(client->postgres, prepared(client, statement, 2, name), 2,
					  values, NULL, NULL, 0);

	result_check(client, statement, result);
	check(!out || PQntuples(result) == n);
	for (int i = 0; out && i < n; i++)
		out[i] = strtoll(PQgetvalue(result, i, 0), NULL, 10);
	PQclear(result);
	free(array);
}

void sql_send(struct client *client, const char *statement, const long long *numbers, int n)
{
	struct call call;

	call_make(client, statement, numbers, n, &call);
	PQenterPipelineMode(client->postgres);
	if (!PQsendQueryPrepared(client->postgres, call.name, n, call.values, NULL, NULL, 0) ||
	    !PQpipelineSync(client->postgres))
		client_fail("PostgreSQL", statement, PQerrorMessage(client->postgres));
}

long long sql_answer(struct client *client)
{
	PGresult *result = PQgetResult(client->postgres);
	long long number = result_number(result_check(client, "a pipeline", result));

	PQclear(result);
	check(PQgetResult(client->postgres) == NULL);
	result = PQgetResult(client->postgres);
	check(PQresultStatus(result) == PGRES_PIPELINE_SYNC);
	PQclear(result);
	return number;
}

/* ---- Redis: commands, each a round trip, or several together */

static void redis_open(struct client *client)
{
	struct redis_url url;

	redis_url_need(&url, client->market->redis);
	client->redis = redisConnect(url.host, url.port);
	if (!client->redis || client->redis->err)
		client_fail("Redis", "connect", client->redis ? client->redis->errstr : "memory");
	if (url.password)
		redis_run(client, "AUTH %s", url.password);
	redis_run(client, "SELECT %d", url.database);
	redis_url_fini(&url);
}

static long long reply_number(const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_INTEGER:
		return reply->integer;
	case REDIS_REPLY_STRING:
		return strtoll(reply->str, NULL, 10);
	case REDIS_REPLY_ARRAY:
		return (long long)reply->elements;
	case REDIS_REPLY_STATUS:
		return 1;
	default:
		return NONE;
	}
}

static redisReply *reply_get(struct client *client, const char *what)
{
	redisReply *reply;

	if (redisGetReply(client->redis, (void **)&reply))
		client_fail("Redis", what, client->redis->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		client_fail("Redis", what, reply->str);
	return reply;
}

static void command_send(struct client *client, const char *format, va_list list)
{
	if (!client->redis)
		redis_open(client);
	if (redisvAppendCommand(client->redis, format, list))
		client_fail("Redis", format, client->redis->errstr);
}

static long long number_get(struct client *client, const char *what)
{
	redisReply *reply = reply_get(client, what);
	long long number = reply_number(reply);

	freeReplyObject(reply);
	return number;
}

long long redis_run(struct client *client, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	command_send(client, format, list);
	va_end(list);
	return number_get(client, format);
}

void redis_ask(struct client *client, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	command_send(client, format, list);
	va_end(list);
}

long long redis_answer(struct client *client)
{
	return number_get(client, "a pipeline");
}

void redis_script_load(struct client *client, const char *script, char sha[REDIS_SHA_SIZE])
{
	redisReply *reply;

	redis_ask(client, "SCRIPT LOAD %s", script);
	reply = reply_get(client, "SCRIPT LOAD");
	check(reply->type == REDIS_REPLY_STRING && reply->len == REDIS_SHA_SIZE - 1);
	memcpy(sha, reply->str, REDIS_SHA_SIZE);
	freeReplyObject(reply);
}

/* ---- the queue of a pipeline: a connection with one channel */

static void rpc_check(struct client *client, const char *what)
{
	char error[RABBIT_ERROR_SIZE];

	if (rabbit_reply_check(amqp_get_rpc_reply(client->queue), error))
		client_fail("RabbitMQ", what, error);
}

static void queue_open(struct client *client)
{
	char error[RABBIT_ERROR_SIZE];

	if (client->queue)
		return;
	client->queue = rabbit_connection_open(client->market->rabbit, 0, error);
	if (!client->queue)
		client_fail("RabbitMQ", "connect", error);
	amqp_queue_declare(client->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE), 0, 1, 0, 0,
			   amqp_empty_table);
	rpc_check(client, "declare the queue");
}

void queue_clear(struct client *client)
{
	queue_open(client);
	amqp_queue_purge(client->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE));
	rpc_check(client, "purge the queue");
}

void queue_publish(struct client *client, const struct request *request)
{
	char body[MESSAGE_SIZE];
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
					       .delivery_mode = AMQP_DELIVERY_PERSISTENT };

	queue_open(client);
	snprintf(body, sizeof(body), "%d %d", request->item, request->user);
	if (amqp_basic_publish(client->queue, RABBIT_CHANNEL, amqp_empty_bytes,
			       amqp_cstring_bytes(QUEUE), 0, 0, &properties,
			       amqp_cstring_bytes(body)) != AMQP_STATUS_OK)
		client_fail("RabbitMQ", "publish", body);
}

static void consume(struct client *client)
{
	queue_open(client);
	amqp_basic_qos(client->queue, RABBIT_CHANNEL, 0, PREFETCH, 0);
	amqp_basic_consume(client->queue, RABBIT_CHANNEL, amqp_cstring_bytes(QUEUE),
			   amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
	rpc_check(client, "consume");
	client->is_consuming = 1;
}

int queue_take(struct client *client, struct request *request, int wait_us)
{
	char body[MESSAGE_SIZE] = "", error[RABBIT_ERROR_SIZE];
	amqp_envelope_t envelope;
	amqp_rpc_reply_t reply;

	if (!client->is_consuming)
		consume(client);
	amqp_maybe_release_buffers(client->queue);
	reply = amqp_consume_message(client->queue, &envelope,
				     &(struct timeval){ .tv_usec = wait_us }, 0);
	if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
	    reply.library_error == AMQP_STATUS_TIMEOUT)
		return 0;
	if (rabbit_reply_check(reply, error))
		client_fail("RabbitMQ", "consume", error);
	check(envelope.message.body.len < sizeof(body));
	memcpy(body, envelope.message.body.bytes, envelope.message.body.len);
	check(sscanf(body, "%d %d", &request->item, &request->user) == 2);
	client->queue_tag = envelope.delivery_tag;
	amqp_destroy_envelope(&envelope);
	return 1;
}

void queue_ack(struct client *client, int multiple)
{
	if (amqp_basic_ack(client->queue, RABBIT_CHANNEL, client->queue_tag, multiple))
		client_fail("RabbitMQ", "ack", "the connection is lost");
}

/* ---- couponmq's gateway: lines in, lines out */

static int gateway_connect(const char *address)
{
	char host[256];
	const char *colon = strrchr(address, ':');
	struct addrinfo *found, hints = { .ai_socktype = SOCK_STREAM };
	int fd;

	if (!colon || colon - address >= (long)sizeof(host))
		client_fail("gateway", "COUPON_LISTEN", address);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	if (getaddrinfo(host, colon + 1, &hints, &found))
		client_fail("gateway", "resolve", address);
	fd = socket(found->ai_family, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen))
		client_fail("gateway", "connect", address);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	freeaddrinfo(found);
	return fd;
}

void gateway_open(struct client *client)
{
	int fd = gateway_connect(client->market->gateway);

	client->gateway_in = fdopen(fd, "r");
	client->gateway_out = fdopen(dup(fd), "w");
	check(client->gateway_in && client->gateway_out);
}

/* ---- the client */

struct client *client_new(struct market *market, const struct way *way)
{
	struct client *client = checked(calloc(1, sizeof(*client)));

	client->market = market;
	client->way = way;
	return client;
}

void client_free(struct client *client)
{
	lock_owner_free(client->locks);
	if (client->gateway_in)
		fclose(client->gateway_in);
	if (client->gateway_out)
		fclose(client->gateway_out);
	if (client->queue)
		amqp_destroy_connection(client->queue);
	if (client->redis)
		redisFree(client->redis);
	if (client->postgres)
		PQfinish(client->postgres);
	free(client->own);
	free(client);
}
