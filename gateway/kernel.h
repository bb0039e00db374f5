/* What the kernel allows, compared at the start with what the settings and a rush need. */
#pragma once

#include "common/program/config.h"

/*
 * Raises the limit of descriptors as far as it may, and logs each limit that is too low. Where it
 * stays too low for `connections_max`, that becomes what it allows.
 */
void kernel_prepare(struct config *config);
