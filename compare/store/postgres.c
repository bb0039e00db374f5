/* Statements of the ways, prepared once for each connection. */
#include "compare/store/client.h"

#include "common/check.h"
#include "common/message/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX 8

static void postgres_open(struct client *client)
{
	client->postgres = PQconnectdb(client->market->postgres);
	if (PQstatus(client->postgres) != CONNECTION_OK)
		client_fail("PostgreSQL", "connect", PQerrorMessage(client->postgres));
	PQclear(PQexec(client->postgres,
		       "SET search_path = compare; SET client_min_messages = warning"));
}

/* The name under which it is prepared. Each statement is one constant of the program. */
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

static long long number_of(const PGresult *result)
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

static void numbers_write(const long long *numbers, int n, char texts[][NUMBER_SIZE],
			  const char **values)
{
	check(n <= NUMBERS_MAX);
	for (int i = 0; i < n; i++)
		values[i] = number_text(numbers[i], texts[i]);
}

long long sql_run(struct client *client, const char *statement, const long long *numbers, int n)
{
	char texts[NUMBERS_MAX][NUMBER_SIZE], name[16];
	const char *values[NUMBERS_MAX];
	PGresult *result;
	long long number;

	numbers_write(numbers, n, texts, values);
	result = PQexecPrepared(client->postgres, prepared(client, statement, n, name), n, values,
				NULL, NULL, 0);
	number = number_of(result_check(client, statement, result));
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
	char texts[NUMBERS_MAX][NUMBER_SIZE], name[16];
	const char *values[NUMBERS_MAX];

	numbers_write(numbers, n, texts, values);
	prepared(client, statement, n, name);
	PQenterPipelineMode(client->postgres);
	if (!PQsendQueryPrepared(client->postgres, name, n, values, NULL, NULL, 0) ||
	    !PQpipelineSync(client->postgres))
		client_fail("PostgreSQL", statement, PQerrorMessage(client->postgres));
}

long long sql_answer(struct client *client)
{
	PGresult *result = PQgetResult(client->postgres);
	long long number = number_of(result_check(client, "a pipeline", result));

	PQclear(result);
	check(PQgetResult(client->postgres) == NULL);
	result = PQgetResult(client->postgres);
	check(PQresultStatus(result) == PGRES_PIPELINE_SYNC);
	PQclear(result);
	return number;
}
