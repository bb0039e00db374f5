ARG DEBIAN=trixie
FROM debian:${DEBIAN}-slim
RUN apt-get update \
	&& mkdir -p /etc/postgresql-common \
	&& echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		-o Dpkg::Options::=--force-confold postgresql \
	&& rm -rf /var/lib/apt/lists/* \
	&& ln -s /usr/lib/postgresql/*/bin /usr/lib/postgresql/bin \
	&& install -d -m 700 -o postgres -g postgres /var/lib/postgresql/data \
	&& install -d -m 775 -o postgres -g postgres /var/run/postgresql
COPY postgres-start.sh /usr/local/bin/
ENV PATH=/usr/lib/postgresql/bin:$PATH PGDATA=/var/lib/postgresql/data LANG=C.UTF-8
USER postgres
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["postgres-start.sh"]
CMD ["postgres"]
