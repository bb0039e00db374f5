/*
 * Logs the version of each service (service_version): at the first connection, and after a
 * reconnect when it differs. One line for the process, however many connections it has. Any thread.
 * The level is debug until service_version_init(): a command of couponctl logs nothing by default.
 */
#ifndef COMMON_LOG_SERVICE_VERSION_H
#define COMMON_LOG_SERVICE_VERSION_H

enum service { SERVICE_REDIS, SERVICE_RABBITMQ, SERVICE_POSTGRESQL };

/* At the start of a program that runs on, before threads start: the level is info. */
void service_version_init(void);

/* What a server states when a connection to it is opened. An empty version is ignored. */
void service_version_log(enum service service, const char *product, const char *version);

#endif
