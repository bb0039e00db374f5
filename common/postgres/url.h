/*
 * Checks of a connection string before it is used. libpq's own messages repeat the part that libpq
 * does not understand, which may be the password. These repeat nothing of it.
 */
#ifndef COMMON_POSTGRES_URL_H
#define COMMON_POSTGRES_URL_H

/* Ends the process with a sentence that names `setting` unless libpq can use the string. */
void postgres_url_check(const char *setting, const char *url);

/*
 * The host name that libpq would look up (malloc), of a string that was checked. NULL: an address,
 * the path of a socket, or several hosts, which libpq looks up in order.
 */
char *postgres_url_host(const char *url);

#endif
