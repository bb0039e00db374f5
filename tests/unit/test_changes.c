/* Whether PostgreSQL is behind the copy of its numbers, and whether the copy is its own. */
#include "common/changes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void test_ahead(void **state)
{
	struct changes changes = { .num = { 5, 1 } }, copy = { .num = { 4, 0 } };

	(void)state;
	assert_int_equal(changes_behind(&changes, &copy), 0);
	assert_int_equal(changes_behind(&changes, &changes), 0);
}

/* What one stripe is ahead does not make up for another. */
static void test_behind(void **state)
{
	struct changes changes = { .num = { 100, 3 } }, copy = { .num = { 4, 5 } };

	(void)state;
	assert_int_equal(changes_behind(&changes, &copy), 2);
	changes.num[CHANGES_STRIPES - 1] = 0;
	copy.num[CHANGES_STRIPES - 1] = 1;
	assert_int_equal(changes_behind(&changes, &copy), 3);
}

/* Rows of a version that counts all alike are not of settle(). */
static void test_others(void **state)
{
	struct changes none = { .num = { 0 } },
		       copy = { .num = { [CHANGES_SETTLED - 1] = 2, [CHANGES_SETTLED] = 7 } };

	(void)state;
	assert_int_equal(changes_behind(&none, &copy), 9);
	assert_int_equal(changes_behind_others(&none, &copy), 2);
	none.num[CHANGES_SETTLED - 1] = 3;
	assert_int_equal(changes_behind(&none, &copy), 7);
	assert_int_equal(changes_behind_others(&none, &copy), 0);
}

/* What Redis has is not known while it refuses; only a key of another type is no copy. */
static void test_refused_replies(void **state)
{
	char loading[] = "LOADING Redis is loading the dataset in memory",
	     forbidden[] = "NOPERM No permissions to access a key",
	     other[] = "WRONGTYPE Operation against a key holding the wrong kind of value";
	redisReply reply = { .type = REDIS_REPLY_ERROR };
	struct changes copy = { .num = { 5 } };

	(void)state;
	reply.str = loading;
	assert_int_equal(changes_copy_take(&copy, &reply), -1);
	reply.str = forbidden;
	assert_int_equal(changes_copy_take(&copy, &reply), -1);
	reply.str = other;
	assert_int_equal(changes_copy_take(&copy, &reply), 0);
	assert_int_equal(copy.num[0], 0);
}

static void test_relation(void **state)
{
	struct changes own = { .installation = "a" }, other = { .installation = "b" },
		       none = { .num = { 7 } };

	(void)state;
	assert_int_equal(changes_relate(RELATION_UNKNOWN, &own, &own), RELATION_OWN);
	assert_int_equal(changes_relate(RELATION_FOREIGN, &own, &own), RELATION_OWN);
	assert_int_equal(changes_relate(RELATION_OWN, &own, &other), RELATION_FOREIGN);
	assert_int_equal(changes_relate(RELATION_OWN, &own, &none), RELATION_UNADOPTED);
	assert_int_equal(changes_relate(RELATION_UNKNOWN, &none, &own), RELATION_UNKNOWN);
}

/* A stranger does not adopt a Redis that has lost its data. */
static void test_foreign_stays_foreign(void **state)
{
	struct changes own = { .installation = "a" }, none = { .num = { 0 } };

	(void)state;
	assert_int_equal(changes_relate(RELATION_FOREIGN, &own, &none), RELATION_FOREIGN);
}

static void test_the_id_is_read_and_kept(void **state)
{
	char texts[][40] = { "7", "9", "installation", "00000000-0000-4000-8000-000000000001" };
	redisReply fields[4], *element[4],
		reply = { .type = REDIS_REPLY_ARRAY, .elements = 4, .element = element };
	struct changes copy, none = { .num = { 0 } };

	(void)state;
	for (int i = 0; i < 4; i++) {
		fields[i] = (redisReply){ .type = REDIS_REPLY_STRING, .str = texts[i] };
		element[i] = &fields[i];
	}
	assert_int_equal(changes_copy_take(&copy, &reply), 0);
	assert_int_equal(copy.num[7], 9);
	assert_string_equal(copy.installation, texts[3]);
	changes_raise(&copy, &none);
	assert_string_equal(copy.installation, texts[3]);
	changes_raise(&none, &copy);
	assert_string_equal(none.installation, texts[3]);
}

