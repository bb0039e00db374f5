#include "common/serve/metrics.h"

#include "common/check.h"

#include <stdatomic.h>
#include <sys/mman.h>

struct metrics_page {
	atomic_int_least64_t values[METRICS_MAX];
};

static struct metrics_page alone; /* without metrics_share() */
static struct metrics_page *pages = &alone;
static struct metrics_page *mine = &alone;
static size_t pages_n = 1;

void metrics_share(size_t processes)
{
	pages = mmap(NULL, processes * sizeof(*pages), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(pages != MAP_FAILED);
	pages_n = processes;
	mine = &pages[0];
}

void metrics_page(size_t process)
{
	check(process < pages_n);
	mine = &pages[process];
}

void metrics_add(unsigned place, int64_t amount)
{
	atomic_fetch_add_explicit(&mine->values[place], amount, memory_order_relaxed);
}

void metrics_set(unsigned place, int64_t value)
{
	atomic_store_explicit(&mine->values[place], value, memory_order_relaxed);
}

void metrics_set_all(unsigned place, int64_t value)
{
	atomic_store_explicit(&pages[0].values[place], value, memory_order_relaxed);
}

int64_t metrics_get(unsigned place)
{
	int64_t sum = 0;

	for (size_t i = 0; i < pages_n; i++)
		sum += atomic_load_explicit(&pages[i].values[place], memory_order_relaxed);
	return sum;
}

void exposition_head(struct evbuffer *out, const char *name, const char *type, const char *help)
{
	check(evbuffer_add_printf(out, "# HELP couponmq_%s %s\n# TYPE couponmq_%s %s\n", name, help,
				  name, type) > 0);
}

void exposition_value(struct evbuffer *out, const char *name, const char *label, const char *text,
		      int64_t value)
{
	check(evbuffer_add_printf(out, "couponmq_%s{%s=\"%s\"} %" PRId64 "\n", name, label, text,
				  value) > 0);
}

void exposition_labelled(struct evbuffer *out, const char *name, const char *label,
			 const char *text, unsigned place)
{
	exposition_value(out, name, label, text, metrics_get(place));
}

void exposition_table(struct evbuffer *out, const struct metric_row *rows, unsigned n,
		      unsigned first)
{
	for (unsigned i = 0; i < n; i++) {
		exposition_head(out, rows[i].name, rows[i].type, rows[i].help);
		check(evbuffer_add_printf(out, "couponmq_%s %" PRId64 "\n", rows[i].name,
					  metrics_get(first + i)) > 0);
	}
}
