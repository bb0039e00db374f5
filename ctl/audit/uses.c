/*
 * What orders did with receives, and the budgets: in PostgreSQL, which alone decides that. Each
 * statement sees one moment, so nothing is in flight.
 */
#include "ctl/audit/audit.h"

#include "ctl/money.h"
#include "ctl/store.h"
#include "embed.h"

#include <string.h>

static const struct {
	const char *what;
	enum finding finding;
	const char *text;
} kinds[] = {
	{ "use_taken", FINDING_USE_TAKEN,
	  "changed by another order than the one that had used it" },
	{ "hold_taken", FINDING_HOLD_TAKEN, "changed by another order before the end of the hold" },
	{ "use_state", FINDING_USE_STATE, "its state is not that which its last change has left" },
	{ "use_unknown", FINDING_USE_UNKNOWN, "an order has it, and it was never issued" },
};

void uses_judge(const struct pass *pass)
{
	PGresult *rows = db_ask(pass->audit->db, sql_query_audit_uses,
				postgres_number(pass->coupon));

	for (int row = 0; row < PQntuples(rows); row++) {
		const char *what = column_text(rows, row, "what");
		struct slot slot;
		size_t i = 0;

		while (strcmp(kinds[i].what, what) != 0)
			i++;
		slot_read(rows, row, 1, &slot);
		finding_add(pass, kinds[i].finding, &slot, "%s: order \"%s\", before it \"%s\"",
			    kinds[i].text, column_text(rows, row, "order_id"),
			    column_text(rows, row, "old_order"));
	}
	PQclear(rows);
}

void budgets_judge(struct audit *audit, int64_t coupon)
{
	static const char *const amounts[] = { "amount", "held", "spent", "held_now", "spent_now" };
	PGresult *rows = db_ask(audit->db, sql_query_audit_budgets, db_id(coupon));

	for (int row = 0; row < PQntuples(rows); row++) {
		const char *currency = column_text(rows, row, "currency");
		char text[5][MONEY_SIZE];

		for (int i = 0; i < 5; i++)
			money_text(column_number(rows, row, amounts[i]), currency, text[i]);
		finding_add(&(struct pass){ .audit = audit,
					    .coupon = column_number(rows, row, "coupon_id") },
			    FINDING_BUDGET_SUM, NULL,
			    "its budget %s of %s %s has %s held and %s spent, and its receives %s "
			    "and %s",
			    column_text(rows, row, "name"), text[0], currency, text[1], text[2],
			    text[3], text[4]);
	}
	PQclear(rows);
}
