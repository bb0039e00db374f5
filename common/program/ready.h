/*
 * --ready of a service: a second process of the program asks the running one whether it is ready.
 * It is the health check of the image, which has no other client of HTTP.
 */
#pragma once

#include "common/program/config.h"

/*
 * Called at the start of a service, with the arguments that no setting has taken. Returns if they
 * are not --ready alone. Else asks GET /readyz of the listener at `address`, the value of the
 * setting `setting`, prints the answer, or why there is none, and ends the process: with status 0
 * if the answer is 200, else with 1.
 */
void ready_answer(const struct config *config, const char *setting, const char *address, int argc,
		  char **argv);
