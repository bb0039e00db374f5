/*
 * Whether what the programs send to the stores is protected on its way to another machine, and who
 * may reach their listeners. A store or a listener that is not is told as a weak setting is
 * (durability.h): in the log at the start, and in the warnings of /readyz.
 */
#pragma once

#include "common/program/config.h"

#include <cjson/cJSON.h>

/*
 * Looks at the URLs of `program`, which were checked, and its listeners, and logs each that is
 * weak. Ends the process with a sentence for a listener that others can reach unprotected, unless
 * COUPON_INSECURE allows it. Of couponctl only
 * that of the owner of the tables. Once, before other threads.
 */
void transport_check(const struct config *config, enum config_program program);

/* Appends a sentence for each to `array` unless it is NULL. Returns their number. Any thread. */
int transport_warnings(cJSON *array);
