/*
 * Keys of generated codes: AES-256, each with a version. The text of a key file has a line
 * `VERSION HEX` for each; empty lines and lines that begin with # are ignored.
 */
#pragma once

#include "codes/form.h"

#include <stddef.h>
#include <stdint.h>

#define CODE_KEY_BYTES 32
#define CODE_KEY_VERSION_MAX 32767
#define CODE_KEYS_MAX 64
#define CODE_FINGERPRINT_SIZE 33

struct code_key {
	int version;
	uint8_t bytes[CODE_KEY_BYTES];
};

struct code_keys {
	struct code_key list[CODE_KEYS_MAX];
	size_t n;
};

/*
 * The text has a NUL behind its `len` bytes. 0, or -1 with a sentence that names the line and what
 * is allowed, and never a key. A version may be there once, and so may a key.
 */
int code_keys_parse(struct code_keys *keys, const char *text, size_t len, char why[CODE_WHY_SIZE]);
void code_keys_wipe(struct code_keys *keys);

const struct code_key *code_keys_find(const struct code_keys *keys, int version); /* or NULL */
const struct code_key *code_keys_newest(const struct code_keys *keys);            /* NULL: none */

/* Tells keys from each other, and nothing about them. Returns `out`. */
char *code_key_fingerprint(const struct code_key *key, char out[CODE_FINGERPRINT_SIZE]);

#define CODE_KEY_FILE_BYTES_MAX 65536

/* As key_file_read(): 0, -1 or KEY_FILE_LATER. */
int code_key_file_read(struct code_keys *keys, const char *path, char why[CODE_WHY_SIZE]);
