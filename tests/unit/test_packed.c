/*
 * Packed messages: the gateway packs what fits, and the worker finds the same batches in it.
 */
#include "gateway/publish/publisher.h"
#include "common/message/message.h"
#include "tests/unit/settlement_rig.h"
#include "worker/settlement.h"

#define BODY                                                                               \
	"{\"v\":1,\"batch\":\"%s\",\"coupon\":\"%d\",\"generation\":1,\"seq\":1,\"at\":1," \
	"\"receives\":[[\"42\",1,\"%s\"]]}"

static char buffer[PACKED_BYTES_MAX];

/* A batch of that coupon, with a key of so many bytes, that counts as so many receives. */
static struct batch *batch_make(int coupon, size_t receives, size_t key_len)
{
	char key[65] = "", ulid[ULID_SIZE], body[512];
	struct batch *batch;
	struct ulid id = { .bytes = { 0 } };

	memset(key, 'k', key_len);
	memcpy(id.bytes, &coupon, sizeof(coupon));
	snprintf(body, sizeof(body), BODY, ulid_format(&id, ulid), coupon, key);
	batch = calloc(1, sizeof(*batch) + strlen(body));
	batch->ulid = id;
	batch->coupon = coupon;
	batch->receives = receives;
	batch->body_len = strlen(body);
	memcpy(batch->body, body, strlen(body));
	return batch;
}

static void pending_add(struct batch_list *pending, int batches, size_t receives, size_t key_len)
{
	for (int i = 0; i < batches; i++) {
		struct batch *batch = batch_make(1000 + i, receives, key_len);

		STAILQ_INSERT_TAIL(pending, batch, next);
	}
}

static void packet_drop(struct packet *packet)
{
	struct batch_list batches = STAILQ_HEAD_INITIALIZER(batches);

	packet_open(packet, &batches);
	batch_list_free(&batches);
}

static void test_a_batch_alone_is_as_in_the_outbox(void **state)
{
	struct batch_list pending = STAILQ_HEAD_INITIALIZER(pending);
	struct packet *packet;
	const char *error;
	struct packed packed;

	(void)state;
	pending_add(&pending, 1, 256, 0);
	packet = packet_take(&pending);
	assert_ptr_equal(packet_body(packet, buffer), STAILQ_FIRST(&packet->batches)->body);
	assert_int_equal(packet->bytes, STAILQ_FIRST(&packet->batches)->body_len);
	assert_int_equal(packed_open(&packed, STAILQ_FIRST(&packet->batches)->body, packet->bytes,
				     &error),
			 0);
	packet_drop(packet);
}

/* What does not fit waits for the next packet; nothing is reordered. */
static void test_as_many_as_fit(void **state)
{
	static const struct {
		size_t receives, key_len;
		size_t wanted;
	} cases[] = {
		{ 1, 0, 256 }, { 2, 0, 128 }, { 100, 0, 2 }, { 129, 0, 1 }, { 256, 64, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct batch_list pending = STAILQ_HEAD_INITIALIZER(pending);
		int64_t coupon = 1000;

		pending_add(&pending, 300, cases[i].receives, cases[i].key_len);
		while (!STAILQ_EMPTY(&pending)) {
			struct packet *packet = packet_take(&pending);

			if (!STAILQ_EMPTY(&pending))
				assert_int_equal(packet->batches_n, cases[i].wanted);
			assert_true(packet->bytes <= PACKED_BYTES_MAX);
			assert_int_equal(STAILQ_FIRST(&packet->batches)->coupon, coupon);
			coupon += (int64_t)packet->batches_n;
			packet_drop(packet);
		}
		assert_int_equal(coupon, 1300);
	}
}

static void test_not_more_bytes_than_allowed(void **state)
{
	struct batch_list pending = STAILQ_HEAD_INITIALIZER(pending);
	size_t size = 50000, bytes = 0;

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct batch *batch = calloc(1, sizeof(*batch) + size);

		batch->receives = 1;
		batch->body_len = size;
		memset(batch->body, 'x', size);
		STAILQ_INSERT_TAIL(&pending, batch, next);
	}
	while (!STAILQ_EMPTY(&pending)) {
		struct packet *packet = packet_take(&pending);

		assert_true(packet->bytes <= PACKED_BYTES_MAX);
		packet_body(packet, buffer);
		bytes += packet->bytes;
		packet_drop(packet);
	}
	assert_int_equal(bytes, 3 * size + strlen(PACKED_HEAD PACKED_NEXT PACKED_TAIL));
}

