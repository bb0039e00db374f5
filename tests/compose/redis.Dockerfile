ARG DEBIAN=trixie
FROM debian:${DEBIAN}-slim
RUN apt-get update \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server \
	&& rm -rf /var/lib/apt/lists/* \
	&& install -d -o redis -g redis /data
WORKDIR /data
VOLUME /data
CMD ["redis-server"]
