/* The figures of a coupon as its audit has seen them, for people and as JSON. */
#ifndef CTL_AUDIT_FIGURES_H
#define CTL_AUDIT_FIGURES_H

#include "ctl/audit/pass.h"

void figures_print(const struct pass *pass);
cJSON *figures_json(const struct pass *pass);

#endif
