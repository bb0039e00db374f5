/* What serves requests, and its connections: statements of PostgreSQL, commands of Redis. */
#include "compare/way.h"

#include "common/check.h"
#include "common/message/number.h"
#include "common/redis/redis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX 8 /* of a statement */

void store_fail(const char *store, const char *what, const char *why)
{
	fprintf(stderr, "compare: %s: %s: %s\n", store, what, why);
	exit(1);
}

/* ---- PostgreSQL: statements, prepared once for each connection */

static void postgres_open(struct seller *seller)
{
	seller->postgres = PQconnectdb(seller->market->postgres);
	if (PQstatus(seller->postgres) != CONNECTION_OK)
		store_fail("PostgreSQL", "connect", PQerrorMessage(seller->postgres));
	PQclear(PQexec(seller->postgres,
		       "SET search_path = compare; SET client_min_messages = warning"));
}

static PGresult *result_check(struct seller *seller, const char *statement, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		store_fail("PostgreSQL", statement, PQerrorMessage(seller->postgres));
	return result;
}

void sql_script(struct seller *seller, const char *script)
{
	if (!seller->postgres)
		postgres_open(seller);
	PQclear(result_check(seller, script, PQexec(seller->postgres, script)));
}

/* A prepared statement, and its arguments. */
struct sql_call {
	char name[16], texts[NUMBERS_MAX][NUMBER_SIZE];
	const char *values[NUMBERS_MAX + 1];
	int n;
};

/* `array`: NULL, or the last argument. */
static void call_make(struct seller *seller, const char *statement, const long long *numbers, int n,
		      const char *array, struct sql_call *call)
{
	int place = 0;

	check(n <= NUMBERS_MAX);
	for (int i = 0; i < n; i++)
		call->values[i] = number_text(numbers[i], call->texts[i]);
	call->values[n] = array;
	call->n = n + (array != NULL);

	/* A new statement is prepared first. Each statement is one constant of the program. */
	if (!seller->postgres)
		postgres_open(seller);
	while (place < STATEMENTS_MAX && seller->statements[place] &&
	       seller->statements[place] != statement)
		place++;
	check(place < STATEMENTS_MAX);
	snprintf(call->name, sizeof(call->name), "s%d", place);
	if (seller->statements[place])
		return;
	seller->statements[place] = statement;
	PQclear(result_check(seller, statement,
			     PQprepare(seller->postgres, call->name, statement, call->n, NULL)));
}

