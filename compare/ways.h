/* All ways. */
#ifndef COMPARE_WAYS_H
#define COMPARE_WAYS_H

#include "compare/way.h"

/* In the order of docs/ways.md; the last one is NULL. */
extern const struct way *const ways[];

const struct way *ways_find(const char *id); /* NULL: there is none */

#endif
