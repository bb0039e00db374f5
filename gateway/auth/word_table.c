#include "gateway/auth/word_table.h"

#include "common/check.h"

#include <sched.h>
#include <stdalign.h>
#include <sys/mman.h>

struct word_set {
	alignas(64) shared_word changing; /* 0, or by which process, from 1 */
	shared_word reserved;
	struct word_entry entries[WORD_WAYS];
};

_Static_assert(sizeof(struct word_set) == 128, "two cache lines");

#define TRIES_MAX 200 /* for a set that another process changes: longer than that takes */
#define TRIES_EAGER 20

void word_table_init(struct word_table *table, size_t entries, size_t processes,
		     const struct word_rules *rules)
{
	size_t sets_n = (entries + WORD_WAYS - 1) / WORD_WAYS;
	void *memory = mmap(NULL,
			    sets_n * sizeof(struct word_set) + processes * sizeof(shared_word),
			    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED && sets_n > 0 && processes > 0);
	*table = (struct word_table){
		.sets = memory, .sets_n = sets_n, .processes_n = processes, .rules = rules
	};
	table->holds = (shared_word *)(void *)(table->sets + sets_n);
}

static void set_free(const struct word_table *table, struct word_set *set)
{
	uint64_t mine = table->process + 1;

	atomic_compare_exchange_strong(&set->changing, &mine, 0);
	atomic_store(&table->holds[table->process], 0);
}

void word_table_enter(struct word_table *table, size_t process)
{
	uint64_t held;

	check(process < table->processes_n);
	table->process = process;
	held = atomic_load(&table->holds[process]);
	check(held <= table->sets_n);
	if (held > 0)
		set_free(table, &table->sets[held - 1]);
}

/* What it holds is known before it holds it. 0, or -1: another process does. */
static int set_hold(const struct word_table *table, struct word_set *set)
{
	shared_word *holds = &table->holds[table->process];

	atomic_store(holds, (uint64_t)(set - table->sets) + 1);
	for (int tries = 0; tries < TRIES_MAX; tries++) {
		uint64_t nobody = 0;

		if (atomic_compare_exchange_strong(&set->changing, &nobody, table->process + 1))
			return 0;
		if (tries > TRIES_EAGER) /* it may wait for this processor */
			sched_yield();
	}
	atomic_store(holds, 0);
	return -1;
}

static struct word_entry *set_find(struct word_set *set, uint64_t key)
{
	for (size_t i = 0; i < WORD_WAYS; i++)
		if (atomic_load(&set->entries[i].key) == key)
			return &set->entries[i];
	return NULL;
}

static uint64_t key_stored(uint64_t key)
{
	return key ? key : 1;
}

int word_is_of(const struct word_entry *entry, uint64_t key)
{
	return atomic_load(&entry->key) == key_stored(key);
}

struct word_entry *word_find(const struct word_table *table, uint64_t key)
{
	return set_find(&table->sets[key % table->sets_n], key_stored(key));
}

struct word_entry *word_make(const struct word_table *table, uint64_t key, int64_t now)
{
	const struct word_rules *rules = table->rules;
	struct word_set *set = &table->sets[key % table->sets_n];
	struct word_entry *entry;

	key = key_stored(key);
	entry = set_find(set, key);
	if (entry || set_hold(table, set))
		return entry;
	entry = set_find(set, key); /* another process may have made it */
	for (size_t tries = 0; !entry && tries < WORD_WAYS; tries++) {
		struct word_entry *victim = NULL;
		uint64_t least = WORD_KEPT, before, word;

		/* The first that nobody has, else the one that is forgotten first. */
		for (size_t i = 0; i < WORD_WAYS; i++) {
			uint64_t rank = rules->rank(atomic_load(&set->entries[i].word));

			if (atomic_load(&set->entries[i].key) == 0) {
				victim = &set->entries[i];
				break;
			}
			if (rank < least) {
				least = rank;
				victim = &set->entries[i];
			}
		}
		if (!victim)
			break;

		/* It gets the key, unless it was used meanwhile. */
		before = atomic_load(&victim->key);
		word = atomic_load(&victim->word);
		if (before != 0 && rules->rank(word) == WORD_KEPT)
			continue;
		atomic_store(&victim->key, 0);
		if (atomic_compare_exchange_strong(&victim->word, &word, rules->fresh(word, now))) {
			atomic_store(&victim->key, key);
			entry = victim;
		} else {
			atomic_store(&victim->key, before);
		}
	}
	set_free(table, set);
	return entry;
}

#define NUMBERS_OF_SET (sizeof(struct word_set) / sizeof(struct word_entry))

uint32_t word_number(const struct word_table *table, const struct word_entry *entry)
{
	return entry ? (uint32_t)(entry - (const struct word_entry *)(const void *)table->sets) : 0;
}

struct word_entry *word_numbered(const struct word_table *table, uint32_t number)
{
	check(number < table->sets_n * NUMBERS_OF_SET);
	return number ? (struct word_entry *)(void *)table->sets + number : NULL;
}
