/* Texts of --help in lines of at most 80 columns. */
#pragma once

#include <stdio.h>

/*
 * Prints the words of a text, whatever is between them, in lines that begin with `indent` spaces.
 * A word that is wider has a line of its own.
 */
void wrap_print(const char *text, int indent, FILE *out);
