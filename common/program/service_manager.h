/*
 * What systemd gives the program, and what it is told: listeners (sd_listen_fds(3)), that the
 * program is ready and how it is, and that its loops turn (sd_notify(3)). Without systemd none of
 * this has an effect.
 *
 * Only the process that systemd has started tells anything (NotifyAccess=main), from its main loop.
 * The loops of its other threads and processes leave what it needs in shared memory:
 *
 *	another loop ── service_turned() ──▶ memory ── service_loop_…() ──▶ the main loop
 *	                                                                        │ service_tell()
 *	                                                                        ▼
 *	                                           systemd: READY=1, STATUS=, WATCHDOG=1
 *
 * READY=1 is told when the program is ready as its /readyz says, and SERVICE_READY_WAIT_MS after
 * its start in any case: without a store a program still answers correctly, and systemd must not
 * end it for that. STATUS= says what is lacking.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A listener of the program. */
struct service_listener {
	const char *name;    /* that systemd gives its socket, FileDescriptorName= */
	const char *setting; /* has its address */
	char **address;      /* the value of the setting, on the heap */
	int is_unix;
	int fd; /* what systemd has given; -1: the program binds the address itself */
};

/*
 * Takes the sockets that systemd gives. The address of each replaces that of the setting, so that
 * what is checked and logged is where clients connect. Ends the process with a sentence if there is
 * one that none of the listeners takes. Before threads start.
 */
void service_listeners_take(struct service_listener *listeners, size_t n);

#define SERVICE_ERROR_SIZE 320

/* Takes these sockets likewise. 0, or -1 with a sentence. */
int service_listeners_match(struct service_listener *listeners, size_t n, const int *fds,
			    char *const names[], size_t fds_n, char error[SERVICE_ERROR_SIZE]);

/* What systemd was told. All zero but for the first two at first. No I/O. */

#define SERVICE_STATUS_SIZE 256
#define SERVICE_TEXT_SIZE (SERVICE_STATUS_SIZE + 64)
#define SERVICE_READY_WAIT_MS 30000

struct service_told {
	int64_t begun_ms;
	int64_t watchdog_ms; /* half of WATCHDOG_USEC; 0: there is no watchdog */
	int64_t beat_ms;     /* of the last WATCHDOG=1 */
	int is_ready;        /* READY=1 was told */
	char status[SERVICE_STATUS_SIZE];
};

/*
 * What is to be told now, as assignments in lines; returns the length, 0: nothing. `is_alive`: all
 * loops turn. In `next` is what was told once it is sent.
 */
size_t service_text(const struct service_told *told, int64_t now_ms, int is_ready, int is_alive,
		    const char *status, char text[SERVICE_TEXT_SIZE], struct service_told *next);

/* The one systemd. */

/* Finds out whether it is to be told anything. Before threads and the fork, with `loops` others. */
void service_begin(size_t loops);
/* This is a process that the main one has forked: it tells nothing from now on. */
void service_leave(void);

/*
 * The time after which the main loop calls service_tell() again, and other loops service_turned();
 * INT64_MAX: there is no need to.
 */
int64_t service_every_ms(void);
/*
 * Whether service_tell() would do anything now; else what it is told need not be found out. Main
 * loop.
 */
int service_is_due(int64_t now_ms);
void service_tell(int64_t now_ms, int is_ready, int is_alive, const char *status);

/* A quarter of WATCHDOG_USEC, in which each loop turns; 0: there is no watchdog. */
int64_t service_watch_ms(void);

/* Another loop turns, and would be ready, or not. Any thread or process. */
void service_turned(size_t loop, int is_ready);
int service_loop_has_turned(size_t loop); /* since the last call. Main loop */
int service_loop_is_ready(size_t loop);   /* as it has said last */

/*
 * It is loading its files again, because of SIGHUP; and it has. After READY=1. Any thread. If
 * systemd cannot take it now, service_tell() sends it later.
 */
void service_reloading(void);
void service_reloaded(void);
/* Another loop has loaded them `n` times. */
void service_loop_reloaded(size_t loop);
unsigned service_loop_reloads(size_t loop);

/*
 * It ends, which takes at most so long: systemd waits if that is more than TimeoutStopSec=. If
 * systemd cannot take it now, service_tell() sends it later: the main loop goes on calling that as
 * long as it turns. A program whose main loop ends before its other threads tells nothing after it.
 */
void service_stopping(int64_t most_ms, const char *status);
