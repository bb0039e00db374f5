/* What the ways sell from: tables in the schema `compare`, and a database of Redis. */
#ifndef COMPARE_TABLES_H
#define COMPARE_TABLES_H

#include "compare/way.h"

/* Fresh tables and an empty Redis for this way. Needs the role that may create them. */
void tables_make(struct market *market, const struct way *way);
void tables_drop(struct market *market);

#endif
