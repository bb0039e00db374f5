/* couponctl codes key: makes a file of keys, or adds a key to it. */
#include "codes/key_file.h"
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/ctl.h"
#include "ctl/file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "# Keys of exchange codes: VERSION HEX. Who has them can make codes.\n"

/* Writes what the file has now, or its head when there is none. Returns the version to add. */
static int old_copy(const char *path, FILE *out)
{
	char text[4096], why[CODE_WHY_SIZE];
	struct code_keys keys;
	const struct code_key *newest;
	int version, last = '\n';
	struct stat stat;
	FILE *in;
	size_t n;

	if (access(path, F_OK) != 0 && errno == ENOENT) {
		fputs(HEAD, out);
		return 1;
	}
	if (code_key_file_read(&keys, path, why))
		log_fatal("%s", why);
	newest = code_keys_newest(&keys);
	version = newest->version + 1;
	if (version > CODE_KEY_VERSION_MAX || keys.n == CODE_KEYS_MAX)
		log_fatal("the file of keys \"%s\" has %zu keys up to version %d: allowed are %d "
			  "keys and versions up to %d",
			  path, keys.n, newest->version, CODE_KEYS_MAX, CODE_KEY_VERSION_MAX);
	code_keys_wipe(&keys);
	in = fopen(path, "re");
	if (!in || fstat(fileno(in), &stat))
		log_fatal("the file of keys \"%s\" cannot be read: %s", path, strerror(errno));
	for (; (n = fread(text, 1, sizeof(text), in)) > 0; last = text[n - 1])
		fwrite(text, 1, n, out);
	OPENSSL_cleanse(text, sizeof(text));
	/* It keeps its group and who may read it. */
	if (ferror(in) || fchown(fileno(out), stat.st_uid, stat.st_gid) ||
	    fchmod(fileno(out), stat.st_mode & 0777))
		log_fatal("the file of keys \"%s\" cannot be copied: %s", path, strerror(errno));
	fclose(in);
	if (last != '\n')
		putc('\n', out);
	return version;
}

static int key_run(struct ctl *ctl)
{
	const char *path = ctl->config.code_keys;
	struct code_key key;
	char fingerprint[CODE_FINGERPRINT_SIZE];
	struct file_new file;

	if (!*path)
		args_fail("COUPON_CODE_KEYS is \"\": needed is the path of the file of keys");
	file_new_open(&file, path);
	key.version = old_copy(path, file.stream);
	check(getrandom(key.bytes, sizeof(key.bytes), 0) == sizeof(key.bytes));
	fprintf(file.stream, "%d ", key.version);
	for (size_t i = 0; i < sizeof(key.bytes); i++)
		fprintf(file.stream, "%02x", key.bytes[i]);
	putc('\n', file.stream);
	file_new_place(&file, FILE_REPLACE);
	printf("key %d with the fingerprint %s is in %s\n", key.version,
	       code_key_fingerprint(&key, fingerprint), path);
	OPENSSL_cleanse(&key, sizeof(key));
	return 0;
}

const struct command codes_key_command = {
	.name = "codes key",
	.run = key_run,
	.summary = "make the file of keys, or add a key to it",
	.detail =
		"COUPON_CODE_KEYS names the file. The new key has the next version, and makes the\n"
		"codes from then on; older keys remain, so that their codes stay valid. Copy the\n"
		"file to every place that has it, and keep a copy apart from the database: codes\n"
		"cannot be read without their key.",
};
