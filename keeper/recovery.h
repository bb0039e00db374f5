/*
 * COUPON_RECOVER=auto: brings back what a standby of PostgreSQL lacked when it was promoted, by
 * `couponctl recover --tail` in a process of its own. The command looks at everything again before
 * it changes anything, runs under a lock of PostgreSQL, and may be killed at any moment and be run
 * again. Where more is missing than receives that were settled, it waits for an operator.
 *
 * The keeper's thread.
 */
#pragma once

#include "common/program/config.h"
#include "keeper/keeper_stores.h"

struct recovery;

/*
 * Ends the process if the settings are wrong, or if there is no couponctl beside it. It gets the
 * settings by the environment: to be called before there are threads.
 */
void recovery_check(const struct config *config);

struct recovery *recovery_new(const struct config *config);
void recovery_free(struct recovery *recovery);

/* In each turn: takes what the command has said, and its end. */
void recovery_read(struct recovery *recovery);
/* While PostgreSQL is behind, and this keeper has the lock: runs the command when it is due. */
void recovery_step(struct recovery *recovery, const struct keeper_stores *stores);
/* Ends the command, because the lock may be another keeper's. */
void recovery_stop(struct recovery *recovery);
/* PostgreSQL is not behind: what was logged of it would be new. */
void recovery_forget(struct recovery *recovery);

/* While PostgreSQL is behind: whether this ends it, as far as is known; else an operator has to. */
int recovery_helps(const struct recovery *recovery, const struct keeper_stores *stores);
