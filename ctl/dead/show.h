/* A dead letter with its properties, headers and body. */
#ifndef CTL_DEAD_SHOW_H
#define CTL_DEAD_SHOW_H

#include "ctl/dead/letter.h"

void dead_show_print(const struct dead_letter *letter);

/* Adds the members that dead_letter_json() lacks. */
void dead_show_json(const struct dead_letter *letter, cJSON *object);

#endif
