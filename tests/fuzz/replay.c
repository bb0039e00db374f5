/*
 * Runs a target on its corpus, which make unpacks beside the programs, or on the given files and
 * folders: for `make test`, without clang.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define PATH_SIZE 1024

static size_t files_n;

/* In memory of exactly its size, so that a sanitizer detects reads beyond it. */
static void file_replay(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data;
	long size;

	if (!file) {
		perror(path);
		exit(1);
	}
	check(fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 &&
	      fseek(file, 0, SEEK_SET) == 0);
	data = malloc((size_t)size);
	check(data != NULL || size == 0);
	check(fread(data, 1, (size_t)size, file) == (size_t)size);
	fclose(file);
	printf("%s\n", path); /* the last one that is named is the one that failed */
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, (size_t)size);
	free(data);
	files_n++;
}

static void path_replay(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	char name[PATH_SIZE];

	if (!folder) {
		file_replay(path);
		return;
	}
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		check(snprintf(name, sizeof(name), "%s/%s", path, entry->d_name) < PATH_SIZE);
		file_replay(name);
	}
	closedir(folder);
}

int main(int argc, char **argv)
{
	const char *target = strrchr(argv[0], '/'); /* BUILD/tests/fuzz_NAME */
	char corpus[PATH_SIZE];

	for (int i = 1; i < argc; i++)
		path_replay(argv[i]);
	if (argc == 1) {
		check(target != NULL);
		check(snprintf(corpus, sizeof(corpus), "%.*s/../corpus/%s", (int)(target - argv[0]),
			       argv[0], target + strlen("/fuzz_")) < PATH_SIZE);
		path_replay(corpus);
	}
	printf("%zu inputs\n", files_n);
	return files_n > 0 ? 0 : 1;
}
