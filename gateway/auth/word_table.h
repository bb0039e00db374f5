/*
 * A word for each key, in memory that all processes of a gateway share: what limits remember of
 * users and addresses. Bounded: there are sets of a few entries, and a key that comes anew gets an
 * entry of its set from another one. Keys are keyed hashes (common/hash.h), so nobody can choose
 * ids that share a set.
 *
 *	set:  changing │ key word │ key word │ … WORD_WAYS of them       two cache lines
 *
 * Words change by compare-and-swap, without locks. Only who gives an entry to another key holds
 * `changing` of its set meanwhile, for some instructions, so that no key has two entries. A process
 * may die between any two of them: its successor frees the set, and the worst that is left is a key
 * that was forgotten.
 *
 * Who changes a word makes sure that the entry is still the key's, by word_is_of() between loading
 * the word and the compare-and-swap: an entry gets a new word before it gets a new key.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define WORD_WAYS 7

typedef atomic_uint_least64_t shared_word;

struct word_entry {
	shared_word key; /* 0: none */
	shared_word word;
};

#define WORD_KEPT UINT64_MAX

struct word_rules {
	/* The entry of a set with the lowest rank is forgotten first; WORD_KEPT: never. */
	uint64_t (*rank)(uint64_t word);
	/*
	 * The word with which another key begins in the place of this one. If it is another than
	 * the key before ever had, no change for that key can get into it.
	 */
	uint64_t (*fresh)(uint64_t word, int64_t now);
};

/* What a process knows of it; forked with the process. */
struct word_table {
	struct word_set *sets;
	size_t sets_n;
	shared_word *holds; /* of each process: the number of the set that it changes, from 1 */
	size_t processes_n, process;
	const struct word_rules *rules;
};

/* Before the fork, for about so many entries. The rules are lent. */
void word_table_init(struct word_table *table, size_t entries, size_t processes,
		     const struct word_rules *rules);
/* From now on this process is `process`; what a predecessor held is free. */
void word_table_enter(struct word_table *table, size_t process);

/* The entry of the key, or NULL. */
struct word_entry *word_find(const struct word_table *table, uint64_t key);
/*
 * The entry of the key, made if there is none; `now` is for the rules. NULL: all entries of its set
 * are kept, or a process that stands still holds the set.
 */
struct word_entry *word_make(const struct word_table *table, uint64_t key, int64_t now);
/* Whether the entry, which was found for the key, is its still. */
int word_is_of(const struct word_entry *entry, uint64_t key);

/* Entries have numbers from 1 on, the same in all processes. 0 is NULL. */
uint32_t word_number(const struct word_table *table, const struct word_entry *entry);
struct word_entry *word_numbered(const struct word_table *table, uint32_t number);
