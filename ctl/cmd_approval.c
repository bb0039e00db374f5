/*
 * couponctl approval: commands that wait until a second person has agreed. coupon-admin asks for
 * one where COUPON_ADMIN_APPROVAL wants it; couponctl itself runs its commands at once.
 *
 * One that is given is run here, with a key of its own: when this process dies in between, the next
 * `approval give` goes on, and what was done is not done again.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "ctl/api.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APPROVAL_S 86400 /* docs/reference/couponctl.md */
#define APPROVALS_COUNT 100
#define APPROVALS_KEPT 100000

const char *const ctl_approvable[] = { "close", "void", NULL };

int ctl_is_approvable(const char *command)
{
	for (const char *const *one = ctl_approvable; *one; one++)
		if (strcmp(*one, command) == 0)
			return 1;
	return 0;
}

#define LINE "{approval:-9} {state:-8} {asked_by:-24} {expires_at:-24} {request}\n"

/* The row of sql_query_approval_list; one that is absent ends the process. */
static PGresult *approval_row(struct db *db, int64_t id)
{
	PGresult *row = db_ask(db, sql_query_approval_list, postgres_number(id),
			       postgres_text(NULL), postgres_text(NULL));

	if (PQntuples(row) == 0)
		log_fatal_as(CTL_ABSENT, "there is no approval %lld", (long long)id);
	return row;
}

static void approval_say(struct db *db, int64_t id, int as_json)
{
	output_rows(approval_row(db, id), NULL, "approval {approval} is {state}\n", as_json);
}

static int ask_run(struct ctl *ctl)
{
	const char *text = args_required(&ctl->args, "request");
	cJSON *request = cJSON_Parse(text);
	const char *command = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(request, "command"));
	int as_json = args_has(&ctl->args, "json");
	cJSON *before, *made;
	struct db *db;
	int64_t id;

	if (!command || !ctl_is_approvable(command))
		args_fail("--request has no command that can be approved: allowed are close and "
			  "void");
	if (cJSON_HasObjectItem(request, "by") || cJSON_HasObjectItem(request, "key"))
		args_fail("--request has the member by or key: both are set when it is run");
	db = store_changing_open(ctl, NULL);
	before = store_key_begin(db, ctl);
	if (before) {
		id = atoll(cJSON_GetStringValue(
			checked(cJSON_GetObjectItemCaseSensitive(before, "approval"))));
	} else {
		id = db_value(db, sql_query_approval_ask, postgres_text(command),
			      postgres_text(text), postgres_number(APPROVAL_S));
		db_do(db, sql_query_approval_forget, postgres_number(id - APPROVALS_KEPT));
		made = output_object();
		output_id(made, "approval", id);
		store_key_commit(db, ctl, made);
		output_made("approval %lld was asked for", (long long)id);
	}
	cJSON_Delete(before);
	cJSON_Delete(request);
	approval_say(db, id, as_json);
	db_close(db);
	return CTL_DONE;
}

/*
 * Decides about one that waits. If it does not, or if the caller has asked for it, the process
 * ends; one that was given, and perhaps was not run, is given again.
 */
static PGresult *approval_decide(struct db *db, int64_t id, const char *state)
{
	int64_t is_decided = db_value(db, sql_query_approval_decide, postgres_number(id),
				      postgres_text(state));
	PGresult *row = approval_row(db, id);
	const char *now = column_text(row, 0, "state");

	if (is_decided || (strcmp(state, "given") == 0 &&
			   (strcmp(now, "given") == 0 || strcmp(now, "done") == 0)))
		return row;
	if (strcmp(now, "waiting") == 0)
		log_fatal("approval %lld was asked for by %s: another person has to give it",
			  (long long)id, column_text(row, 0, "asked_by"));
	log_fatal("approval %lld is %s: ask for another one", (long long)id, now);
}

