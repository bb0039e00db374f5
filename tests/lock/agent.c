/*
 * An owner of locks that does what it is told, for tests that run several: agent BACKEND URL. It
 * reads one command a line and answers each with one line:
 *
 *	take NAME KIND WAIT WAIT_MS LEASE_MS WATCHED   taken FENCE | skipped | failed | … WHY
 *	release NAME                                   0 | -1
 *	leave NAME                                     the same, of a lock taken several times
 *	held NAME                                      0 | 1
 *	count FILE N NAME KIND                         adds 1 to the number in FILE, N times, each
 *	                                               under the lock; the last fence
 *
 * KIND and WAIT are the numbers of lock.h. When a lock is lost it writes "lost NAME".
 */
#include "common/check.h"
#include "common/log/log.h"
#include "lock/lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELD_MAX 16
#define TEXT_SIZE 512

static struct {
	char name[LOCK_NAME_MAX + 1];
	struct lock *lock;
} held[HELD_MAX];

static const char *const results[] = { [LOCK_TAKEN] = "taken",
				       [LOCK_SKIPPED] = "skipped",
				       [LOCK_FAILED] = "failed",
				       [LOCK_UNREACHABLE] = "unreachable",
				       [LOCK_REFUSED] = "refused" };

static struct lock_owner *owner;
static long long again_ms; /* the lease of what is lost and taken again; 0: it is not */

static pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;

/* HELD_MAX: none. */
static int held_find(const char *name)
{
	int i = 0;

	pthread_mutex_lock(&held_mutex);
	while (i < HELD_MAX && strcmp(held[i].name, name) != 0)
		i++;
	pthread_mutex_unlock(&held_mutex);
	return i;
}

static int held_place(const char *name)
{
	int i = held_find(name);

	check(i < HELD_MAX);
	return i;
}

/* This thread calls the library while the other one waits for a command. */
static void on_lost(void *context, const char *name)
{
	struct lock_options options = { LOCK_EXCLUSIVE, 0, 0, again_ms, 1 };
	int i;

	(void)context;
	if (again_ms) {
		/* It may be lost before the other thread has noted that it was taken. */
		while ((i = held_find(name)) == HELD_MAX)
			usleep(1000);
		check(!lock_is_held(held[i].lock) && lock_release(held[i].lock) == -1);
		check(lock_take(owner, name, &options, &held[i].lock) == LOCK_TAKEN);
	}
	printf("lost %s\n", name);
	fflush(stdout);
}

static void take(const char *line)
{
	char name[TEXT_SIZE];
	int kind, wait, watched, i;
	long long wait_ms, lease_ms, fence;
	struct lock_options options;
	struct lock *lock;
	enum lock_result result;

	check(sscanf(line, "take %511s %d %d %lld %lld %d", name, &kind, &wait, &wait_ms, &lease_ms,
		     &watched) == 6);
	options = (struct lock_options){ (enum lock_kind)kind,
					 wait == 2 ? LOCK_WAIT_FOREVER : wait_ms, wait % 3 == 0,
					 lease_ms, watched };
	result = lock_take(owner, name, &options, &lock);
	if (result != LOCK_TAKEN) {
		printf("%s %s\n", results[result], lock_error(owner));
		return;
	}
	fence = lock_fence(lock); /* once it is noted, on_lost() may release it */
	pthread_mutex_lock(&held_mutex);
	for (i = 0; i < HELD_MAX && held[i].lock && held[i].lock != lock; i++)
		;
	check(i < HELD_MAX);
	held[i].lock = lock;
	memcpy(held[i].name, name, strlen(name) + 1); /* the library took it: it fits */
	pthread_mutex_unlock(&held_mutex);
	printf("taken %lld\n", fence);
}

/* `is_last`: the library has freed it now. */
static void release(const char *name, int is_last)
{
	int i = held_place(name);

	printf("%d\n", lock_release(held[i].lock));
	if (is_last)
		memset(&held[i], 0, sizeof(held[i]));
}

static long long number_read(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY);

	check(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
	close(fd);
	return strtoll(text, NULL, 10);
}

static void number_write(const char *path, long long number)
{
	char text[32];
	int fd = open(path, O_WRONLY | O_TRUNC), len = snprintf(text, sizeof(text), "%lld", number);

	check(fd >= 0 && write(fd, text, (size_t)len) == len);
	close(fd);
}

static void count(const char *line)
{
	char path[TEXT_SIZE], name[TEXT_SIZE];
	struct lock_options options = { LOCK_EXCLUSIVE, LOCK_WAIT_FOREVER, 0, 30000, 1 };
	long long fence = 0;
	int n, kind;

	check(sscanf(line, "count %511s %d %511s %d", path, &n, name, &kind) == 4);
	options.kind = (enum lock_kind)kind;
	for (int i = 0; i < n; i++) {
		struct lock *lock;
		long long number;

		check(lock_take(owner, name, &options, &lock) == LOCK_TAKEN);
		check(lock_fence(lock) > fence);
		fence = lock_fence(lock);
		number = number_read(path);
		usleep(200); /* so that another one would read the same number */
		number_write(path, number + 1);
		check(lock_release(lock) == 0);
	}
	printf("%lld\n", fence);
}

int main(int argc, char **argv)
{
	char line[2 * TEXT_SIZE], name[TEXT_SIZE];

	check(argc == 3);
	log_init("lock_agent", LOG_LEVEL_WARN, 0);
	owner = lock_owner_new((enum lock_backend_id)atoi(argv[1]), argv[2], on_lost, NULL);
	check(owner != NULL);
	while (fgets(line, sizeof(line), stdin)) {
		if (strncmp(line, "take ", 5) == 0)
			take(line);
		else if (sscanf(line, "release %511s", name) == 1)
			release(name, 1);
		else if (sscanf(line, "leave %511s", name) == 1)
			release(name, 0);
		else if (sscanf(line, "held %511s", name) == 1)
			printf("%d\n", lock_is_held(held[held_place(name)].lock));
		else if (strncmp(line, "count ", 6) == 0)
			count(line);
		else if (sscanf(line, "again %lld", &again_ms) == 1)
			printf("0\n");
		else
			check(!"a command");
		fflush(stdout);
	}
	lock_owner_free(owner);
	return 0;
}
