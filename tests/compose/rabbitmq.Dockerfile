ARG DEBIAN=trixie
FROM debian:${DEBIAN}-slim
RUN apt-get update \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends rabbitmq-server \
	&& rm -rf /var/lib/apt/lists/* /var/lib/rabbitmq/.erlang.cookie /var/lib/rabbitmq/mnesia
RUN install -d -o rabbitmq -g rabbitmq /etc/rabbitmq/conf.d
COPY docker-entrypoint.sh /usr/local/bin/
ENV PATH=/usr/lib/rabbitmq/bin:$PATH HOME=/var/lib/rabbitmq LANG=C.UTF-8
USER rabbitmq
VOLUME /var/lib/rabbitmq
CMD ["docker-entrypoint.sh", "rabbitmq-server"]
