#include "gateway/listen/responder.h"

#include "common/check.h"

#include <string.h>

void responder_object(struct responder *responder, const char *id, enum answer answer,
		      const char *status, cJSON *object)
{
	cJSON *line = cJSON_CreateObject(), *member;
	char *text;

	check(line != NULL);
	if (*id)
		cJSON_AddRawToObject(line, "id", id);
	cJSON_AddNumberToObject(line, "code", answer_code(answer));
	cJSON_AddStringToObject(line, "status", status ? status : answer_status(answer));
	while (object && (member = object->child)) {
		cJSON_DetachItemViaPointer(object, member);
		cJSON_AddItemToObject(line, member->string, member);
	}
	cJSON_Delete(object);
	text = cJSON_PrintUnformatted(line);
	check(text != NULL);
	responder->reply(responder, answer, text, strlen(text));
	cJSON_free(text);
	cJSON_Delete(line);
}

void responder_fail(struct responder *responder, const char *id, enum answer answer,
		    const char *message)
{
	cJSON *object = cJSON_CreateObject();

	check(object != NULL);
	cJSON_AddStringToObject(object, "message", message ? message : answer_text(answer));
	responder_object(responder, id, answer, NULL, object);
}
