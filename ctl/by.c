#include "ctl/by.h"

#include "embed.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES_MAX 100

/* Under sudo the user who called it. */
static const char *system_user(void)
{
	const char *sudo_user = getenv("SUDO_USER");
	const struct passwd *user = getpwuid(getuid());

	if (sudo_user && *sudo_user)
		return sudo_user;
	return user ? user->pw_name : "unknown";
}

void by_set(struct db *db, const struct args *args)
{
	const char *name = args_text(args, "by");
	char host[64] = "", own[NAME_BYTES_MAX + 1];

	if (!name) {
		gethostname(host, sizeof(host) - 1);
		snprintf(own, sizeof(own), "%.30s@%.60s", system_user(), host);
		name = own;
	}
	if (!*name || strlen(name) > NAME_BYTES_MAX)
		args_fail("--by is \"%s\": allowed are 1 to %d bytes", name, NAME_BYTES_MAX);
	PQclear(db_query(db, sql_query_session_by, 1, &name));
}
