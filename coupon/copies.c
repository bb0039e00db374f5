#include "coupon/copies.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKING_MAX 16 /* coupons at a time */

TAILQ_HEAD(copy_list, copy);

struct copies_coupon {
	int64_t id;
	UT_hash_handle hh;
	TAILQ_ENTRY(copies_coupon) next;
	struct copy_list list; /* oldest first */
	int is_looking;        /* in that list, else in that of those that wait */
	int look_again;        /* when the present look has ended */
	int64_t look_ms;       /* the next look */
	int64_t looked_ms;     /* the last one that was begun */
	int64_t there_ms;      /* the last one after which Redis had all of them; 0: none */
	int64_t filling;       /* what it showed */
	int64_t process_n;
	int is_alone;
};

TAILQ_HEAD(copies_coupons, copies_coupon);

struct copies {
	struct copies_port port;
	struct copies_coupon *coupons;
	struct copies_coupons waiting; /* by the time of the next look */
	struct copies_coupons looking; /* those that Redis is asked for, or is told */
	size_t looking_n;
	int64_t every_ms;
	size_t lost;
	char process[COPIES_PROCESS_SIZE]; /* of Redis, at the last look */
	int64_t process_n;                 /* another number: another process */
};

struct copies *copies_new(const struct copies_port *port)
{
	struct copies *copies = checked(calloc(1, sizeof(*copies)));

	copies->port = *port;
	copies->every_ms = COPIES_LOOK_MS;
	TAILQ_INIT(&copies->waiting);
	TAILQ_INIT(&copies->looking);
	return copies;
}

void copies_free(struct copies *copies)
{
	struct copies_coupon *coupon, *next;

	if (!copies)
		return;
	HASH_ITER (hh, copies->coupons, coupon, next) {
		HASH_DEL(copies->coupons, coupon);
		free(coupon);
	}
	free(copies);
}

/* Every change of a copy's state. */
static void copy_set(struct copies *copies, struct copy *copy, enum copy_state state)
{
	if (copy->state != COPY_THERE)
		copies->lost -= copy->receives;
	copy->state = state;
	if (copy->state != COPY_THERE)
		copies->lost += copy->receives;
}

/* The pause is the same for all, so the list stays in the order of time. */
static void wait_begin(struct copies *copies, struct copies_coupon *coupon)
{
	coupon->look_ms = copies->port.now_ms() + copies->every_ms;
	coupon->is_looking = 0;
	TAILQ_INSERT_TAIL(&copies->waiting, coupon, next);
}

void copies_add(struct copies *copies, struct copy *copy)
{
	struct copies_coupon *coupon;

	HASH_FIND(hh, copies->coupons, &copy->coupon, sizeof(copy->coupon), coupon);
	if (!coupon) {
		coupon = checked(calloc(1, sizeof(*coupon)));
		coupon->id = copy->coupon;
		TAILQ_INIT(&coupon->list);
		HASH_ADD(hh, copies->coupons, id, sizeof(coupon->id), coupon);
		wait_begin(copies, coupon);
	} else if (TAILQ_EMPTY(&coupon->list) && !coupon->is_looking) {
		TAILQ_REMOVE(&copies->waiting, coupon, next);
		wait_begin(copies, coupon);
	}
	copy->of = coupon;
	copy->state = COPY_THERE;
	copy->added_ms = copies->port.now_ms();
	copy->filling = copy->process_n = 0;
	TAILQ_INSERT_TAIL(&coupon->list, copy, next);
}

void copies_remove(struct copies *copies, struct copy *copy)
{
	if (!copy->of)
		return;
	copy_set(copies, copy, COPY_THERE);
	TAILQ_REMOVE(&copy->of->list, copy, next);
	copy->of = NULL;
}

