/*
 * The headers of librabbitmq. Newer versions have them in a folder and warn about the old names;
 * 0.11 has only the old names.
 */
#ifndef COMMON_RABBIT_AMQP_H
#define COMMON_RABBIT_AMQP_H

#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#endif

#endif
