/* couponctl doctor (see doctor.h): the form of a line, and what the stores have in common. */
#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/message/json.h"
#include "common/program/weak_settings.h"
#include "common/resolving.h"
#include "common/trust.h"
#include "ctl/ctl.h"
#include "ctl/doctor/doctor.h"
#include "ctl/doctor/vitals.h"
#include "ctl/output.h"
#include "ctl/say.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DAY_S 86400
#define CERTIFICATE_DAYS 14 /* as the alert has it */
#define FULL_PERCENT 80     /* of connections, descriptors and memory */
#define SPACE_PERCENT 10
#define PRESENTED_TIMEOUT_S 3
#define TIMES_MAX 9
#define TEXT_SIZE 512

static const char *const health_words[] = { [HEALTH_OK] = "ok",
					    [HEALTH_WARNING] = "warning",
					    [HEALTH_WRONG] = "wrong",
					    [HEALTH_UNKNOWN] = "unknown" };

/* For people: the state, the name, what is found; then why that is not ok, and what mends it. */
static void line_print(const struct sign *sign, const char *value)
{
	int is_ok = sign->health == HEALTH_OK, has_value = value && *value;

	printf("%-8s %-34s ", health_words[sign->health], sign->name);
	if (has_value)
		text_print_plain(value, strlen(value), stdout);
	if (!is_ok && sign->why) {
		printf("%s%s%s", has_value && sign->wanted ? ", wanted " : "",
		       has_value && sign->wanted ? sign->wanted : "", has_value ? ": " : "");
		text_print_plain(sign->why, strlen(sign->why), stdout);
	}
	putchar('\n');
	if (!is_ok && sign->mend) {
		printf("         mend: ");
		text_print_plain(sign->mend, strlen(sign->mend), stdout);
		putchar('\n');
	}
}

static void sign_say(struct doctor *doctor, const struct sign *sign, const char *value)
{
	int is_ok = sign->health == HEALTH_OK;
	cJSON *object;

	doctor->lines_n[sign->health]++;
	if (doctor->as_json) {
		object = output_object();
		output_text(object, "name", sign->name);
		output_text(object, "state", health_words[sign->health]);
		output_text(object, "value", value);
		output_text(object, "wanted", sign->wanted);
		output_text(object, "why", is_ok ? NULL : sign->why);
		output_text(object, "mend", is_ok ? NULL : sign->mend);
		output_print(object);
	} else {
		line_print(sign, value);
	}
	fflush(stdout);
}

void doctor_say(struct doctor *doctor, const struct sign *sign, const char *format, ...)
{
	char value[TEXT_SIZE];
	va_list list;

	va_start(list, format);
	vsnprintf(value, sizeof(value), format, list);
	va_end(list);
	json_text_mend(value); /* it may be cut */
	sign_say(doctor, sign, value);
}

void doctor_unknown(struct doctor *doctor, const char *name, const char *mend, const char *format,
		    ...)
{
	char why[TEXT_SIZE];
	va_list list;

	va_start(list, format);
	vsnprintf(why, sizeof(why), format, list);
	va_end(list);
	json_text_mend(why);
	sign_say(doctor,
		 &(struct sign){ .name = name, .health = HEALTH_UNKNOWN, .why = why, .mend = mend },
		 NULL);
}

void store_away(struct doctor *doctor, const char *name, const char *where, const char *why,
		const char *mend)
{
	doctor->away_n++;
	sign_say(doctor,
		 &(struct sign){ .name = name, .health = HEALTH_WRONG, .why = why, .mend = mend },
		 where);
}

void version_say(struct doctor *doctor, const char *name, const char *version)
{
	/* Debian 12 has the oldest, Debian 13 the newest ones that the tests run with. */
	static const struct {
		const char *product;
		int oldest, newest; /* major * 100 + minor */
	} products[] = {
		{ "Redis", 700, 800 },
		{ "Valkey", 702, 801 },
		{ "RabbitMQ", 310, 400 },
		{ "PostgreSQL", 1500, 1799 },
	};
	char product[32] = "", wanted[64];
	int major = 0, minor = 0;

	(void)sscanf(version, "%31s %d.%d", product, &major, &minor);
	for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
		int number = 100 * major + minor, oldest = products[i].oldest,
		    newest = products[i].newest, is_old = number < oldest;

		if (strcmp(product, products[i].product) != 0 || major == 0)
			continue;
		if (newest % 100 == 99) /* each minor version of it */
			snprintf(wanted, sizeof(wanted), "%d to %d", oldest / 100, newest / 100);
		else
			snprintf(wanted, sizeof(wanted), "%d.%d to %d.%d", oldest / 100,
				 oldest % 100, newest / 100, newest % 100);
		doctor_say(doctor,
			   &(struct sign){
				   .name = name,
				   .health = is_old            ? HEALTH_WRONG
					     : number > newest ? HEALTH_WARNING
							       : HEALTH_OK,
				   .wanted = wanted,
				   .why = is_old ? "it lacks what the programs need"
						 : "no test runs with a version so new",
				   .mend = is_old ? "upgrade it"
						  : "try it before an upgrade of production" },
			   "%s", version);
		return;
	}
	doctor_unknown(doctor, name, NULL, "it does not state a version that is known");
}