static void *batch_envelope(const void *whole, const char *text, size_t len,
			    const struct ulid *batch)
{
	(void)text;
	(void)len;
	(void)batch;
	assert_non_null(whole);
	return envelope_make();
}

static void unpack(struct settlement *s, const char *body, size_t len, unsigned how)
{
	static uint64_t tag = 1;
	struct unpack unpack = { .settlement = s,
				 .arena = json_arena_new(),
				 .read = receives_read,
				 .batch_envelope = batch_envelope };

	unpack_add(&unpack, tag++, body, len, how, envelope_make());
	json_arena_free(unpack.arena);
}

static void test_the_worker_finds_each_batch(void **state)
{
	struct batch_list pending = STAILQ_HEAD_INITIALIZER(pending);
	struct settlement *s = *state;
	struct packet *packet;
	uint64_t tag;
	int multiple;

	pending_add(&pending, 200, 1, 3);
	packet = packet_take(&pending);
	unpack(s, packet_body(packet, buffer), packet->bytes, 0);
	assert_int_equal(settlement_counts(s).held, 1);
	assert_int_equal(settlement_take(s, 150, 0), 150);
	for (size_t i = 0; i < 150; i++) {
		const struct delivery *delivery = s->taken[i];

		assert_int_equal(delivery->coupon, 1000 + i);
		assert_string_equal(delivery->receives[0].tail, "kkk");
		assert_int_equal(delivery->position, i);
	}
	settlement_commit(s);
	ack_expect_none(s);
	assert_int_equal(settlement_take(s, 150, 0), 50);
	settlement_commit(s);
	assert_int_equal(settlement_ack(s, &tag, &multiple), 1);
	assert_int_equal(multiple, 0);
	assert_int_equal(settlement_counts(s).held, 0);
	packet_drop(packet);
}

/* What JSON and the frame are made of, and its escaped form. */
static const struct {
	const char *user, *json;
} hostile[] = {
	{ "\"", "\\\"" },
	{ "\\", "\\\\" },
	{ "\\n]}", "\\\\n]}" },
	{ "\\u0022", "\\\\u0022" },
	{ "\"]]},", "\\\"]]}," },
	{ "{\"v\":2,\"batches\":[", "{\\\"v\\\":2,\\\"batches\\\":[" },
	{ "]}", "]}" },
	{ "%s%n", "%s%n" },
	{ "042", "042" },
	{ "1:01ARZ3NDEKTSV4RRFFQ69G5FAV:0:", "1:01ARZ3NDEKTSV4RRFFQ69G5FAV:0:" },
	{ "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`",
	  "!\\\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\\\]^_`" },
};
#define HOSTILE_N (sizeof(hostile) / sizeof(hostile[0]))

static struct batch *batch_of_user(size_t at)
{
	struct batch *batch = calloc(1, sizeof(*batch) + 512);

	batch->coupon = 1000 + (int64_t)at;
	batch->receives = 1;
	batch->body_len = (size_t)snprintf(batch->body, 512,
					   "{\"v\":1,\"batch\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\","
					   "\"coupon\":\"%zu\",\"generation\":1,\"seq\":1,\"at\":1,"
					   "\"receives\":[[\"%s\",1,\"\"]]}",
					   1000 + at, hostile[at].json);
	return batch;
}

static void test_users_are_as_they_were(void **state)
{
	struct batch_list pending = STAILQ_HEAD_INITIALIZER(pending);
	struct settlement *s = *state;
	struct packet *packet;
	uint64_t tag;
	int multiple;

	for (size_t i = 0; i < HOSTILE_N; i++) {
		struct batch *batch = batch_of_user(i);

		STAILQ_INSERT_TAIL(&pending, batch, next);
	}
	packet = packet_take(&pending);
	assert_int_equal(packet->batches_n, HOSTILE_N);
	unpack(s, packet_body(packet, buffer), packet->bytes, 0);
	assert_int_equal(settlement_take(s, 100, 0), HOSTILE_N);
	for (size_t i = 0; i < HOSTILE_N; i++) {
		const struct delivery *delivery = s->taken[i];

		assert_int_equal(delivery->coupon, 1000 + i);
		assert_string_equal(delivery->receives[0].user.text, hostile[i].user);
	}
	settlement_commit(s);
	assert_int_equal(settlement_ack(s, &tag, &multiple), 1);
	assert_int_equal(settlement_counts(s).dead, 0);
	packet_drop(packet);
}