static PGresult *call_run(struct seller *seller, const char *statement, const long long *numbers,
			  int n, const char *array)
{
	struct sql_call call;

	call_make(seller, statement, numbers, n, array, &call);
	return result_check(seller, statement,
			    PQexecPrepared(seller->postgres, call.name, call.n, call.values, NULL,
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

long long sql_run(struct seller *seller, const char *statement, const long long *numbers, int n)
{
	return result_take(call_run(seller, statement, numbers, n, NULL));
}

void sql_many(struct seller *seller, const char *statement, long long number, const long long *many,
	      int n, long long *out)
{
	/* as PostgreSQL writes it */
	char *array = checked(malloc((size_t)n * (NUMBER_SIZE + 1) + 3)), *at = array;
	PGresult *result;

	for (int i = 0; i < n; i++)
		at += sprintf(at, "%c%lld", i ? ',' : '{', many[i]);
	strcpy(at, n ? "}" : "{}");
	result = call_run(seller, statement, &number, 1, array);
	check(!out || PQntuples(result) == n);
	for (int i = 0; out && i < n; i++)
		out[i] = strtoll(PQgetvalue(result, i, 0), NULL, 10);
	PQclear(result);
	free(array);
}

void sql_send(struct seller *seller, const char *statement, const long long *numbers, int n)
{
	struct sql_call call;

	call_make(seller, statement, numbers, n, NULL, &call);
	PQenterPipelineMode(seller->postgres);
	if (!PQsendQueryPrepared(seller->postgres, call.name, n, call.values, NULL, NULL, 0) ||
	    !PQpipelineSync(seller->postgres))
		store_fail("PostgreSQL", statement, PQerrorMessage(seller->postgres));
}

long long sql_answer(struct seller *seller)
{
	PGresult *result = PQgetResult(seller->postgres);
	long long number = result_take(result_check(seller, "a pipeline", result));

	check(PQgetResult(seller->postgres) == NULL);
	result = PQgetResult(seller->postgres);
	check(PQresultStatus(result) == PGRES_PIPELINE_SYNC);
	PQclear(result);
	return number;
}

/* ---- Redis: commands, each a round trip, or several together */

static redisReply *reply_get(struct seller *seller, const char *what)
{
	redisReply *reply;

	if (redisGetReply(seller->redis, (void **)&reply))
		store_fail("Redis", what, seller->redis->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		store_fail("Redis", what, reply->str);
	return reply;
}

static void command_send(struct seller *seller, const char *format, va_list list)
{
	struct redis_url url;

	if (!seller->redis) {
		redis_url_need(&url, seller->market->redis);
		if (url.is_tls || !url.host)
			store_fail("Redis", "connect", "only redis:// is compared");
		seller->redis = redisConnect(url.host, url.port);
		if (!seller->redis || seller->redis->err)
			store_fail("Redis", "connect",
				   seller->redis ? seller->redis->errstr : "memory");
		if (url.password)
			redis_run(seller, "AUTH %s", url.password);
		redis_run(seller, "SELECT %d", url.database);
		redis_url_fini(&url);
	}
	if (redisvAppendCommand(seller->redis, format, list))
		store_fail("Redis", format, seller->redis->errstr);
}

static long long number_get(struct seller *seller, const char *what)
{
	redisReply *reply = reply_get(seller, what);
	long long number = NONE;

	switch (reply->type) {
	case REDIS_REPLY_INTEGER:
		number = reply->integer;
		break;
	case REDIS_REPLY_STRING:
		number = strtoll(reply->str, NULL, 10);
		break;
	case REDIS_REPLY_ARRAY:
		number = (long long)reply->elements;
		break;
	case REDIS_REPLY_STATUS:
		number = 1;
		break;
	default:
		break;
	}
	freeReplyObject(reply);
	return number;
}

long long redis_run(struct seller *seller, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	command_send(seller, format, list);
	va_end(list);
	return number_get(seller, format);
}

void redis_ask(struct seller *seller, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	command_send(seller, format, list);
	va_end(list);
}

long long redis_answer(struct seller *seller)
{
	return number_get(seller, "a pipeline");
}

void redis_script_load(struct seller *seller, const char *script, char sha[REDIS_SHA_SIZE])
{
	redisReply *reply;

	redis_ask(seller, "SCRIPT LOAD %s", script);
	reply = reply_get(seller, "SCRIPT LOAD");
	check(reply->type == REDIS_REPLY_STRING && reply->len == REDIS_SHA_SIZE - 1);
	memcpy(sha, reply->str, REDIS_SHA_SIZE);
	freeReplyObject(reply);
}

/* ---- the seller */

struct seller *seller_new(struct market *market, const struct way *way)
{
	struct seller *seller = checked(calloc(1, sizeof(*seller)));

	seller->market = market;
	seller->way = way;
	return seller;
}

void seller_free(struct seller *seller)
{
	lock_owner_free(seller->locks);
	if (seller->gateway_in)
		fclose(seller->gateway_in);
	if (seller->gateway_out)
		fclose(seller->gateway_out);
	if (seller->queue)
		amqp_destroy_connection(seller->queue);
	if (seller->redis)
		redisFree(seller->redis);
	if (seller->postgres)
		PQfinish(seller->postgres);
	free(seller->own);
	free(seller);
}
