/*
 * Bound, listening, non-blocking sockets, as named by settings. A socket that cannot be bound ends
 * the process with a sentence.
 */
#ifndef COMMON_SERVE_BIND_H
#define COMMON_SERVE_BIND_H

/* Ends the process with a sentence unless `address` is host:port or off; binds nothing. */
void bind_check(const char *setting, const char *address);
int bind_tcp(const char *setting, const char *address); /* -1 for off */
/* A stale socket file is replaced; one that another process listens on is not. */
int bind_unix(const char *setting, const char *path);

#endif