void copies_tick(struct copies *copies)
{
	int64_t now_ms = copies->port.now_ms();
	struct copies_coupon *coupon;

	while (copies->looking_n < LOOKING_MAX && (coupon = TAILQ_FIRST(&copies->waiting)) &&
	       coupon->look_ms <= now_ms) {
		TAILQ_REMOVE(&copies->waiting, coupon, next);
		if (TAILQ_EMPTY(&coupon->list)) {
			HASH_DEL(copies->coupons, coupon);
			free(coupon);
			continue;
		}
		TAILQ_INSERT_TAIL(&copies->looking, coupon, next);
		copies->looking_n++;
		coupon->is_looking = 1;
		coupon->look_again = 0;
		coupon->looked_ms = now_ms;
		copies->port.look(copies->port.context, coupon, coupon->id);
	}
}

void copies_look_soon(struct copies *copies, int64_t id)
{
	struct copies_coupon *coupon;

	HASH_FIND(hh, copies->coupons, &id, sizeof(id), coupon);
	if (!coupon)
		return;
	coupon->look_again = 1;
	if (coupon->is_looking)
		return;
	coupon->look_ms = 0;
	TAILQ_REMOVE(&copies->waiting, coupon, next);
	TAILQ_INSERT_HEAD(&copies->waiting, coupon, next);
}

void copies_look_all(struct copies *copies)
{
	struct copies_coupon *coupon;

	TAILQ_FOREACH (coupon, &copies->waiting, next)
		coupon->look_ms = 0;
	TAILQ_FOREACH (coupon, &copies->looking, next)
		coupon->look_again = 1;
}

void copies_hurry(struct copies *copies)
{
	copies->every_ms = COPIES_HURRY_MS;
	copies_look_all(copies);
}

int64_t copies_due_ms(const struct copies *copies)
{
	const struct copies_coupon *coupon = TAILQ_FIRST(&copies->waiting);

	return coupon && copies->looking_n < LOOKING_MAX ? coupon->look_ms : INT64_MAX;
}

static void look_end(struct copies *copies, struct copies_coupon *coupon)
{
	TAILQ_REMOVE(&copies->looking, coupon, next);
	copies->looking_n--;
	wait_begin(copies, coupon);
	if (coupon->look_again)
		copies_look_soon(copies, coupon->id);
}

/* Writes the next lost messages; if there are none, the look ends. */
static void write_next(struct copies *copies, struct copies_coupon *coupon)
{
	const struct copy *messages[COPIES_MESSAGES_MAX];
	struct copy *copy;
	size_t n = 0, bytes = 0;

	TAILQ_FOREACH (copy, &coupon->list, next) {
		if (copy->state != COPY_LOST)
			continue;
		if (n == COPIES_MESSAGES_MAX ||
		    (n > 0 && bytes + copy->body_len > COPIES_BYTES_MAX))
			break;
		copy_set(copies, copy, COPY_RESTORING);
		messages[n++] = copy;
		bytes += copy->body_len;
	}
	if (n > 0) {
		copies->port.write(copies->port.context, coupon, coupon->id, messages, n);
		return;
	}
	if (!coupon->is_alone)
		coupon->there_ms = coupon->looked_ms;
	look_end(copies, coupon);
}

void copies_looked(struct copies *copies, struct copies_coupon *coupon, const char *process,
		   const struct copies_look *look)
{
	struct copy *copy;

	if (!look) {
		look_end(copies, coupon);
		return;
	}
	if (strcmp(copies->process, process) != 0) {
		snprintf(copies->process, sizeof(copies->process), "%s", process);
		copies->process_n++;
	}
	coupon->filling = 2 * look->generation + look->is_placeholder;
	coupon->process_n = copies->process_n;
	coupon->is_alone = look->is_alone;
	TAILQ_FOREACH (copy, &coupon->list, next) {
		/* whether the numbers of the coupon include those of the message */
		int is_covered = look->is_present && !look->is_placeholder &&
				 look->generation == copy->generation && look->seq >= copy->seq;
		int is_written = copy->filling == coupon->filling &&
				 copy->process_n == coupon->process_n;

		if (copy->added_ms >= coupon->looked_ms)
			break; /* Redis may have been asked before it had this one */
		if (!look->is_present)
			copy->filling = is_written = 0;
		if (!is_covered && !is_written)
			copy_set(copies, copy, COPY_LOST);
		else if (!look->is_alone)
			copy_set(copies, copy, COPY_THERE);
	}
	if (look->is_present)
		write_next(copies, coupon);
	else
		look_end(copies, coupon);
}

