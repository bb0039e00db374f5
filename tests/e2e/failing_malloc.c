/*
 * For LD_PRELOAD: allocations of the program are counted while the first number of the file
 * FAILING_MALLOC is not 0, and the one with that number fails. The second number is the count. Both
 * have 8 bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *pointer, size_t size);

struct failing {
	_Atomic int64_t at;
	_Atomic int64_t count;
};

static struct failing *failing;

__attribute__((constructor)) static void failing_map(void)
{
	const char *path = getenv("FAILING_MALLOC");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(*failing), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		failing = map;
}

static int fails(void)
{
	int64_t at = failing ? atomic_load(&failing->at) : 0;

	if (at == 0 || atomic_fetch_add(&failing->count, 1) + 1 != at)
		return 0;
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *pointer, size_t size)
{
	return fails() ? NULL : __libc_realloc(pointer, size);
}
