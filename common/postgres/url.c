#include "common/postgres/url.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/resolving.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

/* The value of one keyword; "" when it is absent. */
static const char *option_value(const PQconninfoOption *options, const char *keyword)
{
	for (; options->keyword; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return options->val ? options->val : "";
	return "";
}

/* One or several host names: an @ may only begin one, which is an abstract Unix socket then. */
static int hosts_are_wrong(const char *hosts)
{
	for (const char *p = hosts; *p; p++)
		if (*p == '@' && p > hosts && p[-1] != ',')
			return 1;
	return 0;
}

void postgres_url_check(const char *setting, const char *url)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL);

	if (!options)
		log_fatal(
			"%s is not a libpq connection string, postgresql://user:password@host:"
			"port/database or \"host=… password=…\": percent-encode : / @ ? and %% in "
			"a user name or password of the first form, and put single quotes around "
			"a value with spaces in the second",
			setting);
	if (strspn(option_value(options, "port"), "0123456789,") !=
	    strlen(option_value(options, "port")))
		log_fatal("%s: the port is not a number; a / in the password must be written %%2f",
			  setting);
	if (hosts_are_wrong(option_value(options, "host")))
		log_fatal("%s: the host contains @; an @ in the password must be written %%40",
			  setting);
	PQconninfoFree(options);
}

char *postgres_url_host(const char *url)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	const char *host;
	char *name = NULL;

	check(options != NULL);
	host = option_value(options, "host");
	if (*host && !strchr(host, ',') && !*option_value(options, "hostaddr") &&
	    !host_is_address(host)) {
		name = strdup(host);
		check(name != NULL);
	}
	PQconninfoFree(options);
	return name;
}
