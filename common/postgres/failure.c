#include "common/postgres/failure.h"

#include <stddef.h>
#include <string.h>

enum postgres_failure postgres_classify(const char *sqlstate)
{
	static const struct {
		const char *prefix; /* a whole SQLSTATE, or its class */
		enum postgres_failure failure;
	} table[] = {
		{ "55P03", POSTGRES_BLOCKED }, { "57014", POSTGRES_BLOCKED },
		{ "22", POSTGRES_REFUSED },    { "23", POSTGRES_REFUSED },
		{ "40001", POSTGRES_AGAIN },   { "40P01", POSTGRES_AGAIN },
	};

	for (size_t i = 0; sqlstate && i < sizeof(table) / sizeof(table[0]); i++)
		if (strncmp(sqlstate, table[i].prefix, strlen(table[i].prefix)) == 0)
			return table[i].failure;
	return POSTGRES_BROKEN;
}

int postgres_of_coupon(enum postgres_failure failure)
{
	switch (failure) {
	case POSTGRES_BLOCKED:
	case POSTGRES_REFUSED:
	case POSTGRES_AGAIN:
		return 1;
	case POSTGRES_OK:
	case POSTGRES_BROKEN:
		return 0;
	}
	return 0;
}