/* A cluster that was made anew has the timelines of the one before. */
static void test_the_server(void **state)
{
	struct changes own = { .num = { 5 }, .server = { .system = "70", .timeline = 3 } },
		       other = { .num = { 4, 1 }, .server = { .system = "71", .timeline = 3 } };
	char text[SERVER_TEXT_SIZE];

	(void)state;
	assert_true(server_equals(&own.server, &own.server));
	assert_false(server_equals(&own.server, &other.server));
	other.server = (struct postgres_server){ .system = "70", .timeline = 4 };
	assert_false(server_equals(&own.server, &other.server));
	assert_string_equal(server_text(&own.server, text), "70:3");
	changes_raise(&own, &other);
	assert_string_equal(server_text(&own.server, text), "70:4");
	assert_true(own.num[0] == 5 && own.num[1] == 1);
}

#define OWN .installation = "a"
#define SERVER(cluster, line) .server = { .system = cluster, .timeline = line }
/* Redis has followed 60:9, then 70:2, then 70:4. */
#define FOLLOWED SERVER("70", 4), .highest = { { "60", 9 }, { "70", 4 } }, .highest_n = 2

/* Every answer to whether a PostgreSQL counts, by id, server and numbers. */
static const struct stand_case {
	const char *name;
	enum relation before;
	struct changes own, copy;
	struct standing stands;
} stand_cases[] = {
	{ "PostgreSQL has no id",
	  RELATION_OWN,
	  { SERVER("70", 4) },
	  { OWN, FOLLOWED },
	  { RELATION_UNKNOWN, FOLLOW_NONE, 0 } },
	{ "PostgreSQL has no row",
	  RELATION_OWN,
	  { .num = { 0 } },
	  { OWN, FOLLOWED },
	  { RELATION_STANDBY, FOLLOW_NONE, 0 } },
	{ "another installation",
	  RELATION_OWN,
	  { OWN, SERVER("70", 4) },
	  { .installation = "b", FOLLOWED },
	  { RELATION_FOREIGN, FOLLOW_NONE, 0 } },
	{ "a standby of another installation",
	  RELATION_OWN,
	  { OWN, SERVER("70", 0) },
	  { .installation = "b", FOLLOWED },
	  { RELATION_FOREIGN, FOLLOW_NONE, 0 } },
	{ "no id after another one",
	  RELATION_FOREIGN,
	  { OWN, SERVER("70", 4) },
	  { .num = { 0 } },
	  { RELATION_FOREIGN, FOLLOW_NONE, 0 } },
	{ "no id",
	  RELATION_OWN,
	  { OWN, SERVER("70", 4) },
	  { .num = { 0 } },
	  { RELATION_UNADOPTED, FOLLOW_NONE, 0 } },
	{ "no id, with a standby",
	  RELATION_OWN,
	  { OWN, SERVER("70", 0) },
	  { .num = { 0 } },
	  { RELATION_STANDBY, FOLLOW_NONE, 0 } },
	{ "the id again after another one",
	  RELATION_FOREIGN,
	  { OWN, SERVER("70", 4) },
	  { OWN, FOLLOWED },
	  { RELATION_OWN, FOLLOW_NONE, 0 } },
	{ "a standby",
	  RELATION_OWN,
	  { OWN, SERVER("70", 0), .num = { 5 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_STANDBY, FOLLOW_NONE, 0 } },
	{ "a standby that is behind",
	  RELATION_OWN,
	  { OWN, SERVER("70", 0), .num = { 4 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_STANDBY, FOLLOW_NONE, 1 } },
	{ "the followed one",
	  RELATION_BEHIND,
	  { OWN, SERVER("70", 4), .num = { 5 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_OWN, FOLLOW_NONE, 0 } },
	{ "the followed one is behind",
	  RELATION_OWN,
	  { OWN, SERVER("70", 4), .num = { 3 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_BEHIND, FOLLOW_NONE, 2 } },
	{ "the followed one has taken over",
	  RELATION_OLD,
	  { OWN, SERVER("70", 2) },
	  { OWN, SERVER("70", 2), .highest = { { "70", 4 } }, .highest_n = 1 },
	  { RELATION_OWN, FOLLOW_NONE, 0 } },
	{ "the other one is old then",
	  RELATION_OWN,
	  { OWN, SERVER("70", 4) },
	  { OWN, SERVER("70", 2), .highest = { { "70", 4 } }, .highest_n = 1 },
	  { RELATION_OLD, FOLLOW_NONE, 0 } },
	{ "promoted",
	  RELATION_OWN,
	  { OWN, SERVER("70", 5), .num = { 5 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_OWN, FOLLOW_OTHER, 0 } },
	{ "promoted without the tail",
	  RELATION_OWN,
	  { OWN, SERVER("70", 5), .num = { 4 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_BEHIND, FOLLOW_NEWER, 1 } },
	{ "an old primary",
	  RELATION_OWN,
	  { OWN, SERVER("70", 3), .num = { 6 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_OLD, FOLLOW_NONE, 0 } },
	{ "an old primary that is behind",
	  RELATION_OWN,
	  { OWN, SERVER("70", 3), .num = { 4 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_OLD, FOLLOW_NONE, 1 } },
	{ "of a cluster that was followed",
	  RELATION_OWN,
	  { OWN, SERVER("60", 9) },
	  { OWN, FOLLOWED },
	  { RELATION_OLD, FOLLOW_NONE, 0 } },
	{ "promoted there",
	  RELATION_OWN,
	  { OWN, SERVER("60", 10) },
	  { OWN, FOLLOWED },
	  { RELATION_OWN, FOLLOW_OTHER, 0 } },
	{ "of a new cluster",
	  RELATION_OWN,
	  { OWN, SERVER("80", 1), .num = { 5 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_OWN, FOLLOW_OTHER, 0 } },
	{ "of a new cluster, behind",
	  RELATION_OWN,
	  { OWN, SERVER("80", 1), .num = { 4 } },
	  { OWN, FOLLOWED, .num = { 5 } },
	  { RELATION_BEHIND, FOLLOW_NONE, 1 } },
	{ "Redis follows none",
	  RELATION_UNADOPTED,
	  { OWN, SERVER("70", 4) },
	  { OWN },
	  { RELATION_OWN, FOLLOW_OTHER, 0 } },
	{ "Redis follows none, behind",
	  RELATION_UNADOPTED,
	  { OWN, SERVER("70", 4) },
	  { OWN, .num = { 1 } },
	  { RELATION_BEHIND, FOLLOW_NEWER, 1 } },
};

static void test_every_standing(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(stand_cases) / sizeof(*stand_cases); i++) {
		const struct stand_case *one = &stand_cases[i];
		struct standing stands = changes_stand(one->before, &one->own, &one->copy);

		if (stands.relation != one->stands.relation ||
		    stands.follow != one->stands.follow || stands.behind != one->stands.behind)
			fail_msg("%s: relation %d, follow %d, behind %d", one->name,
				 (int)stands.relation, (int)stands.follow, (int)stands.behind);
	}
}

/* More clusters than there is room for are left to Redis. */
static void test_the_clusters_that_were_followed(void **state)
{
	static char names[CLUSTERS_MAX + 2][32];
	static redisReply fields[2 * (CLUSTERS_MAX + 2)], *element[2 * (CLUSTERS_MAX + 2)];
	char timeline[] = "7", wrong[] = "x";
	redisReply reply = { .type = REDIS_REPLY_ARRAY, .elements = 0, .element = element };
	struct changes copy;

	(void)state;
	for (int i = 0; i < CLUSTERS_MAX + 2; i++) {
		snprintf(names[i], sizeof(names[i]), "followed:%d", 70 + i);
		fields[2 * i] = (redisReply){ .type = REDIS_REPLY_STRING, .str = names[i] };
		fields[2 * i + 1] = (redisReply){ .type = REDIS_REPLY_STRING,
						  .str = i == 0 ? wrong : timeline };
		element[reply.elements++] = &fields[2 * i];
		element[reply.elements++] = &fields[2 * i + 1];
	}
	assert_int_equal(changes_copy_take(&copy, &reply), 0);
	assert_int_equal(copy.highest_n, CLUSTERS_MAX);
	assert_string_equal(copy.highest[0].system, "71");
	assert_int_equal(copy.highest[0].timeline, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_behind),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_refused_replies),
		cmocka_unit_test(test_relation),
		cmocka_unit_test(test_foreign_stays_foreign),
		cmocka_unit_test(test_the_id_is_read_and_kept),
		cmocka_unit_test(test_the_server),
		cmocka_unit_test(test_every_standing),
		cmocka_unit_test(test_the_clusters_that_were_followed),
	};

	return cmocka_run_group_tests_name("changes", tests, NULL, NULL);
}
