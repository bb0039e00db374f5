/*
 * The progress of a long command on standard error: a bar on a terminal, otherwise a line for each
 * tenth. All zero at first.
 */
#ifndef CTL_PROGRESS_H
#define CTL_PROGRESS_H

#include <stdint.h>

#define PROGRESS_WHAT_SIZE 32

struct progress {
	char what[PROGRESS_WHAT_SIZE]; /* the step that is shown */
	int percent;                   /* as shown last */
};

/* `done` of `total` of the step `what`; another step than the last begins a new line. */
void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total);

/* Removes the bar before other output; the next progress draws it again. */
void progress_hide(struct progress *progress);

/* Ends the line of the bar. */
void progress_end(struct progress *progress);

#endif
