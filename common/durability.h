/*
 * How the services said they are set, against durability_table.h. What is weak is logged
 * (weak_setting) once for each connection and whenever it changes; what cannot be read is logged
 * once. Belongs to one thread. No I/O.
 */
#ifndef COMMON_DURABILITY_H
#define COMMON_DURABILITY_H

#include <cjson/cJSON.h>

#define DURABILITY_N 6
#define DURABILITY_VALUE_SIZE 48

enum durability_part { DURABILITY_REDIS, DURABILITY_POSTGRESQL };

struct durability_state {
	char value[DURABILITY_VALUE_SIZE]; /* "": not read yet */
	int logged;                        /* the value was */
};

/* All zero at first. */
struct durability {
	struct durability_state states[DURABILITY_N];
	int unknown[2]; /* by part: it could not be asked */
	int unknown_logged[2];
};

/* The settings of the table; `i` below DURABILITY_N. */
enum durability_part durability_part(int i);
const char *durability_setting(int i);

/* A new connection: nothing is known of what it leads to. */
void durability_begin(struct durability *durability, enum durability_part part);
/* One setting's value; a setting that is not in the table is ignored. */
void durability_tell(struct durability *durability, enum durability_part part, const char *setting,
		     const char *value);
/* The part does not show its settings: forbidden, for instance. */
void durability_unknown(struct durability *durability, enum durability_part part, const char *why);

/* Appends a sentence for each setting that is weak, and for each part that does not show its settings. */
void durability_warnings(const struct durability *durability, cJSON *array);
int durability_warnings_n(const struct durability *durability); /* how many those are */

#endif