static int refuse_run(struct ctl *ctl)
{
	int64_t id = args_id_argument(&ctl->args);
	struct db *db = store_changing_open(ctl, NULL);

	PQclear(approval_decide(db, id, "refused"));
	approval_say(db, id, args_has(&ctl->args, "json"));
	db_close(db);
	return CTL_DONE;
}

static int give_run(struct ctl *ctl)
{
	int64_t id = args_id_argument(&ctl->args);
	int as_json = args_has(&ctl->args, "json"), status;
	struct db *db = store_changing_open(ctl, NULL);
	PGresult *row = approval_decide(db, id, "given");
	cJSON *request = checked(cJSON_Parse(column_text(row, 0, "request")));
	char key[COMMAND_KEY_MAX + 1];

	snprintf(key, sizeof(key), APPROVAL_KEY "%lld", (long long)id);
	output_text(request, "by", column_text(row, 0, "asked_by"));
	output_text(request, "key", key);
	PQclear(row);
	db_close(db);
	ctl->runs_approved = 1;
	status = api_command_run(ctl, request, as_json); /* which keeps texts of it */
	if (status == CTL_DONE || status == CTL_NOT_IN_REDIS) {
		db = store_postgres_open(ctl);
		db_do(db, sql_query_approval_done, postgres_number(id));
		db_close(db);
	}
	return status;
}

static int list_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);

	output_rows(
		db_ask(db, sql_query_approval_list, postgres_text(NULL),
		       db_id(args_id(&ctl->args, "after")),
		       postgres_number(args_count(&ctl->args, APPROVALS_COUNT))),
		"approval  state    asked by                 expires                  request\n",
		LINE, args_has(&ctl->args, "json"));
	db_close(db);
	return CTL_DONE;
}

static int show_run(struct ctl *ctl)
{
	int64_t id = args_id_argument(&ctl->args);
	struct db *db = store_postgres_open(ctl);

	output_rows(approval_row(db, id), NULL,
		    "approval {approval} of {command}\n"
		    "  state    {state}[decided_by , by {decided_by} at {decided_at}]\n"
		    "  asked    by {asked_by} at {asked_at}\n"
		    "  expires  {expires_at}\n"
		    "  request  {request}\n",
		    args_has(&ctl->args, "json"));
	db_close(db);
	return CTL_DONE;
}

static const struct command approval_ask_command = {
	.name = "approval ask",
	.run = ask_run,
	.options = OPTIONS(OPTION("request", "JSON",
				  "what to run, as couponctl --api takes it: close or void"),
			   KEY_OPTION, BY_OPTION),
	.summary = "ask for the approval of a second person",
	.detail = "Nothing is run before another person has given it. After 24 h it has expired.",
};

static const struct command approval_list_command = {
	.name = "approval list",
	.run = list_run,
	.options = OPTIONS(PAGE_OPTIONS("ID", "approval", "100")),
	.summary = "list what waits for approval or was decided, the newest first",
};

static const struct command approval_show_command = {
	.name = "approval show",
	.run = show_run,
	.argument = "ID",
	.summary = "print what was asked for, by whom, and who has decided",
};

static const struct command approval_give_command = {
	.name = "approval give",
	.run = give_run,
	.argument = "ID",
	.options = OPTIONS(BY_OPTION),
	.summary = "approve what another person has asked for, and run it",
	.detail = "It is run once, in the name of the one who has asked. If the command fails or\n"
		  "dies, this one goes on, run again.",
};

static const struct command approval_refuse_command = {
	.name = "approval refuse",
	.run = refuse_run,
	.argument = "ID",
	.options = OPTIONS(BY_OPTION),
	.summary = "refuse it, or withdraw what was asked for",
};

const struct command approval_command = {
	.name = "approval",
	.subcommands = COMMANDS(&approval_ask_command, &approval_list_command,
				&approval_show_command, &approval_give_command,
				&approval_refuse_command),
	.summary = "ask for, give and refuse the approval of a second person",
};
