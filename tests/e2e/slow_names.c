/*
 * Preloaded into a program: the look-up of a name that ends in .slow.test takes as long as the file
 * SLOW_NAMES exists, as with a name server that does not answer, and then returns the address that
 * is in the file SLOW_NAMES_ADDRESS, or 127.0.0.1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void address_read(char address[64])
{
	const char *path = getenv("SLOW_NAMES_ADDRESS");
	FILE *file = path ? fopen(path, "re") : NULL;

	if (!file || fscanf(file, "%63s", address) != 1)
		strcpy(address, "127.0.0.1");
	if (file)
		fclose(file);
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		struct addrinfo **list)
{
	static const char slow[] = ".slow.test";
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	size_t len = host ? strlen(host) : 0;
	char address[64];

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (len < sizeof(slow) || strcmp(host + len - (sizeof(slow) - 1), slow) != 0)
		return real(host, service, hints, list);
	while (access(getenv("SLOW_NAMES"), F_OK) == 0)
		usleep(10000);
	address_read(address);
	return real(address, service, hints, list);
}