void copies_written(struct copies *copies, struct copies_coupon *coupon, enum copies_result result)
{
	int is_written = result == COPIES_WRITTEN || result == COPIES_ALONE;
	struct copy *copy;

	TAILQ_FOREACH (copy, &coupon->list, next) {
		if (copy->state != COPY_RESTORING)
			continue;
		if (is_written) {
			copy->filling = coupon->filling;
			copy->process_n = coupon->process_n;
		}
		if (result != COPIES_ALONE) /* then the next look tells */
			copy_set(copies, copy, is_written ? COPY_THERE : COPY_LOST);
	}
	if (is_written)
		write_next(copies, coupon);
	else
		look_end(copies, coupon);
}

size_t copies_lost(const struct copies *copies)
{
	return copies->lost;
}

size_t copies_unsafe(const struct copies *copies, int64_t since_ms,
		     void (*each)(void *context, const struct copy *copy), void *context)
{
	const struct copies_coupon *coupon;
	const struct copy *copy;
	size_t receives = 0;

	for (coupon = copies->coupons; coupon; coupon = coupon->hh.next) {
		TAILQ_FOREACH (copy, &coupon->list, next) {
			if (copy->state == COPY_THERE && copy->added_ms < coupon->there_ms &&
			    coupon->there_ms >= since_ms)
				continue;
			receives += copy->receives;
			if (each)
				each(context, copy);
		}
	}
	return receives;
}

int restore_look_take(struct copies_look *look, const redisReply *reply)
{
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
		return -1;
	look->is_present = reply->element[0]->type == REDIS_REPLY_STRING;
	look->generation = look->is_present ? redis_reply_number(reply->element[0]) : 0;
	look->seq = look->is_present ? redis_reply_number(reply->element[1]) : 0;
	look->is_placeholder = reply->element[2]->type == REDIS_REPLY_STRING;
	return 0;
}

enum copies_result restore_result_take(const redisReply *reply)
{
	if (!reply || reply->type == REDIS_REPLY_ERROR)
		return COPIES_FAILED;
	if (reply->type == REDIS_REPLY_STRING && strcmp(reply->str, "missing") == 0)
		return COPIES_MISSING;
	return COPIES_WRITTEN;
}

void restore_command_make(struct restore_command *command, int64_t coupon, const char *script,
			  const struct copy *const *messages, size_t n)
{
	const char **word = command->words;

	check(n > 0 && n <= COPIES_MESSAGES_MAX);
	coupon_keys_make(&command->keys, coupon, COUPON_KEYS_RESTORE);
	*word++ = "EVAL";
	*word++ = script;
	*word++ = "4";
	for (int i = 0; i < command->keys.n; i++)
		*word++ = command->keys.names[i];
	for (size_t i = 0; i < n; i++) {
		*word++ = ulid_format(&messages[i]->batch, command->texts[i].batch);
		*word++ = number_text(messages[i]->generation, command->texts[i].generation);
		*word++ = number_text(messages[i]->seq, command->texts[i].seq);
		*word++ = NULL;
	}
	command->n = (int)(word - command->words);
	for (int i = 0; i < command->n; i++)
		if (command->words[i])
			command->lengths[i] = strlen(command->words[i]);
	for (size_t i = 0; i < n; i++) {
		size_t body = 3 + 4 + 4 * i + 3;

		command->words[body] = messages[i]->body;
		command->lengths[body] = messages[i]->body_len;
	}
}
