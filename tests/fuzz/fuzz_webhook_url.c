/*
 * URLs of webhooks. The first byte chooses whether http is allowed. One that is accepted has an
 * allowed scheme and plain characters only; one that is refused has a reason.
 */
#include "tests/fuzz/fuzz.h"

#include "events/endpoint.h"

#include <stdlib.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes bytes = { data, size };
	struct rules rules = { .is_http_allowed = bytes_u8(&bytes) & 1 };
	char why[URL_WHY_SIZE] = "", *url = calloc(1, bytes.left + 1);

	check(url != NULL);
	memcpy(url, bytes.at, bytes.left);
	if (url_check(url, &rules, why)) {
		check(*why && strlen(why) < sizeof(why));
	} else {
		check(strncasecmp(url, "https://", 8) == 0 ||
		      (rules.is_http_allowed && strncasecmp(url, "http://", 7) == 0));
		check(strlen(url) <= URL_BYTES_MAX && !strpbrk(url, " \\\r\n"));
		check(*why == '\0');
	}
	free(url);
	return 0;
}
