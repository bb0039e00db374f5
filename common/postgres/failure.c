#include "common/postgres/failure.h"

#include <stddef.h>
#include <string.h>

enum postgres_failure postgres_classify(const char *sqlstate)
{
	static const struct {
		const char *prefix; /* a whole SQLSTATE, or its class */
		enum postgres_failure failure;
	} table[] = {
		{ .prefix = "55P03", .failure = POSTGRES_BLOCKED },
		{ .prefix = "57014", .failure = POSTGRES_CANCELLED },
		{ .prefix = "22", .failure = POSTGRES_REFUSED },
		{ .prefix = "23", .failure = POSTGRES_REFUSED },
		{ .prefix = "40001", .failure = POSTGRES_AGAIN },
		{ .prefix = "40P01", .failure = POSTGRES_AGAIN },
	};

	if (!sqlstate || !*sqlstate)
		return POSTGRES_DOWN;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strncmp(sqlstate, table[i].prefix, strlen(table[i].prefix)) == 0)
			return table[i].failure;
	return POSTGRES_UNFIT;
}

int postgres_of_coupon(enum postgres_failure failure)
{
	switch (failure) {
	case POSTGRES_BLOCKED:
	case POSTGRES_CANCELLED:
	case POSTGRES_REFUSED:
	case POSTGRES_AGAIN:
		return 1;
	case POSTGRES_OK:
	case POSTGRES_UNFIT:
	case POSTGRES_DOWN:
		return 0;
	}
	return 0;
}
