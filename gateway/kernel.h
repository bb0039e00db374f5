/* What the kernel allows, compared at the start with what the settings and a rush need. */
#pragma once

#include "common/program/config.h"

/* Raises the limit of descriptors as far as it may, and logs each limit that is too low. */
void kernel_prepare(const struct config *config);
