/* The lines of this machine: the kernel, descriptors of gateways, and files with certificates. */
#include "common/log/log.h"
#include "common/postgres/postgres_session.h"
#include "common/program/kernel_limit.h"
#include "common/resolving.h"
#include "common/trust.h"
#include "ctl/doctor/doctor.h"

#include <ctype.h>
#include <dirent.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATEWAY "coupon-gateway"
#define TEXT_SIZE 256
#define HUGEPAGES "/sys/kernel/mm/transparent_hugepage/enabled"
#define OVERCOMMIT "/proc/sys/vm/overcommit_memory"

/* The first line of a file, without its end. 0, or -1: it cannot be read. */
static int line_read(const char *path, char out[TEXT_SIZE])
{
	FILE *file = fopen(path, "re");
	char *line = file ? fgets(out, TEXT_SIZE, file) : NULL;

	if (file)
		fclose(file);
	if (!line)
		return -1;
	out[strcspn(out, "\n")] = '\0';
	return 0;
}

static void kernel_say(struct doctor *doctor)
{
	struct kernel_limit limit;
	char name[96], wanted[64], mend[128];
	int has_limit;

	for (int i = 0;
	     (has_limit = kernel_limit_read(i, doctor->config->connections_max, &limit)) >= 0;
	     i++) {
		if (!has_limit)
			continue;
		snprintf(name, sizeof(name), "machine.%s", limit.name);
		snprintf(wanted, sizeof(wanted), "at least %lld", (long long)limit.wanted);
		snprintf(mend, sizeof(mend), "sysctl -w %s=%lld, and in /etc/sysctl.d/", limit.name,
			 (long long)limit.wanted);
		doctor_say(doctor,
			   &(struct sign){ .name = name,
					   .health = limit.value < limit.wanted ? HEALTH_WARNING
										: HEALTH_OK,
					   .wanted = limit.wanted > 0 ? wanted : NULL,
					   .why = limit.effect,
					   .mend = mend },
			   "%lld", (long long)limit.value);
	}
}

/* What Redis needs of the kernel of its machine. */
static void memory_say(struct doctor *doctor)
{
	struct redis_url url;
	char pages[TEXT_SIZE];
	int64_t overcommit;
	int is_here;

	redis_url_need(&url, doctor->config->redis_url);
	is_here = url.host && host_is_loopback(url.host);
	redis_url_fini(&url);
	if (!is_here) {
		doctor_unknown(doctor, "machine.vm.overcommit_memory", NULL,
			       "Redis runs on another machine");
		doctor_unknown(doctor, "machine.transparent_hugepage", NULL,
			       "Redis runs on another machine");
		return;
	}
	if (kernel_number_read(OVERCOMMIT, &overcommit))
		doctor_unknown(doctor, "machine.vm.overcommit_memory", NULL, "%s cannot be read",
			       OVERCOMMIT);
	else
		doctor_say(doctor,
			   &(struct sign){ .name = "machine.vm.overcommit_memory",
					   .health = overcommit == 1 ? HEALTH_OK : HEALTH_WARNING,
					   .wanted = "1",
					   .why = "Redis may not be able to rewrite its file while "
						  "it has much data",
					   .mend = "sysctl -w vm.overcommit_memory=1, and in "
						   "/etc/sysctl.d/" },
			   "%lld", (long long)overcommit);
	if (line_read(HUGEPAGES, pages))
		doctor_unknown(doctor, "machine.transparent_hugepage", NULL, "%s cannot be read",
			       HUGEPAGES);
	else
		doctor_say(doctor,
			   &(struct sign){ .name = "machine.transparent_hugepage",
					   .health = strstr(pages, "[always]") ? HEALTH_WARNING
									       : HEALTH_OK,
					   .wanted = "madvise or never",
					   .why = "Redis waits for the kernel to copy large pages",
					   .mend = "echo madvise > " HUGEPAGES
						   ", at each start of the machine" },
			   "%s", pages);
}

