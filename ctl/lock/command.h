/*
 * A command that runs as a child process, while this one holds a lock for it. The signals that end
 * or steer a program are passed on to it, except those of a terminal, which it gets by itself. It
 * gets SIGTERM when this process dies.
 */
#ifndef CTL_LOCK_COMMAND_H
#define CTL_LOCK_COMMAND_H

#define COMMAND_NOT_EXECUTABLE 126 /* as of env(1) */
#define COMMAND_NOT_FOUND 127

/* Before any other thread is made, which would take the signals. */
void command_signals_hold(void);

/*
 * Runs words[0] with these words until it ends. When something can be read from `stop_fd`, it gets
 * SIGTERM once. Its exit status; 128 and the signal's number if a signal ended it.
 */
int command_run_words(char **words, int stop_fd);

#endif
