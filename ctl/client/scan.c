#include "ctl/client/scan.h"

#include "common/message/answer.h"
#include "common/message/id.h"

#include <string.h>

#define NUMBER_DIGITS_MAX 9

/* Moves `*p` behind `literal`. 0, or -1 when there is something else. */
static int literal_take(const char **p, const char *end, const char *literal, size_t len)
{
	if ((size_t)(end - *p) < len || memcmp(*p, literal, len) != 0)
		return -1;
	*p += len;
	return 0;
}

#define TAKE(p, end, literal) literal_take(p, end, literal, sizeof(literal) - 1)

static int number_take(const char **p, const char *end, int64_t *number)
{
	const char *first = *p;

	*number = 0;
	while (*p < end && **p >= '0' && **p <= '9' && *p - first < NUMBER_DIGITS_MAX)
		*number = *number * 10 + (*(*p)++ - '0');
	return *p > first && (*p - first == 1 || *first != '0') ? 0 : -1;
}

/* "1001" */
static int coupon_take(const char **p, const char *end)
{
	const char *quote;
	int64_t coupon;

	if (TAKE(p, end, "\""))
		return -1;
	quote = memchr(*p, '"', (size_t)(end - *p));
	if (!quote || id_parse(*p, (size_t)(quote - *p), &coupon))
		return -1;
	*p = quote + 1;
	return 0;
}

/* ,"status":"accepted","receive":"…","slot":1}; "coupon" is before "receive" if a code told it. */
static int accepted_scan(const char *p, const char *end, struct client_reply *reply)
{
	const char *quote;
	int64_t slot;

	if (TAKE(&p, end, ",\"status\":\"") ||
	    (TAKE(&p, end, "accepted") && TAKE(&p, end, "issued") && TAKE(&p, end, "queued")) ||
	    TAKE(&p, end, "\","))
		return -1;
	if (TAKE(&p, end, "\"coupon\":") == 0 && (coupon_take(&p, end) || TAKE(&p, end, ",")))
		return -1;
	if (TAKE(&p, end, "\"receive\":\""))
		return -1;
	quote = memchr(p, '"', (size_t)(end - p));
	if (!quote)
		return -1;
	reply->receive = p;
	reply->receive_len = (size_t)(quote - p);
	p = quote;
	return TAKE(&p, end, "\",\"slot\":") || number_take(&p, end, &slot) || TAKE(&p, end, "}") ||
			       p != end
		       ? -1
		       : 0;
}

int client_scan(const char *line, size_t len, struct client_reply *reply)
{
	const char *p = line, *end = line + len;
	int64_t code;

	reply->receive = NULL;
	reply->receive_len = 0;
	reply->reason = NULL;
	if (TAKE(&p, end, "{\"id\":") || number_take(&p, end, &reply->request) ||
	    TAKE(&p, end, ",\"code\":") || number_take(&p, end, &code))
		return -1;
	reply->code = (int)code;
	if (code == answer_code(ANSWER_OK))
		return accepted_scan(p, end, reply);
	/* These may have a receive in any position. */
	if (code == answer_code(ANSWER_REJECTED) || code == answer_code(ANSWER_UNKNOWN))
		return -1;
	return TAKE(&p, end, ",\"status\":\"") || end[-1] != '}' ? -1 : 0;
}

int client_scan_strict(struct json_arena *arena, const char *line, size_t len,
		       struct client_reply *reply)
{
	const char *error;
	const cJSON *root = json_parse(arena, line, len, &error), *item;
	int64_t code;

	memset(reply, 0, sizeof(*reply));
	if (!cJSON_IsObject(root) ||
	    json_integer(cJSON_GetObjectItemCaseSensitive(root, "code"), 0, 99, &code))
		return -1;
	reply->code = (int)code;
	if (json_integer(cJSON_GetObjectItemCaseSensitive(root, "id"), 0, JSON_INTEGER_MAX,
			 &reply->request))
		reply->request = -1;
	item = cJSON_GetObjectItemCaseSensitive(root, "receive");
	if (cJSON_IsString(item)) {
		reply->receive = item->valuestring;
		reply->receive_len = strlen(item->valuestring);
	}
	item = cJSON_GetObjectItemCaseSensitive(root, "reason");
	if (cJSON_IsString(item))
		reply->reason = item->valuestring;
	return 0;
}
