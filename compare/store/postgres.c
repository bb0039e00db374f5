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

long long sql_run(struct client *client, const char *statement, const long long *numbers, int n)
{
	char texts[NUMBERS_MAX][NUMBER_SIZE], name[16];
	const char *values[NUMBERS_MAX];
	PGresult *result;
	long long number;

	check(n <= NUMBERS_MAX);
	if (!client->postgres)
		postgres_open(client);
	for (int i = 0; i < n; i++)
		values[i] = number_text(numbers[i], texts[i]);
	result = PQexecPrepared(client->postgres, prepared(client, statement, n, name), n, values,
				NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		client_fail("PostgreSQL", statement, PQerrorMessage(client->postgres));
	number = number_of(result);
	PQclear(result);
	return number;
}
