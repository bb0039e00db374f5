/* Trees of figures for --json; people get the same in their own layout. */
#ifndef CTL_OUTPUT_H
#define CTL_OUTPUT_H

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

cJSON *output_object(void);
void output_text(cJSON *object, const char *name, const char *text); /* NULL or "": null */
void output_number(cJSON *object, const char *name, int64_t number); /* exact, unlike cJSON's own */
void output_bool(cJSON *object, const char *name, int truth);
void output_null(cJSON *object, const char *name);
void output_add(cJSON *object, const char *name, cJSON *child); /* takes `child` */

/* One line to standard output, then frees the tree. */
void output_print(cJSON *object);

/* 1234567 as 1,234,567; `out` holds up to 28 bytes. Returns `out`. */
#define OUTPUT_GROUPED_SIZE 32
char *output_grouped(int64_t number, char out[OUTPUT_GROUPED_SIZE]);

#endif
