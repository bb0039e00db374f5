/* JSON objects for --json, and the layout of numbers for people. */
#ifndef CTL_OUTPUT_H
#define CTL_OUTPUT_H

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

cJSON *output_object(void);
void output_text(cJSON *object, const char *name, const char *text); /* NULL or "": null */
void output_number(cJSON *object, const char *name,
		   int64_t number); /* exact, unlike cJSON's numbers */
/* Ids are strings, as in every answer: a program that reads numbers as doubles changes them. */
void output_id(cJSON *object, const char *name, int64_t id); /* 0: null */
void output_bool(cJSON *object, const char *name, int truth);
void output_null(cJSON *object, const char *name);
void output_add(cJSON *object, const char *name, cJSON *child); /* `child` becomes part of it */

/* Prints `object` as one line to standard output and frees it. */
void output_print(cJSON *object);

/* Writes 1234567 as 1,234,567. Returns `out`. */
#define OUTPUT_GROUPED_SIZE 32
char *output_grouped(int64_t number, char out[OUTPUT_GROUPED_SIZE]);

#endif
