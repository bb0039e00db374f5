#include "gateway/admit/batch.h"

#include <stdlib.h>

void batch_list_free(struct batch_list *list)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(batch);
	}
}
