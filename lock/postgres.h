/*
 * Locks of a session of PostgreSQL in which the caller writes. Such a lock lasts as long as the
 * connection, so nothing can be written in the session after the lock has been lost: it needs
 * neither a lease nor a fence. It excludes the locks of LOCK_POSTGRES with the same name, and they
 * exclude it. The tables of couponmq need not exist.
 */
#pragma once

#include "common/postgres/session.h"
#include "lock/backend.h"

/*
 * Each takes the lock, over a connection that is up, until the connection ends; a session that has
 * it gets it again. LOCK_REPLY_NO: another has it, or had it for the session's lock_timeout. DOWN
 * and ERROR: postgres_why().
 */
enum lock_reply lock_session_try(struct postgres *postgres, const char *name);
enum lock_reply lock_session_wait(struct postgres *postgres, const char *name);