/* The others are settled, and the message is acked when the copies are confirmed. */
static void test_a_batch_that_cannot_be_read_is_dead_alone(void **state)
{
	static const char body[] = PACKED_HEAD
		"{\"v\":1}" PACKED_NEXT "{\"v\":1,\"batch\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\","
		"\"coupon\":\"7\",\"generation\":1,\"seq\":1,\"at\":1,"
		"\"receives\":[[\"42\",1,\"\"]]}" PACKED_NEXT PACKED_TAIL;
	struct settlement *s = *state;
	const struct delivery *dead;

	unpack(s, body, sizeof(body) - 1, 0);
	assert_int_equal(settlement_take(s, 10, 0), 1);
	settlement_commit(s);
	ack_expect_none(s);
	for (size_t position = 0; position <= 2; position += 2) {
		dead = dead_take(s);
		assert_int_equal(dead->position, position);
		ack_expect_none(s);
		settlement_forwarded(s, s->epoch, dead->tag, position, 1);
	}
	ack_expect(s, dead->tag, 0);
}

static void test_frames_that_are_none(void **state)
{
	static const char *const bodies[] = {
		"",
		"{\"v\":2}",
		"{\"v\":2,\"batches\":[]}",
		PACKED_HEAD,
		PACKED_HEAD "]}",
		"{\"v\":2,\"batches\":[\n]}",
		"{\"v\":3,\"batches\":[\n{}\n]}",
	};
	struct settlement *s = *state;
	struct packed packed;
	const char *error;

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		assert_int_equal(packed_open(&packed, bodies[i], strlen(bodies[i]), &error), 0);
		unpack(s, bodies[i], strlen(bodies[i]), 0);
		assert_int_equal(settlement_counts(s).dead, i + 1);
	}
}

static void test_too_many_batches(void **state)
{
	struct settlement *s = *state;
	size_t len = 0;

	len += (size_t)sprintf(buffer, "%s", PACKED_HEAD);
	for (int i = 0; i <= PACKED_BATCHES_MAX; i++)
		len += (size_t)sprintf(buffer + len, "%s{}", i ? PACKED_NEXT : "");
	len += (size_t)sprintf(buffer + len, "%s", PACKED_TAIL);
	unpack(s, buffer, len, 0);
	assert_int_equal(settlement_counts(s).dead, 1);
	assert_string_equal(dead_take(s)->reason, "unreadable: more than 256 batches");
}

/* Redelivered again and again: first the message goes alone, then each of its batches. */
static void test_which_batches_go_alone(void **state)
{
	static const struct {
		unsigned how;
		size_t first;
	} cases[] = { { SETTLEMENT_ALONE, 3 }, { SETTLEMENT_ALONE | SETTLEMENT_APART, 1 } };
	struct settlement *s = *state;

	for (size_t i = 0; i < 2; i++) {
		struct batch_list pending = STAILQ_HEAD_INITIALIZER(pending);
		struct packet *packet;

		pending_add(&pending, 3, 1, 0);
		packet = packet_take(&pending);
		for (int message = 0; message < 2; message++)
			unpack(s, packet_body(packet, buffer), packet->bytes, cases[i].how);
		for (size_t left = 6; left > 0; left -= cases[i].first) {
			assert_int_equal(settlement_take(s, 100, 0), cases[i].first);
			settlement_commit(s);
		}
		packet_drop(packet);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_batch_alone_is_as_in_the_outbox),
		TEST(test_as_many_as_fit),
		TEST(test_not_more_bytes_than_allowed),
		TEST(test_the_worker_finds_each_batch),
		TEST(test_users_are_as_they_were),
		TEST(test_a_batch_that_cannot_be_read_is_dead_alone),
		TEST(test_frames_that_are_none),
		TEST(test_too_many_batches),
		TEST(test_which_batches_go_alone),
	};

	return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
