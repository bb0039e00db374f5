#include "keeper/recovery.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/program/couponctl.h"
#include "keeper/metrics.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_TAIL 11 /* its exit status, if an operator has to recover */
#define LINE_SIZE 1024
#define AGAIN_MS 2000          /* after a failure */
#define LIMIT_MS 600000        /* then the command hangs, and is killed */
#define REFUSED_AGAIN_MS 30000 /* after it has found that an operator is needed */

/* The last line of what the command writes. */
struct command_output {
	int fd;
	char line[LINE_SIZE];
	size_t len;
	int is_over;
};

struct recovery {
	int64_t transactions_max; /* 0: COUPON_RECOVER=manual */
	pid_t pid;                /* of the command; 0: it does not run */
	struct command_output out, err;
	int64_t due_ms, begun_ms;
	struct postgres_server server; /* to which the command brings back what is missing */
	char why[LINE_SIZE]; /* last logged: an operator is needed, or the command failed */
	int is_refused;
};

void recovery_check(const struct config *config)
{
	int is_auto = strcmp(config->recover, "auto") == 0;

	if (!is_auto && strcmp(config->recover, "manual") != 0)
		log_fatal("COUPON_RECOVER is \"%s\": allowed are manual and auto", config->recover);
	if (!is_auto)
		return;
	if (access(couponctl_path(), X_OK))
		log_fatal("COUPON_RECOVER is \"auto\", but %s, which it runs, cannot be executed",
			  couponctl_path());
	config_export(config, CONFIG_WORKER, CONFIG_CTL);
}

struct recovery *recovery_new(const struct config *config)
{
	struct recovery *recovery = checked(calloc(1, sizeof(*recovery)));

	if (strcmp(config->recover, "auto") == 0)
		recovery->transactions_max = config->recover_max;
	return recovery;
}

static void output_read(struct command_output *output)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(output->fd, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < n; i++) {
			if (output->is_over)
				output->len = 0;
			output->is_over = bytes[i] == '\n';
			if (!output->is_over && output->len < LINE_SIZE - 1)
				output->line[output->len++] = bytes[i];
		}
	output->line[output->len] = '\0';
}

/* Returns the end that the command gets; -1: there is no descriptor. */
static int output_begin(struct command_output *output)
{
	int ends[2] = { -1, -1 };

	if (pipe2(ends, O_CLOEXEC) == 0)
		fcntl(ends[0], F_SETFL, O_NONBLOCK);
	*output = (struct command_output){ .fd = ends[0] };
	return ends[1];
}

static void command_close(struct recovery *recovery)
{
	close(recovery->out.fd);
	close(recovery->err.fd);
	recovery->pid = 0;
}

/* Logs each reason once. */
static int why_is_new(struct recovery *recovery, const char *why)
{
	if (strcmp(recovery->why, why) == 0)
		return 0;
	snprintf(recovery->why, sizeof(recovery->why), "%s", why);
	return 1;
}

static void waits_log(struct recovery *recovery, const char *why)
{
	if (why_is_new(recovery, why))
		log_error("recovery_waits", LOG_S("why", why),
			  LOG_S("mend", "couponctl recover --all"));
}

