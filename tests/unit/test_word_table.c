/*
 * The table of words that processes share: who is forgotten in a full set, and what is left by a
 * process that dies while it gives an entry to another key.
 */
#include "gateway/auth/word_table.h"
#include "tests/unit/dying.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SET_BYTES 128

static uint64_t word_rank(uint64_t word)
{
	return word;
}

static uint64_t word_fresh(uint64_t word, int64_t now)
{
	(void)now;
	return word + 1;
}

static const struct word_rules word_rules = { .rank = word_rank, .fresh = word_fresh };
static struct word_table table;

/* A full set; the word of the key 3 is the lowest. */
static void full_before(void)
{
	word_table_init(&table, WORD_WAYS, 2, &word_rules);
	for (uint64_t key = 1; key <= WORD_WAYS; key++)
		word_make(&table, key, 0)->word = key == 3 ? 50 : 100 + key;
}

static void full_make(void)
{
	word_table_enter(&table, 1);
	word_make(&table, 99, 0);
}

static int keys_n(void)
{
	int n = 0;

	for (uint64_t key = 1; key <= WORD_WAYS; key++) {
		const struct word_entry *entry = word_find(&table, key);

		if (!entry)
			continue;
		assert_int_equal(entry->word, key == 3 ? 50 : 100 + key);
		n++;
	}
	return n;
}

/* One key is forgotten, if any, and the set can be changed again. */
static void full_after(void)
{
	struct word_entry *made;

	assert_in_range(keys_n(), WORD_WAYS - 1, WORD_WAYS);
	word_table_enter(&table, 1); /* its successor */
	word_table_enter(&table, 0);
	made = word_make(&table, 99, 0);
	assert_non_null(made);
	assert_true(made == word_find(&table, 99));
	assert_in_range(made->word, 51, 53);
	assert_int_equal(keys_n(), WORD_WAYS - 1);
	assert_null(word_find(&table, 3));
}

/* A process that stands still and one that is dead are the same to those that share the memory. */
static void test_a_set_whose_process_dies_at_each_instruction(void **state)
{
	unsigned char memory[SET_BYTES + 2 * sizeof(shared_word)];
	int n = 0;
	pid_t pid;

	(void)state;
	full_before();
	pid = dying_start(full_make);
	if (pid < 0)
		skip();
	for (; !dying_step(pid); n++) {
		memcpy(memory, table.sets, sizeof(memory));
		full_after();
		memcpy(table.sets, memory, sizeof(memory));
	}
	assert_true(n > 100);
	full_after();
}

static uint64_t rank_dies(uint64_t word)
{
	(void)word;
	raise(SIGKILL);
	return 0;
}

/* What a process holds that stands still is its own set, and what there is of it can be found. */
static void test_a_set_that_is_held(void **state)
{
	static const struct word_rules rules_that_end = { .rank = rank_dies, .fresh = word_fresh };
	pid_t pid;

	(void)state;
	full_before();
	pid = fork();
	if (pid == 0) {
		table.rules = &rules_that_end;
		full_make();
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	assert_null(word_make(&table, 98, 0));
	assert_non_null(word_make(&table, 4, 0));
	word_table_enter(&table, 1);
	assert_non_null(word_make(&table, 98, 0));
}

static void test_keys(void **state)
{
	(void)state;
	full_before();
	for (uint64_t key = 1; key <= WORD_WAYS; key++) {
		struct word_entry *entry = word_make(&table, key, 0);

		assert_true(entry == word_find(&table, key));
		assert_true(word_is_of(entry, key) && !word_is_of(entry, key + 1));
		assert_true(word_numbered(&table, word_number(&table, entry)) == entry);
		assert_in_range(word_number(&table, entry), 1, WORD_WAYS);
	}
	assert_null(word_numbered(&table, word_number(&table, NULL)));
	full_make();
	full_after();
}

static uint64_t rank_kept(uint64_t word)
{
	return word > 60 ? WORD_KEPT : word;
}

static void test_entries_that_are_kept(void **state)
{
	static const struct word_rules rules = { .rank = rank_kept, .fresh = word_fresh };

	(void)state;
	full_before();
	table.rules = &rules;
	word_find(&table, 3)->word = 61;
	assert_null(word_make(&table, 99, 0));
	word_find(&table, 5)->word = 60;
	assert_non_null(word_make(&table, 99, 0));
	assert_null(word_find(&table, 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_entries_that_are_kept),
		cmocka_unit_test(test_a_set_whose_process_dies_at_each_instruction),
		cmocka_unit_test(test_a_set_that_is_held),
	};

	return cmocka_run_group_tests_name("word_table", tests, NULL, NULL);
}
