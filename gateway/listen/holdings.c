#include "gateway/listen/holdings.h"

#include "gateway/metrics.h"

void holdings_init(struct holdings *holdings, size_t bytes_max)
{
	*holdings = (struct holdings){ .bytes_max = bytes_max };
	LIST_INIT(&holdings->all);
}

void holdings_set(struct holdings *holdings, struct holding *holding, size_t bytes)
{
	if (holding->bytes == 0 && bytes > 0) {
		LIST_INSERT_HEAD(&holdings->all, holding, next);
		holdings->n++;
	} else if (holding->bytes > 0 && bytes == 0) {
		LIST_REMOVE(holding, next);
		holdings->n--;
	}
	holdings->bytes += bytes - holding->bytes;
	holding->bytes = bytes;
	metrics_set(METRIC_CONNECTIONS_HELD, (int64_t)holdings->bytes);
}

int holdings_is_over_share(const struct holdings *holdings, size_t bytes)
{
	size_t half = holdings->bytes_max / 2;

	return holdings->bytes > half && bytes > half / holdings->n;
}

void holdings_relieve(struct holdings *holdings)
{
	while (holdings->bytes > holdings->bytes_max) {
		struct holding *holding, *most = LIST_FIRST(&holdings->all);

		LIST_FOREACH (holding, &holdings->all, next)
			if (holding->bytes > most->bytes)
				most = holding;
		holdings_set(holdings, most, 0);
		most->cut(most->owner);
	}
}
