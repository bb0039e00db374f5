/* Keys of the RFCs as JSON, and key sets of them that are taken or refused. */
#pragma once

#include "gateway/auth/jwks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* RFC 7515 A.1, A.2, A.3, and RFC 8037 A.2. */
#define K "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
#define N                                                                                      \
	"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-"                \
	"4qPCJrcS2mJPMEzP1Pt0"                                                                 \
	"Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-"          \
	"bSf63kpaSHSXnd"                                                                       \
	"S5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_" \
	"I5IhlJ"                                                                               \
	"H7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"
#define X "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
#define Y "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
#define ED "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"

#define KEYS(keys) "{\"keys\":[" keys "]}"
#define EC(rest) "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" X "\",\"y\":\"" Y "\"" rest "}"
#define OKP(rest) "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" ED "\"" rest "}"
#define RSA(rest) "{\"kty\":\"RSA\",\"n\":\"" N "\",\"e\":\"AQAB\"" rest "}"
#define OCT(rest) "{\"kty\":\"oct\",\"k\":\"" K "\"" rest "}"
#define KID(kid) ",\"kid\":\"" kid "\""

static struct token_keys *parse(const char *text, int is_secret, char why[KEY_FILE_WHY_SIZE])
{
	size_t len = strlen(text);
	char *copy = malloc(len ? len : 1); /* a sanitizer detects reads beyond it */
	struct token_keys *keys;

	*why = '\0';
	memcpy(copy, text, len);
	keys = token_keys_parse(copy, len, is_secret, why);
	free(copy);
	return keys;
}

static struct token_keys *take(const char *text)
{
	char why[KEY_FILE_WHY_SIZE];
	struct token_keys *keys = parse(text, 1, why);

	if (!keys)
		fail_msg("%s: %s", text, why);
	return keys;
}

static void refuse(const char *text, const char *part)
{
	char why[KEY_FILE_WHY_SIZE];

	if (parse(text, 1, why))
		fail_msg("%s was taken", text);
	if (!strstr(why, part))
		fail_msg("%s: \"%s\" lacks %s", text, why, part);
}
