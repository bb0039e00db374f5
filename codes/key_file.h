/* Reads the file of keys, and refuses one that others may read. */
#ifndef CODES_KEY_FILE_H
#define CODES_KEY_FILE_H

#include "codes/key.h"

#define CODE_KEY_FILE_BYTES_MAX 65536

/* 0, or -1 with a sentence that names the file and what is allowed. */
int code_key_file_read(struct code_keys *keys, const char *path, char why[CODE_WHY_SIZE]);

/* Of one state of the file; all 0: there is none. */
struct code_key_stamp {
	int64_t inode, size, modified_ns, changed_ns;
};

struct code_key_stamp code_key_file_stamp(const char *path);
int code_key_stamp_equal(const struct code_key_stamp *one, const struct code_key_stamp *other);

#endif
