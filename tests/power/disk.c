/*
 * A disk whose power can be cut: one file, served through FUSE, for a loop device with a real file
 * system on it. What was written since the last flush is in the disk's cache, and a cut may lose
 * any part of it. (The idea is that of LazyFS: Ramos et al., "When Amnesia Strikes: Understanding
 * and Reproducing Data Loss Bugs with Fault Injection", VLDB 17, 2024. Here it is below the file
 * system, which keeps its own rules for folders, names and sizes.)
 *
 *	ON ── cut ─▶ HELD ── fail ─▶ FAILED ── back ─▶ ON
 *	             no request is answered    each is answered EIO
 *
 *	power_disk FOLDER MIB      FOLDER/mount/disk is the disk; FOLDER is empty
 *
 * Commands come on standard input, one a line, and each has a line as its answer:
 *
 *	cut             answers how many writes and bytes are in the cache
 *	cut_at N        when the Nth write or flush from now on comes: it is not done any more
 *	is_cut          answers yes or no
 *	fail            also when the processes that wait for the disk are killed
 *	back KEEP SEED  KEEP: none of the writes, some of them, or part of one and those before it;
 *	                answers how many of them are there
 */
#define FUSE_USE_VERSION 31

#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1024 * 1024)
#define SECTOR 512
#define NAME "/disk"

enum power { ON, HELD, FAILED };

/* A write that is in the cache. */
struct write {
	STAILQ_ENTRY(write) next;
	off_t at;
	size_t len;
	char bytes[];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum power power;
	size_t cut_at; /* so many more writes and flushes; 0: not by itself */
	int current;   /* as the computer sees it */
	int durable;   /* as it was at the last flush */
	off_t size;
	STAILQ_HEAD(, write) cache; /* in the order of their answers */
	size_t cached_n;
	size_t cached_bytes;
} disk = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.cache = STAILQ_HEAD_INITIALIZER(disk.cache),
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void whole_write(int fd, const char *bytes, size_t len, off_t at)
{
	if (pwrite(fd, bytes, len, at) != (ssize_t)len)
		die("pwrite");
}

static void cache_forget(void)
{
	struct write *one;

	while ((one = STAILQ_FIRST(&disk.cache))) {
		STAILQ_REMOVE_HEAD(&disk.cache, next);
		free(one);
	}
	disk.cached_n = disk.cached_bytes = 0;
}

/* Returns 0 with the lock, or -EIO without it. */
static int power_wait(int is_change)
{
	pthread_mutex_lock(&disk.lock);
	if (is_change && disk.cut_at > 0 && --disk.cut_at == 0 && disk.power == ON)
		disk.power = HELD;
	while (disk.power == HELD)
		pthread_cond_wait(&disk.changed, &disk.lock);
	if (disk.power == ON)
		return 0;
	pthread_mutex_unlock(&disk.lock);
	return -EIO;
}

static int disk_getattr(const char *path, struct stat *attributes, struct fuse_file_info *file)
{
	(void)file;
	*attributes = (struct stat){ .st_nlink = 1 };
	if (strcmp(path, "/") == 0) {
		attributes->st_mode = S_IFDIR | 0700;
	} else if (strcmp(path, NAME) == 0) {
		attributes->st_mode = S_IFREG | 0600;
		attributes->st_size = disk.size;
	} else {
		return -ENOENT;
	}
	return 0;
}

static int disk_open(const char *path, struct fuse_file_info *file)
{
	if (strcmp(path, NAME) != 0)
		return -ENOENT;
	file->direct_io = 1;
	return 0;
}

static int disk_read(const char *path, char *bytes, size_t len, off_t at,
		     struct fuse_file_info *file)
{
	ssize_t n;

	(void)path;
	(void)file;
	if (power_wait(0))
		return -EIO;
	n = pread(disk.current, bytes, len, at);
	pthread_mutex_unlock(&disk.lock);
	return n < 0 ? -errno : (int)n;
}

static int disk_write(const char *path, const char *bytes, size_t len, off_t at,
		      struct fuse_file_info *file)
{
	struct write *one;

	(void)path;
	(void)file;
	if (at < 0 || at > disk.size || len > (size_t)(disk.size - at))
		return -ENOSPC;
	if (power_wait(1))
		return -EIO;
	one = malloc(sizeof(*one) + len);
	if (!one)
		die("malloc");
	one->at = at;
	one->len = len;
	memcpy(one->bytes, bytes, len);
	STAILQ_INSERT_TAIL(&disk.cache, one, next);
	disk.cached_n++;
	disk.cached_bytes += len;
	whole_write(disk.current, bytes, len, at);
	pthread_mutex_unlock(&disk.lock);
	return (int)len;
}

