/*
 * Which web pages may use a gateway or coupon-admin through the browser of somebody who can reach
 * it. A page of another site is known by the header Origin; a page whose own name was made to mean
 * the address of the program (DNS rebinding), by the header Host.
 */
#pragma once

#include <stddef.h>

/* Ends the process with a sentence unless COUPON_HTTP_HOSTS is a list of names. */
void http_hosts_check(const char *names);

/* Whether `host`, with a port or without, is an address, localhost or one of the names. */
int http_hosts_has(const char *names, const char *host);

/* Whether the origin is that of the gateway, which the client calls `host`, or of a name. */
int http_hosts_has_origin(const char *names, const char *origin, const char *host);

/*
 * Ends the process with a sentence unless COUPON_HTTP_ORIGINS is a list of origins as browsers
 * write them, so that they are compared byte by byte.
 */
void http_origins_check(const char *origins);

/* Where the list has this origin; NULL: it has not. */
const char *http_origins_find(const char *origins, const char *origin, size_t len);