/* The hard limit of descriptors of a process, which a gateway takes; -1: it cannot be read. */
static int64_t limit_of(int pid)
{
	char path[64], line[TEXT_SIZE], hard[32];
	int64_t limit = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/limits", pid);
	file = fopen(path, "re");
	while (file && limit < 0 && fgets(line, sizeof(line), file))
		if (sscanf(line, "Max open files %*s %31s", hard) == 1)
			limit = strcmp(hard, "unlimited") == 0 ? INT64_MAX
							       : strtoll(hard, NULL, 10);
	if (file)
		fclose(file);
	return limit;
}

/* The gateway of this machine that may open the fewest descriptors. */
static void descriptors_say(struct doctor *doctor)
{
	int64_t wanted = doctor->config->connections_max + DESCRIPTORS_OF_SERVICES, least = -1;
	DIR *processes = opendir("/proc");
	const struct dirent *entry;
	char path[64], name[TEXT_SIZE], text[64];
	int of = 0;

	while (processes && (entry = readdir(processes))) {
		int pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
		int64_t limit;

		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid); /* its words end in a NUL */
		if (pid <= 0 || line_read(path, name) ||
		    strcmp(strrchr(name, '/') ? strrchr(name, '/') + 1 : name, GATEWAY) != 0)
			continue;
		limit = limit_of(pid);
		if (limit < 0 || (least >= 0 && limit >= least))
			continue;
		least = limit;
		of = pid;
	}
	if (processes)
		closedir(processes);
	if (least < 0) {
		doctor_unknown(doctor, "machine.descriptors", NULL,
			       "no " GATEWAY " runs on this machine");
		return;
	}
	snprintf(text, sizeof(text), "at least %lld", (long long)wanted);
	doctor_say(doctor,
		   &(struct sign){
			   .name = "machine.descriptors",
			   .health = least < wanted ? HEALTH_WARNING : HEALTH_OK,
			   .wanted = text,
			   .why = DESCRIPTORS_FEW_EFFECT,
			   .mend = "raise LimitNOFILE of coupon-gateway.service (systemctl "
				   "edit coupon-gateway), or lower COUPON_CONNECTIONS_MAX" },
		   "%lld of process %d", (long long)least, of);
}

/* The certificate of a file that ends first. */
static void file_say(struct doctor *doctor, const char *setting, const char *path)
{
	char name[96], wrong[KEY_FILE_WRONG_SIZE];
	STACK_OF(X509) * all;
	X509 *first;

	if (!path || !*path)
		return;
	snprintf(name, sizeof(name), "certificate.%s", setting);
	all = trust_certificates_read(path, wrong);
	if (!all) {
		doctor_unknown(doctor, name, NULL, "%s: %s", path, wrong);
		return;
	}
	first = sk_X509_value(all, 0);
	for (int i = 1; i < sk_X509_num(all); i++)
		if (trust_until_s(X509_get0_notAfter(sk_X509_value(all, i))) <
		    trust_until_s(X509_get0_notAfter(first)))
			first = sk_X509_value(all, i);
	certificate_say(doctor, name, path, first);
	sk_X509_pop_free(all, X509_free);
}

static void certificates_say(struct doctor *doctor)
{
	const struct config *config = doctor->config;
	PQconninfoOption *options = PQconninfoParse(config->database_url, NULL);
	char *listen = strdup(config->listen), *host;
	int port;

	file_say(doctor, "COUPON_TLS_CERT", config->tls_cert);
	file_say(doctor, "COUPON_TLS_CA", config->tls_ca);
	file_say(doctor, "COUPON_REDIS_CA", config->redis_ca);
	file_say(doctor, "COUPON_AMQP_CA", config->amqp_ca);
	file_say(doctor, "COUPON_WEBHOOK_CA", config->webhook_ca);
	if (options && strcmp(postgres_option(options, "sslrootcert"), "system") != 0)
		file_say(doctor, "sslrootcert", postgres_option(options, "sslrootcert"));
	if (options)
		file_say(doctor, "sslcert", postgres_option(options, "sslcert"));
	if (*config->tls_ca && listen && config_address(listen, &host, &port) == 0)
		presented_say(doctor, "certificate.COUPON_LISTEN", host, port);
	free(listen);
	PQconninfoFree(options);
}

void look_machine(struct doctor *doctor)
{
	descriptors_say(doctor);
	kernel_say(doctor);
	memory_say(doctor);
	certificates_say(doctor);
}
