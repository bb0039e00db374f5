/* Checks the URL of a webhook before it is stored. */
#ifndef WEBHOOK_URL_H
#define WEBHOOK_URL_H

#include "webhook/rules.h"

#define URL_BYTES_MAX 2048
#define URL_WHY_SIZE 256

/*
 * 0, or -1 with the reason and what is allowed in `why`. A host that is a name is looked up when
 * something is sent; which address it has is checked then, each time.
 */
int url_check(const char *url, const struct rules *rules, char why[URL_WHY_SIZE]);

#endif
