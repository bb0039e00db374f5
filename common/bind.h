/* Listening TCP sockets, as settings name them. */
#ifndef COMMON_BIND_H
#define COMMON_BIND_H

/*
 * Ends the process with a sentence unless it is host:port or off, as far as that can be judged
 * without binding it.
 */
void bind_check(const char *setting, const char *address);
/*
 * A bound, listening, non-blocking socket; -1 for off. What cannot be bound ends the process with a
 * sentence.
 */
int bind_tcp(const char *setting, const char *address);

#endif