/* A flush of the disk. */
static int disk_fsync(const char *path, int is_data, struct fuse_file_info *file)
{
	struct write *one;

	(void)path;
	(void)is_data;
	(void)file;
	if (power_wait(1))
		return -EIO;
	STAILQ_FOREACH (one, &disk.cache, next)
		whole_write(disk.durable, one->bytes, one->len, one->at);
	cache_forget();
	pthread_mutex_unlock(&disk.lock);
	return 0;
}

/* The loop device then writes zeros, and discards nothing. */
static int disk_fallocate(const char *path, int mode, off_t at, off_t len,
			  struct fuse_file_info *file)
{
	(void)path;
	(void)mode;
	(void)at;
	(void)len;
	(void)file;
	return -EOPNOTSUPP;
}

static const struct fuse_operations operations = {
	.getattr = disk_getattr,
	.open = disk_open,
	.read = disk_read,
	.write = disk_write,
	.fsync = disk_fsync,
	.fallocate = disk_fallocate,
};

static void power_set(enum power power)
{
	pthread_mutex_lock(&disk.lock);
	disk.power = power;
	disk.cut_at = 0;
	pthread_cond_broadcast(&disk.changed);
	pthread_mutex_unlock(&disk.lock);
}

/* What the computer saw in the place of a write is not there any more. */
static void current_undo(const struct write *one)
{
	char *bytes = malloc(one->len);

	if (!bytes || pread(disk.durable, bytes, one->len, one->at) != (ssize_t)one->len)
		die("pread");
	whole_write(disk.current, bytes, one->len, one->at);
	free(bytes);
}

static size_t drawn(unsigned short state[3], size_t n)
{
	return (size_t)(erand48(state) * (double)n);
}

/* Returns how many writes are kept, the torn one too. */
static size_t cache_keep(const char *keep, long seed)
{
	unsigned short state[3] = { (unsigned short)seed, (unsigned short)(seed >> 16), 0x330e };
	size_t torn = drawn(state, disk.cached_n), i = 0, kept_n = 0;
	struct write *one;

	STAILQ_FOREACH (one, &disk.cache, next) {
		size_t len = 0;

		if (strcmp(keep, "some") == 0 && drawn(state, 2))
			len = one->len;
		else if (strcmp(keep, "part") == 0 && i < torn)
			len = one->len;
		else if (strcmp(keep, "part") == 0 && i == torn)
			len = drawn(state, one->len / SECTOR) * SECTOR;
		whole_write(disk.durable, one->bytes, len, one->at);
		kept_n += len > 0;
		i++;
	}
	STAILQ_FOREACH (one, &disk.cache, next)
		current_undo(one);
	cache_forget();
	return kept_n;
}

static void command(const char *line)
{
	char keep[8] = "";
	size_t number = 0;
	long seed = 0;

	if (strcmp(line, "cut\n") == 0) {
		power_set(HELD);
		printf("%zu writes, %zu bytes\n", disk.cached_n, disk.cached_bytes);
	} else if (sscanf(line, "cut_at %zu", &number) == 1) {
		pthread_mutex_lock(&disk.lock);
		disk.cut_at = number;
		pthread_mutex_unlock(&disk.lock);
		puts("armed");
	} else if (strcmp(line, "is_cut\n") == 0) {
		puts(disk.power == HELD ? "yes" : "no");
	} else if (strcmp(line, "fail\n") == 0) {
		power_set(FAILED);
		puts("failed");
	} else if (sscanf(line, "back %7s %ld", keep, &seed) == 2 && disk.power == FAILED) {
		printf("%zu kept\n", cache_keep(keep, seed));
		power_set(ON);
	} else {
		puts("unknown command");
	}
	fflush(stdout);
}

/* Until standard input ends; what is still mounted then gets errors. */
static void *commands_take(void *data)
{
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		command(line);
	fuse_unmount(data);
	_exit(0);
}

static int file_make(const char *folder, const char *name, off_t size)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, size))
		die(path);
	return fd;
}

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	char mount[4096];
	pthread_t thread;
	struct fuse *fuse;

	if (argc != 3) {
		fprintf(stderr, "usage: %s FOLDER MIB\n", argv[0]);
		return 2;
	}
	disk.size = (off_t)atol(argv[2]) * MIB;
	disk.current = file_make(argv[1], "current", disk.size);
	disk.durable = file_make(argv[1], "durable", disk.size);
	snprintf(mount, sizeof(mount), "%s/mount", argv[1]);
	if (mkdir(mount, 0700))
		die(mount);
	fuse = fuse_new(&args, &operations, sizeof(operations), NULL);
	if (!fuse || fuse_mount(fuse, mount))
		return 1;
	if (pthread_create(&thread, NULL, commands_take, fuse))
		die("pthread_create");
	return fuse_loop(fuse);
}
