/*
 * Weak settings of the services, and of the URLs and listeners of this process. The log names each
 * (weak_setting), and so do the warnings of /readyz.
 *
 * The reported settings of the services are compared with those that the promises need. A weak one
 * is logged once for each connection and whenever it changes; one that cannot be read is logged
 * once. Belongs to one thread. No I/O.
 */
#pragma once

#include "common/program/config.h"

#include <cjson/cJSON.h>

#define DURABILITY_N 7
#define DURABILITY_VALUE_SIZE 48

enum durability_part { DURABILITY_REDIS, DURABILITY_POSTGRESQL };

/* All zero at first. */
struct durability {
	char values[DURABILITY_N][DURABILITY_VALUE_SIZE]; /* "": not read yet */
	int unknown[2];                                   /* by part: its settings cannot be read */
	int unknown_logged[2];
	int is_acknowledged; /* durability_is_acknowledged() */
	int is_silent;       /* nothing is logged */
};

/* One setting, as it was told. */
struct durability_setting {
	enum durability_part part;
	const char *name, *value;  /* value "": not read */
	const char *wanted, *lost; /* the recommended value, and what a weaker one loses */
	int is_weak;
};

/*
 * The settings of Redis that are to be read, from `i` = 0 on; NULL: these were all. With Sentinels
 * there is one more.
 */
const char *durability_redis_setting(int i, int has_sentinels);

/* COUPON_DATABASE_SYNCHRONOUS. Ends the process with a sentence if it is neither yes nor no. */
int durability_is_synchronous(const struct config *config);
/*
 * COUPON_REDIS_DURABILITY: an operator has checked the settings of a Redis that does not show them.
 * What it does show is judged nevertheless. Ends the process with a sentence if it is neither read
 * nor acknowledged.
 */
int durability_is_acknowledged(const struct config *config);

/* A new connection: the settings of its server are unknown. */
void durability_begin(struct durability *durability, enum durability_part part);
/* One setting's value; a setting that is not in the table is ignored. */
void durability_tell(struct durability *durability, const char *setting, const char *value);
/* The part does not show its settings, for instance because that is forbidden. */
void durability_unknown(struct durability *durability, enum durability_part part, const char *why);

/* The settings of both parts, from `i` = 0 on. 0, or -1: these were all. */
int durability_setting_read(const struct durability *durability, int i,
			    struct durability_setting *setting);

/*
 * Appends a sentence for each setting that is weak, and for each part that does not show its
 * settings, to `array` unless it is NULL. Returns their number.
 */
int durability_warnings(const struct durability *durability, cJSON *array);

/*
 * Whether what the programs send to the stores is protected on its way to another machine, and who
 * may reach their listeners: looks at the URLs of `program`, which were checked, and its listeners,
 * and logs each that is weak. Of couponctl it looks only at the URL of the owner of the tables.
 * Ends the process with a sentence for a listener that others can reach unprotected, unless
 * COUPON_INSECURE allows it. Once, before other threads.
 */
void transport_check(const struct config *config, enum config_program program);

/* Appends a sentence for each to `array` unless it is NULL. Returns their number. Any thread. */
int transport_warnings(cJSON *array);
