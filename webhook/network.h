/*
 * Which addresses a webhook may be sent to. Addresses that are not reachable from the whole
 * Internet are refused: with them, whoever chooses a URL would make requests from inside.
 */
#ifndef WEBHOOK_NETWORK_H
#define WEBHOOK_NETWORK_H

#include <stddef.h>
#include <sys/socket.h>

#define NETWORKS_MAX 64
#define NETWORKS_WHY_SIZE 256

struct network {
	int family; /* AF_INET or AF_INET6 */
	unsigned char bytes[16];
	int bits;
};

/* Networks that are allowed nevertheless. */
struct networks {
	struct network list[NETWORKS_MAX];
	size_t n;
};

/*
 * Reads "10.1.0.0/16,fd00::/8"; an address without bits is a network of one. 0, or -1 with a
 * sentence in `why`. "": none.
 */
int networks_parse(struct networks *networks, const char *text, char why[NETWORKS_WHY_SIZE]);

/* NULL: allowed; else the kind of address it is, as "private". */
const char *networks_refusal(const struct networks *allowed, const struct sockaddr *address);

/* The same for an address in digits; NULL too if the text is none. */
const char *networks_refusal_text(const struct networks *allowed, const char *text);

#endif
