#include "gateway/publish/outcome_message.h"

#include <stdlib.h>
#include <string.h>

void outcome_message_list_free(struct outcome_message_list *list)
{
	struct outcome_message *message;

	while ((message = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(message);
	}
}

const char *outcome_reason(const char *text)
{
	static const char *const reasons[] = {
#define REASON(name, text) text,
#include "common/message/reason_table.h"
#undef REASON
	};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (strcmp(reasons[i], text) == 0)
			return reasons[i];
	return "other";
}

static int outcome_decode(const cJSON *item, int64_t *index, enum outcome_state *state,
			  const char **reason)
{
	const cJSON *first = cJSON_IsArray(item) ? item->child : NULL,
		    *second = first ? first->next : NULL;

	if (!second || json_integer(first, 0, RECEIVE_INDEX_MAX, index) || !cJSON_IsString(second))
		return -1;
	*reason = NULL;
	*state = OUTCOME_ISSUED;
	if (strcmp(second->valuestring, "issued") == 0)
		return 0;
	if (strcmp(second->valuestring, "rejected") != 0 || !cJSON_IsString(second->next))
		return -1;
	*state = OUTCOME_REJECTED;
	*reason = outcome_reason(second->next->valuestring);
	return 0;
}

int outcome_message_decode(struct json_arena *arena, const char *body, size_t len, outcome_fn *each,
			   void *context)
{
	const char *error, *reason;
	const cJSON *root = json_parse(arena, body, len, &error), *item, *batch, *outcomes;
	enum outcome_state state;
	struct ulid ulid;
	int64_t index;

	batch = root ? cJSON_GetObjectItemCaseSensitive(root, "batch") : NULL;
	outcomes = root ? cJSON_GetObjectItemCaseSensitive(root, "outcomes") : NULL;
	if (!cJSON_IsString(batch) ||
	    ulid_parse(&ulid, batch->valuestring, strlen(batch->valuestring)) ||
	    !cJSON_IsArray(outcomes))
		return -1;
	cJSON_ArrayForEach(item, outcomes)
	{
		if (outcome_decode(item, &index, &state, &reason))
			return -1;
		each(context, &ulid, (int)index, state, reason);
	}
	return 0;
}
