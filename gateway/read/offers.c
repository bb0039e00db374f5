#include "gateway/read/offers.h"

#include "common/check.h"
#include "common/clock.h"
#include "coupon/slot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_MS 500      /* so long what Redis had is shown */
#define PAGE_BYTES 131072 /* offers of a page: so clients can read it in time */
#define OFFER_BYTES 512   /* of one, beside its members */

/* What Redis is asked for a page: the state of a campaign, or the user's slots of it. */
struct part {
	struct page *page;
	struct redis_link *link;
	int64_t id;
	int64_t asked_ms; /* the state */
	int taken;        /* slots that the user has; -1: Redis did not say */
};

struct page {
	const struct status_parts *parts;
	struct catalogue *catalogue;
	struct request *request;
	size_t waiting; /* replies */
	int has_failed; /* Redis is unreachable */
	int has_more;
	int64_t last_begin_ms; /* of the last one */
	int n;
	struct part offers[REQUEST_PAGE_MAX];
};

/* Chooses those of the page. */
static void page_choose(struct page *page)
{
	const struct request *request = page->request;
	const struct request_page *wanted = &request->page;
	int64_t now_ms = clock_wall_ms(), last_ms = now_ms + wanted->within_s * 1000;
	const char *tag = request_code(request);
	char own_tag[TAG_MAX + 3]; /* as it is among those of a campaign */
	size_t place = wanted->is_next
			       ? catalogue_after(page->catalogue, wanted->after.at_us / 1000,
						 wanted->after.coupon)
			       : 0,
	       bytes = 0;

	snprintf(own_tag, sizeof(own_tag), *tag ? ",%s," : "%s", tag);
	for (; place < catalogue_count(page->catalogue); place++) {
		const struct offered *one = catalogue_at(page->catalogue, place);

		if (one->begin_ms > last_ms)
			return;
		if ((one->end_ms && one->end_ms <= now_ms) || !strstr(one->tags, own_tag) ||
		    !identity_has_coupon(&request->responder->identity, one->id))
			continue;
		bytes += OFFER_BYTES + strlen(one->members);
		if (page->n == wanted->limit || (page->n > 0 && bytes > PAGE_BYTES)) {
			page->has_more = 1;
			return;
		}
		page->offers[page->n++] = (struct part){ .page = page, .id = one->id };
	}
}

static void offer_add(cJSON *offers, const struct offered *one, int has_user, int taken)
{
	size_t size = OFFER_BYTES + strlen(one->members), len;
	char *text = checked(malloc(size));
	int is_known = one->state && taken >= 0;
	const char *why = is_known ? coupon_refusal(one->state, one->stock, one->limit, taken)
				   : answer_status(ANSWER_UNAVAILABLE);

	len = (size_t)snprintf(text, size, "{\"coupon\":\"%lld\",%s,\"state\":\"%s\"",
			       (long long)one->id, one->members,
			       one->state ? one->state : answer_status(ANSWER_UNAVAILABLE));
	if (one->state)
		len += (size_t)snprintf(text + len, size - len,
					",\"total\":%lld,\"stock\":%lld,\"limit\":%lld",
					(long long)one->total, (long long)one->stock,
					(long long)one->limit);
	if (has_user && is_known)
		len += (size_t)snprintf(text + len, size - len, ",\"taken\":%d,\"left\":%lld",
					taken,
					(long long)(one->limit > taken ? one->limit - taken : 0));
	if (has_user)
		len += (size_t)snprintf(text + len, size - len, ",\"claimable\":%s",
					why ? "false" : "true");
	if (has_user && why)
		len += (size_t)snprintf(text + len, size - len, ",\"why\":\"%s\"", why);
	snprintf(text + len, size - len, "}");
	cJSON_AddItemToArray(offers, checked(cJSON_CreateRaw(text)));
	free(text);
}

static void page_answer(struct page *page)
{
	struct request *request = page->request;
	int has_user = request->user.text[0] != '\0';
	const struct offered *one;
	char text[COUPON_CURSOR_SIZE];
	cJSON *object, *offers;

	if (page->has_failed) {
		request_fail(request, ANSWER_UNAVAILABLE, "Redis is unreachable");
		free(page);
		return;
	}
	object = checked(cJSON_CreateObject());
	offers = cJSON_AddArrayToObject(object, "offers");
	for (int i = 0; i < page->n; i++) {
		one = catalogue_find(page->catalogue, page->offers[i].id);
		/* It may have ended, or been paused, meanwhile. */
		if (!one || (one->state && (strcmp(one->state, "ended") == 0 ||
					    strcmp(one->state, "paused") == 0)))
			continue;
		offer_add(offers, one, has_user, page->offers[i].taken);
	}
	if (page->has_more) {
		const struct coupon_cursor next = { .at_us = page->last_begin_ms * 1000,
						    .coupon = page->offers[page->n - 1].id,
						    .slot = 1 };

		cJSON_AddStringToObject(object, "cursor",
					coupon_cursor_format(&next, &request->user, text));
	}
	request_answer_object(request, ANSWER_OK, NULL, object);
	free(page);
}

static void part_end(struct part *part)
{
	struct page *page = part->page;

	--*page->parts->in_redis;
	if (--page->waiting == 0)
		page_answer(page);
}

static void on_state(void *context, const redisReply *reply)
{
	struct part *part = context;
	struct offered *one = catalogue_find(part->page->catalogue, part->id);
	struct coupon_state state;

	coupon_state_read(reply, part->link, &state);
	part->page->has_failed |= !reply;
	if (one) {
		one->read_ms = part->asked_ms > one->row_ms ? part->asked_ms : 0;
		one->state = state.why ? NULL : state.state;
		one->total = state.total;
		one->stock = state.stock;
		one->limit = state.limit;
	}
	part_end(part);
}

/* The user's records, one a line. */
static void on_slots(void *context, const redisReply *reply)
{
	struct part *part = context;

	part->page->has_failed |= !reply;
	part->taken = slots_count(reply);
	part_end(part);
}

void offers_answer(const struct status_parts *parts, struct catalogue *catalogue,
		   struct request *request)
{
	struct redis_link *link = redis_pool_pick(parts->redis);
	struct page *page;
	int64_t now_ms = clock_monotonic_ms();
	char key[COUPON_KEY_SIZE];
	const char *hget[] = { "HGET", key, request->user.text };

	if (!catalogue_is_read(catalogue)) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "what is on offer is being read from PostgreSQL");
		return;
	}
	page = checked(calloc(1, sizeof(*page)));
	page->parts = parts;
	page->catalogue = catalogue;
	page->request = request;
	page_choose(page);

	page->waiting = 1; /* until all is asked: an answer may come at once */
	for (int i = 0; i < page->n; i++) {
		struct part *part = &page->offers[i];
		const struct offered *one = catalogue_find(catalogue, part->id);

		part->link = link;
		page->last_begin_ms = one->begin_ms;
		if (one->read_ms == 0 || now_ms - one->read_ms >= FRESH_MS) {
			page->waiting++;
			++*parts->in_redis;
			part->asked_ms = now_ms;
			coupon_state_ask(parts, link, part->id, on_state, part);
		}
		if (*request->user.text) {
			page->waiting++;
			++*parts->in_redis;
			coupon_key(part->id, COUPON_KEY_USERS, key);
			redis_pool_query_over(link, 3, hget, on_slots, part);
		}
	}
	if (--page->waiting == 0)
		page_answer(page);
}
