/*
 * Bound, listening, non-blocking sockets, as named by settings. A socket that cannot be bound ends
 * the process with a sentence.
 */
#ifndef COMMON_SERVE_BIND_H
#define COMMON_SERVE_BIND_H

/* Ends the process with a sentence unless `address` is host:port or off; binds nothing. */
void bind_check(const char *setting, const char *address);
int bind_tcp(const char *setting, const char *address); /* -1 for off */
/*
 * Replaces the socket file of a process that is gone. Anything else at the path, for instance a
 * file, or a socket that a process listens on, stays, and ends this process with a sentence.
 */
int bind_unix(const char *setting, const char *path);
/* Closes the socket, and removes its file unless another process listens there by now. */
void bind_unix_end(int fd, const char *path);

#endif