void recovery_read(struct recovery *recovery)
{
	static const char *const names[] = { "receives", "receives_rejected", "rejections",
					     "unreadable", "ms" };
	int64_t numbers[5] = { 0 };
	int status = -1, is_over, has_exited;
	const char *why;
	cJSON *done;

	if (recovery->pid == 0)
		return;
	if (clock_monotonic_ms() - recovery->begun_ms > LIMIT_MS)
		kill(recovery->pid, SIGKILL);
	is_over = waitpid(recovery->pid, &status, WNOHANG) != 0;
	output_read(&recovery->out);
	output_read(&recovery->err);
	if (!is_over)
		return;
	command_close(recovery);

	has_exited = WIFEXITED(status);
	why = strstr(recovery->err.line, ": ");
	why = !has_exited ? "couponctl recover was killed" : why ? why + 2 : recovery->err.line;
	recovery->due_ms = clock_monotonic_ms() + AGAIN_MS;
	recovery->is_refused = has_exited && WEXITSTATUS(status) == NO_TAIL;
	if (recovery->is_refused) {
		recovery->due_ms += REFUSED_AGAIN_MS;
		waits_log(recovery, why);
	} else if (!has_exited || WEXITSTATUS(status) != 0) {
		if (why_is_new(recovery, why))
			log_warn("recovery_failed", LOG_S("why", why));
	} else {
		done = cJSON_Parse(recovery->out.line);
		for (int i = 0; i < 5; i++)
			if (json_integer(cJSON_GetObjectItem(done, names[i]), 0, JSON_INTEGER_MAX,
					 &numbers[i]))
				numbers[i] = 0;
		cJSON_Delete(done);
		log_info("recovery_done", LOG_I("receives", numbers[0]),
			 LOG_I("rejected", numbers[1]), LOG_I("rejections", numbers[2]),
			 LOG_I("unreadable", numbers[3]), LOG_I("ms", numbers[4]));
		metrics_add(KEEPER_METRIC_RECOVERIES, 1);
	}
}

/* NULL: by the numbers, settle() has written all that is missing; else why an operator has to. */
static const char *lack_judge(const struct recovery *recovery, const struct keeper_lack *lack)
{
	if (!lack->is_promoted)
		return "this PostgreSQL server is of another cluster than the one that Redis "
		       "follows";
	if (lack->others > 0)
		return "not only transactions that settled receives are missing";
	if (lack->transactions > recovery->transactions_max)
		return "more transactions are missing than COUPON_RECOVER_MAX allows";
	return NULL;
}

void recovery_step(struct recovery *recovery, const struct keeper_stores *stores)
{
	const char *why = lack_judge(recovery, &stores->lack);
	char most[NUMBER_SIZE], host[64] = "", by[80];
	char *argv[] = { "couponctl", "recover", "--tail", most, "--by", by, "--json", NULL };
	int out, err, rc;

	/* It may hang in what is another one's now. */
	if (recovery->pid && !server_equals(&recovery->server, &stores->copy.server))
		recovery_stop(recovery);
	if (recovery->transactions_max == 0 || recovery->pid)
		return;
	if (why) {
		waits_log(recovery, why);
		return;
	}
	if (clock_monotonic_ms() < recovery->due_ms)
		return;
	log_info("recovery_begun", LOG_I("transactions", stores->lack.transactions),
		 LOG_S("former", stores->copy.former));
	recovery->begun_ms = clock_monotonic_ms();
	recovery->server = stores->copy.server;

	number_text(recovery->transactions_max, most);
	gethostname(host, sizeof(host) - 1);
	snprintf(by, sizeof(by), "keeper@%s", host);
	out = output_begin(&recovery->out);
	err = output_begin(&recovery->err);
	rc = out < 0 || err < 0 ? EMFILE : couponctl_spawn(&recovery->pid, argv, -1, out, err);
	close(out);
	close(err);
	if (rc == 0)
		return;
	log_warn("recovery_failed", LOG_S("why", strerror(rc)));
	command_close(recovery);
	recovery->due_ms = clock_monotonic_ms() + AGAIN_MS;
}

void recovery_forget(struct recovery *recovery)
{
	*recovery->why = '\0';
	recovery->is_refused = 0;
}

void recovery_stop(struct recovery *recovery)
{
	int status;

	if (recovery->pid == 0)
		return;
	kill(recovery->pid, SIGKILL);
	waitpid(recovery->pid, &status, 0);
	command_close(recovery);
}

void recovery_free(struct recovery *recovery)
{
	recovery_stop(recovery);
	free(recovery);
}

int recovery_helps(const struct recovery *recovery, const struct keeper_stores *stores)
{
	return recovery->transactions_max > 0 && !recovery->is_refused &&
	       !lack_judge(recovery, &stores->lack);
}
