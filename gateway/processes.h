/*
 * The parent of several processes: it keeps a given number of them running, and serves no requests.
 *
 *	start ──▶ runs ──died──▶ waits, at most 2 s ──▶ start (also after a fork that failed)
 *	SIGTERM: passed on to each; a process that has not ended some time after GATEWAY_FINISH_MS
 *	         is killed
 */
#ifndef GATEWAY_PROCESSES_H
#define GATEWAY_PROCESSES_H

#include <stddef.h>

#define PROCESSES_MAX 64

/* The main function of one process; returns its exit status. */
typedef int process_fn(void *context, size_t process);

/* Runs until SIGTERM or SIGINT. Returns the exit status: 1 when a process had to be killed. */
int processes_run(size_t n, process_fn *run, void *context);

#endif
