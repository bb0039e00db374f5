#include "ctl/codes/keyring.h"

#include "codes/key_file.h"
#include "common/log/log.h"
#include "embed.h"

#include <string.h>

void keyring_read(struct code_keys *keys, const struct ctl *ctl)
{
	char why[CODE_WHY_SIZE];

	if (!*ctl->config.code_keys)
		log_fatal("COUPON_CODE_KEYS is not set: this needs the file with the keys of "
			  "codes; couponctl codes key makes one");
	if (code_key_file_read(keys, ctl->config.code_keys, why))
		log_fatal("%s", why);
}

int keyring_check(const struct code_keys *keys, struct db *db)
{
	PGresult *rows = db_query(db, sql_query_code_keys, 0, NULL);
	int newest = 0;

	for (int row = 0; row < PQntuples(rows); row++) {
		const struct code_key *key;
		char fingerprint[CODE_FINGERPRINT_SIZE];

		newest = (int)db_int(rows, row, "version");
		key = code_keys_find(keys, newest);
		if (!key || strcmp(code_key_fingerprint(key, fingerprint),
				   db_text(rows, row, "fingerprint")) == 0)
			continue;
		log_fatal("COUPON_CODE_KEYS names a file with another key as version %d: its "
			  "fingerprint is %s, and the key that has made codes has %s",
			  newest, fingerprint, db_text(rows, row, "fingerprint"));
	}
	PQclear(rows);
	return newest;
}
