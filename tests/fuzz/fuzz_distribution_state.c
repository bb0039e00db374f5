/*
 * State files of couponctl distribute: what was read is within bounds.
 * Written again it is the same.
 */
#include "tests/fuzz/fuzz.h"

#include "ctl/distribute/state.h"

#include <cjson/cJSON.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct state state, again;
	char *first, *second;

	if (state_parse(&state, (const char *)data, size))
		return 0;
	check(state.coupon > 0 && strlen(state.name) <= STATE_NAME_MAX);
	check(state.settled >= 0 && state.settled <= state.users && state.refused_bytes >= 0);
	first = state_text(&state);
	check(state_parse(&again, first, strlen(first)) == 0);
	second = state_text(&again);
	check(strcmp(first, second) == 0);
	cJSON_free(first);
	cJSON_free(second);
	return 0;
}
