/*
 * Each lane has a connection and a chunk. The main thread fills the chunks in turn, and a thread
 * for each full one stores it:
 *
 *	main      fill 1 │ fill 2 │ join, tell 1, fill 1 │ join, tell 2, fill 2 │ …
 *	thread 1         │ store 1 ───────────▶          │ store 1 …
 *	thread 2                  │ store 2 ────────────────────────▶ …
 *
 * Of two rows with one code in chunks that are stored at once, either may be the one that is told.
 */
#include "ctl/codes/import/lanes.h"

#include "common/check.h"
#include "ctl/progress.h"
#include "ctl/store.h"

#include <pthread.h>
#include <stdlib.h>

#define LANES 2

struct lane {
	const struct import_job *job;
	struct db *db;
	pthread_t thread;
	int is_running; /* the thread has the chunk and the connection */
	struct import_chunk chunk;
};

static void *lane_store(void *context)
{
	struct lane *lane = context;

	import_chunk_store(&lane->chunk, lane->db, lane->job->set, lane->job->coupon);
	return NULL;
}

static void lane_start(struct lane *lane)
{
	check(pthread_create(&lane->thread, NULL, lane_store, lane) == 0);
	lane->is_running = 1;
}

static void lane_end(struct lane *lane, struct import_counts *counts, struct progress *progress)
{
	if (!lane->is_running)
		return;
	check(pthread_join(lane->thread, NULL) == 0);
	lane->is_running = 0;
	progress_hide(progress);
	import_chunk_tell(&lane->chunk, lane->job->path, counts);
	progress_show(progress, "codes", code_file_done(lane->job->file),
		      code_file_bytes(lane->job->file));
}

/* 0 when the file has no more rows. */
static int lane_fill(struct lane *lane)
{
	struct code_row row;

	while (lane->chunk.n < IMPORT_CHUNK) {
		if (!code_file_next(lane->job->file, &row))
			return 0;
		import_chunk_add(&lane->chunk, lane->job->stored, &row);
	}
	return 1;
}

void import_lanes_run(const struct import_job *job, struct import_counts *counts)
{
	struct lane *lanes = calloc(LANES, sizeof(*lanes));
	struct progress progress = { 0 };
	int has_more = 1, i;

	check(lanes != NULL);
	for (i = 0; i < LANES; i++) {
		lanes[i].job = job;
		lanes[i].db = store_changing_open(job->ctl);
	}
	for (i = 0; has_more; i = (i + 1) % LANES) {
		lane_end(&lanes[i], counts, &progress);
		has_more = lane_fill(&lanes[i]);
		lane_start(&lanes[i]);
	}
	for (int k = 0; k < LANES; k++, i = (i + 1) % LANES)
		lane_end(&lanes[i], counts, &progress);
	progress_end(&progress);
	for (i = 0; i < LANES; i++) {
		db_close(lanes[i].db);
		import_chunk_fini(&lanes[i].chunk);
	}
	free(lanes);
}
