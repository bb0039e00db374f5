/*
 * Standard error, where the log goes, without waiting for whoever reads it. A line is written at
 * once if the pipe, socket or terminal takes it. Otherwise it waits in a buffer of
 * LOG_OUTPUT_BYTES, which a temporary thread empties; what does not fit is dropped and counted. At
 * the end of the process the buffer is written for at most LOG_OUTPUT_END_MS. Any thread.
 *
 *	log_output_write() ─▶ buffer is empty ─▶ standard error
 *	                  └─▶ buffer ─▶ thread ─┘
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define LOG_LINE_SIZE 4096 /* with its newline: what a pipe takes in one piece */
#define LOG_OUTPUT_BYTES 262144
#define LOG_OUTPUT_END_MS 500

/* Defined in log.c: makes the line that reports how many lines were dropped; returns its length. */
size_t log_dropped_line(int64_t lines, char line[LOG_LINE_SIZE]);

void log_output_init(void); /* once, before threads start */

/* Writes a line, which ends with a newline. */
void log_output_write(const char *line, size_t len);

/* Writes the last words before exit() or abort(): waits for up to LOG_OUTPUT_END_MS. */
void log_output_last(const char *text, size_t len);