void time_say(struct doctor *doctor, const struct timed *timed)
{
	int64_t us[TIMES_MAX], median;
	char why[TEXT_SIZE];
	enum health health;

	check(timed->n >= 1 && timed->n <= TIMES_MAX);
	for (int i = 0; i < timed->n; i++) {
		int64_t begun_us = clock_monotonic_us();

		health = timed->once(doctor, timed->context, why, sizeof(why));
		if (health != HEALTH_OK) {
			doctor->away_n += timed->is_ping;
			health = timed->is_ping ? HEALTH_WRONG : health;
			sign_say(doctor,
				 &(struct sign){ .name = timed->name,
						 .health = health,
						 .why = why,
						 .mend = timed->mend },
				 NULL);
			return;
		}
		us[i] = clock_monotonic_us() - begun_us;
	}
	qsort(us, (size_t)timed->n, sizeof(us[0]), number_compare);
	median = us[timed->n / 2];
	doctor_say(doctor,
		   &(struct sign){ .name = timed->name,
				   .health = median > (int64_t)timed->most_ms * 1000
						     ? HEALTH_WARNING
						     : HEALTH_OK,
				   .wanted = timed->wanted,
				   .why = timed->what,
				   .mend = timed->mend },
		   "%lld.%03lld ms, median of %d", (long long)(median / 1000),
		   (long long)(median % 1000), timed->n);
}

void durability_say(struct doctor *doctor, const char *name, const struct durability_setting *one,
		    const char *mend)
{
	doctor_say(doctor,
		   &(struct sign){ .name = name,
				   .health = one->is_weak ? HEALTH_WRONG : HEALTH_OK,
				   .wanted = one->wanted,
				   .why = one->lost,
				   .mend = mend },
		   "%s", one->value);
}

void clock_say(struct doctor *doctor, const char *name, int64_t ahead_ms)
{
	doctor_say(doctor,
		   &(struct sign){ .name = name,
				   .health = llabs(ahead_ms) > CLOCKS_DIFFER_MS ? HEALTH_WRONG
										: HEALTH_OK,
				   .wanted = "within 500 ms",
				   .why = "a campaign begins and ends by the clock of Redis, and "
					  "operators read the others",
				   .mend = "synchronize the clocks: systemctl enable --now "
					   "systemd-timesyncd" },
		   "%lld ms ahead of this machine's", (long long)ahead_ms);
}

void share_say(struct doctor *doctor, const char *name, int64_t used, int64_t most, const char *why,
	       const char *mend)
{
	doctor_say(doctor,
		   &(struct sign){ .name = name,
				   .health = used * 100 >= most * FULL_PERCENT ? HEALTH_WARNING
									       : HEALTH_OK,
				   .wanted = "less than 80 %",
				   .why = why,
				   .mend = mend },
		   "%lld of %lld", (long long)used, (long long)most);
}

void disk_say(struct doctor *doctor, const char *name, const char *folder)
{
	struct statvfs disk;
	double left, all;

	if (statvfs(folder, &disk)) {
		doctor_unknown(doctor, name, NULL, "the disk of %s cannot be looked at", folder);
		return;
	}
	left = (double)disk.f_bavail;
	all = (double)(disk.f_blocks - disk.f_bfree) + left;
	doctor_say(doctor,
		   &(struct sign){ .name = name,
				   .health = left * 100 < all * SPACE_PERCENT ? HEALTH_WARNING
									      : HEALTH_OK,
				   .wanted = "10 % free",
				   .why = "a store whose disk is full takes nothing more",
				   .mend = DISK_MEND },
		   "%.0f MB free, %.0f %%", left * (double)disk.f_frsize / 1e6,
		   all > 0 ? left * 100 / all : 0);
}

void certificate_say(struct doctor *doctor, const char *name, const char *of,
		     const X509 *certificate)
{
	int64_t left_s = trust_until_s(X509_get0_notAfter(certificate));

	doctor_say(doctor,
		   &(struct sign){ .name = name,
				   .health = left_s <= 0                         ? HEALTH_WRONG
					     : left_s < CERTIFICATE_DAYS * DAY_S ? HEALTH_WARNING
										 : HEALTH_OK,
				   .wanted = "14 days",
				   .why = left_s <= 0
						  ? "it has expired: nobody connects who "
						    "verifies it"
						  : "after that nobody connects who verifies it",
				   .mend = "put a new certificate in its place: the programs read "
					   "theirs again by themselves" },
		   "%s: %lld days", of, (long long)(left_s / DAY_S));
}

