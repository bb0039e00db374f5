/*
 * When a machine counts as gone, on a connection that it holds: its kernel has acknowledged neither
 * data nor a probe for so long. A process that hangs is none of that. Longer than the 3 s for which
 * a machine may stand still and go on.
 */
#pragma once

#define SILENCE_MS 5000   /* TCP_USER_TIMEOUT */
#define SILENCE_IDLE_S 2  /* then probes, */
#define SILENCE_PROBE_S 1 /* one in so long, */
