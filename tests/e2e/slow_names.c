/*
 * Preloaded into a program: the look-up of a name that ends in .slow.test takes as long as the file
 * SLOW_NAMES exists, as with a name server that does not answer, and then returns 127.0.0.1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		struct addrinfo **list)
{
	static const char slow[] = ".slow.test";
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	size_t len = host ? strlen(host) : 0;

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (len < sizeof(slow) || strcmp(host + len - (sizeof(slow) - 1), slow) != 0)
		return real(host, service, hints, list);
	while (access(getenv("SLOW_NAMES"), F_OK) == 0)
		usleep(10000);
	return real("127.0.0.1", service, hints, list);
}