/* Keeps the certificate of the server, which is not verified. */
static int on_presented(X509_STORE_CTX *chain, void *data)
{
	X509 **certificate = data;

	if (!*certificate) {
		*certificate = X509_STORE_CTX_get0_cert(chain);
		X509_up_ref(*certificate);
	}
	return 1;
}

/* A TCP connection whose calls end after PRESENTED_TIMEOUT_S; -1: there is none. */
static int dial(const char *host, int port)
{
	const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM };
	const struct timeval timeout = { .tv_sec = PRESENTED_TIMEOUT_S };
	struct addrinfo *list, *one;
	char number[16];
	int fd = -1;

	snprintf(number, sizeof(number), "%d", port);
	if (getaddrinfo(host, number, &wanted, &list))
		return -1;
	for (one = list; one && fd < 0; one = one->ai_next) {
		fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
		if (connect(fd, one->ai_addr, one->ai_addrlen)) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(list);
	return fd;
}

void presented_say(struct doctor *doctor, const char *name, const char *host, int port)
{
	SSL_CTX *context = checked(SSL_CTX_new(TLS_client_method()));
	X509 *certificate = NULL;
	int fd = dial(host, port);
	SSL *session;
	char of[300];

	snprintf(of, sizeof(of), "%s:%d", host, port);
	/* It is called whether the chain is good or not. */
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_cert_verify_callback(context, on_presented, &certificate);
	session = checked(SSL_new(context));
	trust_begin();
	if (fd >= 0 && SSL_set_fd(session, fd) == 1) {
		if (!host_is_address(host)) /* only names may be told */
			SSL_set_tlsext_host_name(session, host);
		(void)SSL_connect(session);
	}
	if (certificate)
		certificate_say(doctor, name, of, certificate);
	else
		doctor_unknown(doctor, name, NULL, "%s presents no certificate%s%s", of,
			       *trust_why() ? ": " : "", trust_why());
	trust_begin();
	X509_free(certificate);
	SSL_free(session);
	SSL_CTX_free(context);
	if (fd >= 0)
		close(fd);
}

/* The worker that is the keeper. */
static void keeper_say(struct doctor *doctor)
{
	const char *get[] = { "HGETALL", KEEPER_LOCK_KEY };
	redisReply *lock = NULL;
	int64_t now_ms;
	int is_held;

	if (doctor->redis && redis_client_open(doctor->redis) == 0 &&
	    redis_client_time_ms(doctor->redis, &now_ms) == 0)
		lock = redis_client_call(doctor->redis, 2, get);
	if (!lock) {
		doctor_unknown(doctor, "program.keeper", NULL, "Redis cannot be read");
		return;
	}
	is_held = keeper_holds(lock, now_ms);
	freeReplyObject(lock);
	doctor_say(doctor,
		   &(struct sign){
			   .name = "program.keeper",
			   .health = is_held ? HEALTH_OK : HEALTH_WRONG,
			   .wanted = "one worker is it",
			   .why = "nobody opens and closes campaigns, or sends lost messages "
				  "again",
			   .mend = "start a coupon-worker, or see its /readyz" },
		   "%s", is_held ? "elected" : "none");
}

static int doctor_run(struct ctl *ctl)
{
	struct doctor doctor = { .config = &ctl->config, .as_json = args_has(&ctl->args, "json") };

	look_redis(&doctor);
	look_rabbitmq(&doctor);
	look_postgresql(&doctor);
	keeper_say(&doctor);
	look_machine(&doctor);
	redis_client_free(doctor.redis);
	db_close(doctor.db);
	if (!doctor.as_json)
		printf("\n%d ok, %d warnings, %d wrong, %d unknown\n", doctor.lines_n[HEALTH_OK],
		       doctor.lines_n[HEALTH_WARNING], doctor.lines_n[HEALTH_WRONG],
		       doctor.lines_n[HEALTH_UNKNOWN]);
	return doctor.away_n > 0                  ? CTL_AWAY
	       : doctor.lines_n[HEALTH_WRONG] > 0 ? CTL_FAILED
						  : CTL_DONE;
}

const struct command doctor_command = {
	.name = "doctor",
	.run = doctor_run,
	.summary = "look for what is wrong in stores, machine and programs",
	.detail = "Prints a line for each thing that the promises or a rush need: ok, warning, "
		  "wrong,\n"
		  "or unknown with the reason, and what mends it. Nothing is changed: only a few\n"
		  "writes that leave nothing behind show how long the disks take. The exit status "
		  "is\n"
		  "1 if something is wrong, and 10 if a store cannot be reached.",
};
