/* A client, and its connections: statements of PostgreSQL, commands of Redis. */
#include "compare/way.h"

#include "common/check.h"
#include "common/message/number.h"
#include "common/redis/redis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX 8 /* of a statement */

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

static PGresult *result_check(struct client *client, const char *statement, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		client_fail("PostgreSQL", statement, PQerrorMessage(client->postgres));
	return result;
}

void sql_script(struct client *client, const char *script)
{
	if (!client->postgres)
		postgres_open(client);
	PQclear(result_check(client, script, PQexec(client->postgres, script)));
}

/* A prepared statement, and its arguments. */
struct call {
	char name[16], texts[NUMBERS_MAX][NUMBER_SIZE];
	const char *values[NUMBERS_MAX + 1];
	int n;
};

/* Prepares it when it is new. Each statement is one constant of the program. */
static void prepare(struct client *client, const char *statement, struct call *call)
{
	int i = 0;

	if (!client->postgres)
		postgres_open(client);
	while (i < STATEMENTS_MAX && client->statements[i] && client->statements[i] != statement)
		i++;
	check(i < STATEMENTS_MAX);
	snprintf(call->name, sizeof(call->name), "s%d", i);
	if (client->statements[i])
		return;
	client->statements[i] = statement;
	PQclear(result_check(client, statement,
			     PQprepare(client->postgres, call->name, statement, call->n, NULL)));
}

/* `array`: NULL, or the last argument. */
static void call_make(struct client *client, const char *statement, const long long *numbers, int n,
		      const char *array, struct call *call)
{
	check(n <= NUMBERS_MAX);
	for (int i = 0; i < n; i++)
		call->values[i] = number_text(numbers[i], call->texts[i]);
	call->values[n] = array;
	call->n = n + (array != NULL);
	prepare(client, statement, call);
}

static PGresult *call_run(struct client *client, const char *statement, const long long *numbers,
			  int n, const char *array)
{
	struct call call;

	call_make(client, statement, numbers, n, array, &call);
	return result_check(client, statement,
			    PQexecPrepared(client->postgres, call.name, call.n, call.values, NULL,
					   NULL, 0));
}

static long long result_take(PGresult *result)
{
	long long number = NONE;

	if (PQresultStatus(result) == PGRES_COMMAND_OK)
		number = strtoll(PQcmdTuples(result), NULL, 10);
	else if (PQntuples(result) > 0)
		number = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	return number;
}

long long sql_run(struct client *client, const char *statement, const long long *numbers, int n)
{
	return result_take(call_run(client, statement, numbers, n, NULL));
}

/* An array of PostgreSQL, allocated. */
static char *array_write(const long long *numbers, int n)
{
	char *text = checked(malloc((size_t)n * (NUMBER_SIZE + 1) + 3)), *at = text;

	for (int i = 0; i < n; i++)
		at += sprintf(at, "%c%lld", i ? ',' : '{', numbers[i]);
	strcpy(at, n ? "}" : "{}");
	return text;
}

void sql_many(struct client *client, const char *statement, long long number, const long long *many,
	      int n, long long *out)
{
	char *array = array_write(many, n);
	PGresult *result = call_run(client, statement, &number, 1, array);

	check(!out || PQntuples(result) == n);
	for (int i = 0; out && i < n; i++)
		out[i] = strtoll(PQgetvalue(result, i, 0), NULL, 10);
	PQclear(result);
	free(array);
}

void sql_send(struct client *client, const char *statement, const long long *numbers, int n)
{
	struct call call;

	call_make(client, statement, numbers, n, NULL, &call);
	PQenterPipelineMode(client->postgres);
	if (!PQsendQueryPrepared(client->postgres, call.name, n, call.values, NULL, NULL, 0) ||
	    !PQpipelineSync(client->postgres))
		client_fail("PostgreSQL", statement, PQerrorMessage(client->postgres));
}

long long sql_answer(struct client *client)
{
	PGresult *result = PQgetResult(client->postgres);
	long long number = result_take(result_check(client, "a pipeline", result));

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
	if (url.is_tls || !url.host)
		client_fail("Redis", "connect", "only redis:// is compared");
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
