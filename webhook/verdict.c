#include "webhook/verdict.h"

#define FIRST_S 5
#define MINUTE 60
#define HOUR (60 * MINUTE)

const char *verdict_name(enum verdict verdict)
{
	static const char *const names[] = {
#define VERDICT(name, text) [name] = text,
		VERDICTS(VERDICT)
#undef VERDICT
	};

	return names[verdict];
}

/* An answer that was cut after its status has arrived all the same. */
int is_delivered(const struct post_result *result)
{
	return result->status >= 200 && result->status < 300;
}

enum verdict verdict_of(const struct post_result *result, int64_t attempts, int64_t attempts_most)
{
	if (is_delivered(result))
		return VERDICT_DELIVERED;
	if (result->status == 410)
		return VERDICT_GONE;
	return attempts < attempts_most ? VERDICT_RETRY : VERDICT_FAILED;
}

int64_t verdict_pause_ms(const struct post_result *result)
{
	if (result->status != 429 && result->status != 503)
		return 0;
	return 1000 * (result->retry_after_s < RETRY_AFTER_S_MAX ? result->retry_after_s
								 : RETRY_AFTER_S_MAX);
}

int64_t retry_delay_ms(int64_t n, int64_t first_ms, uint32_t random)
{
	static const int64_t after_s[] = { FIRST_S,   5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR,
					   10 * HOUR, 14 * HOUR,  20 * HOUR,   24 * HOUR };
	const int64_t last = (int64_t)(sizeof(after_s) / sizeof(after_s[0]));
	int64_t delay_ms = first_ms * after_s[(n < last ? n : last) - 1] / FIRST_S;

	return delay_ms + delay_ms / 4 * (random % 1024) / 1024;
}
