/* What is warned of about the members of queues, by what the management API has told. */
#include "common/rabbit/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Lists are the inside of JSON arrays. */
static cJSON *cluster(const char *nodes, int wanted, const char *members, const char *online)
{
	char *text;
	cJSON *json;

	assert_true(asprintf(&text,
			     "{\"nodes\":[%s],\"wanted\":%d,\"queues\":[{\"name\":\"q\","
			     "\"members\":[%s],\"online\":[%s],\"leader\":null,\"messages\":3},"
			     "{\"name\":\"whole\",\"members\":[%s],\"online\":[%s],"
			     "\"leader\":\"a\",\"messages\":0}]}",
			     nodes, wanted, members, online, nodes, nodes) > 0);
	json = cJSON_Parse(text);
	assert_non_null(json);
	free(text);
	return json;
}

/* NULL: there is no such sentence. */
static void warnings_expect(cJSON *json, const char *first, const char *second)
{
	const char *const wanted[] = { first, second };
	cJSON *array = cJSON_CreateArray();
	int n = 0;

	rabbit_cluster_warnings(json, array);
	for (int i = 0; i < 2; i++)
		if (wanted[i])
			assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(array, n++)),
					    wanted[i]);
	assert_int_equal(cJSON_GetArraySize(array), n);
	cJSON_Delete(array);
	cJSON_Delete(json);
}

#define OF_THREE "\"a\",\"b\",\"c\""
#define OFFLINE                                                                                 \
	"rabbitmq: of 3 members of q 2 are online: start RabbitMQ on c, or, if it is lost for " \
	"good, run rabbitmqctl forget_cluster_node for it"

static void test_warnings(void **state)
{
	(void)state;
	warnings_expect(cluster(OF_THREE, 3, OF_THREE, OF_THREE), NULL, NULL);
	warnings_expect(cluster("\"a\"", 1, "\"a\"", "\"a\""), NULL, NULL);
	warnings_expect(cluster(OF_THREE ",\"d\",\"e\"", 3, OF_THREE, OF_THREE), NULL, NULL);
	warnings_expect(cluster(OF_THREE, 3, "\"b\"", "\"b\""),
			"rabbitmq: q has 1 of 3 wanted members: run rabbitmq-queues grow a all, "
			"run rabbitmq-queues grow c all",
			NULL);
	warnings_expect(cluster(OF_THREE ",\"d\"", 3, "\"a\",\"b\"", "\"a\",\"b\""),
			"rabbitmq: q has 2 of 3 wanted members: run rabbitmq-queues grow c all",
			NULL);
	warnings_expect(cluster(OF_THREE, 3, OF_THREE, "\"a\",\"b\""), OFFLINE, NULL);
	warnings_expect(cluster(OF_THREE ",\"d\",\"e\"", 3, OF_THREE, "\"a\",\"b\""), OFFLINE,
			NULL);
	warnings_expect(cluster(OF_THREE, 3, "\"a\",\"b\"", "\"a\""),
			"rabbitmq: q has 2 of 3 wanted members: run rabbitmq-queues grow c all",
			"rabbitmq: of 2 members of q 1 are online: start RabbitMQ on b, or, if it "
			"is lost for good, run rabbitmqctl forget_cluster_node for it");
}

static void test_least(void **state)
{
	cJSON *json = cluster(OF_THREE, 3, "\"a\",\"b\"", "\"a\"");

	(void)state;
	assert_int_equal(rabbit_cluster_least(json, "members"), 2);
	assert_int_equal(rabbit_cluster_least(json, "online"), 1);
	assert_int_equal(rabbit_cluster_least(NULL, "online"), 0);
	assert_non_null(rabbit_cluster_queue(json, "whole"));
	assert_null(rabbit_cluster_queue(json, "other"));
	assert_null(rabbit_cluster_queue(NULL, "q"));
	cJSON_Delete(json);
}

/* Nobody listens: the sentence names each host, and has no password. */
static void test_unreachable(void **state)
{
	char error[RABBIT_ERROR_SIZE];
	atomic_int stop = 1;

	(void)state;
	assert_null(rabbit_cluster_read("http://u:secret@127.0.0.1:1,[::1]:1", "amqp://h/a%20b",
					NULL, error));
	assert_non_null(strstr(error, "127.0.0.1:1: "));
	assert_non_null(strstr(error, "[::1]:1: "));
	assert_null(strstr(error, "secret"));
	assert_null(rabbit_cluster_read("http://u:secret@127.0.0.1:1", "amqp://h", &stop, error));
	assert_string_equal(error, "");
	assert_null(rabbit_cluster_read("http://h", "amqp://u:secret@h:x", NULL, error));
	assert_non_null(strstr(error, "AMQP_URL"));
	assert_null(rabbit_cluster_read("http://u:secret@h:x", "amqp://h", NULL, error));
	assert_non_null(strstr(error, "COUPON_RABBITMQ_API"));
	assert_null(strstr(error, "secret"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_warnings),
		cmocka_unit_test(test_least),
		cmocka_unit_test(test_unreachable),
	};

	return cmocka_run_group_tests_name("rabbit_cluster", tests, NULL, NULL);
}
