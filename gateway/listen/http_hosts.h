/*
 * Which hosts an HTTP request may name, so that no web page can use the gateway through the browser
 * of somebody who can reach it. A page of another site is known by the header Origin; a page whose
 * own name was made to mean the gateway's address (DNS rebinding), by the header Host. No I/O.
 */
#ifndef GATEWAY_LISTEN_HTTP_HOSTS_H
#define GATEWAY_LISTEN_HTTP_HOSTS_H

/* Ends the process with a sentence unless COUPON_HTTP_HOSTS is a list of names. */
void http_hosts_check(const char *names);

/* Whether `host`, with a port or without, is an address, localhost or one of the names. */
int http_hosts_has(const char *names, const char *host);

/* Whether the origin is that of the gateway, which the client calls `host`, or of a name. */
int http_hosts_has_origin(const char *names, const char *origin, const char *host);

#endif
