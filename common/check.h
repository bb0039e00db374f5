/*
 * check(): a condition that only a bug in this program can break. It ends the process and prints
 * the place and the condition. Not for input, for the network or for anything that can fail at run
 * time.
 */
#pragma once

#include <stddef.h>

_Noreturn void check_failed(const char *file, int line, const char *condition);

#define check(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

static inline void *check_memory(void *memory, const char *file, int line, const char *call)
{
	if (!memory)
		check_failed(file, line, call);
	return memory;
}

/* What calloc(), strdup() and the like return: without memory the process ends. */
#define checked(call) check_memory((call), __FILE__, __LINE__, #call)
