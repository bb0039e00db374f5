#include "ctl/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 40 /* characters */
#define LINE_WIDTH (sizeof("couponctl:  [] 100 %") + PROGRESS_WHAT_SIZE + BAR_WIDTH)

static void bar_draw(const struct progress *progress)
{
	static const char full[] = "########################################";
	int filled = progress->percent * BAR_WIDTH / 100;

	_Static_assert(sizeof(full) - 1 == BAR_WIDTH, "a character for each step of the bar");
	fprintf(stderr, "\rcouponctl: %s [%.*s%*s] %3d %%", progress->what, filled, full,
		BAR_WIDTH - filled, "", progress->percent);
}

void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total)
{
	int percent = total > 0 ? (int)((double)done / (double)total * 100) : 100;
	int is_terminal = isatty(STDERR_FILENO);

	if (strcmp(progress->what, what) != 0) {
		progress_end(progress);
		snprintf(progress->what, sizeof(progress->what), "%s", what);
		progress->percent = -1;
	}
	if (percent == progress->percent)
		return;
	if (is_terminal || percent / 10 != progress->percent / 10 || progress->percent < 0) {
		progress->percent = percent;
		if (is_terminal)
			bar_draw(progress);
		else
			fprintf(stderr, "couponctl: %s: %d %%\n", what, percent);
	}
}

void progress_hide(struct progress *progress)
{
	if (!progress->what[0] || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%*s\r", (int)LINE_WIDTH, "");
	progress->percent = -1;
}

void progress_end(struct progress *progress)
{
	if (progress->what[0] && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	progress->what[0] = '\0';
}
