/* The description of the API by OpenAPI 3.1, made from the routes and the options of commands. */
#pragma once

#include <cjson/cJSON.h>

cJSON *openapi_json(void);
