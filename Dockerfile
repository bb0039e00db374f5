# The programs in one image: coupon-gateway, coupon-worker, coupon-admin, couponctl, coupon-rush.
# The names of the libraries differ between releases of Debian: the second stage installs those that
# the first found.
ARG DEBIAN=trixie
FROM debian:${DEBIAN}-slim AS builder
RUN apt-get update \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		build-essential pkg-config postgresql-client \
		libcjson-dev libcsv-dev libcurl4-openssl-dev libevent-dev libhiredis-dev \
		libhttp-parser-dev libpq-dev librabbitmq-dev libsodium-dev libssl-dev \
		libsystemd-dev uthash-dev \
	&& rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN make build BUILD_DIR=build \
	&& install -D -s -t /out build/coupon-gateway build/coupon-worker build/coupon-admin \
		build/couponctl build/coupon-rush \
		/usr/lib/postgresql/*/bin/psql \
	&& install -m 755 scripts/compose-migrate.sh /out/couponmq-migrate \
	&& install -m 755 scripts/compose-health.sh /out/couponmq-health
RUN ldd /out/coupon-gateway /out/coupon-worker /out/coupon-admin /out/couponctl \
		/out/coupon-rush /out/psql \
	| sed -n 's|.* => .*/\([^/ ]*/[^/ ]*\) (.*|*/\1|p' | sort -u | xargs dpkg-query -S \
	| sed -n 's|^\([^ ]*\):[^ ]*: .*|\1|p' | sort -u >/libraries

FROM debian:${DEBIAN}-slim
COPY --from=builder /libraries /libraries
RUN apt-get update \
	&& DEBIAN_FRONTEND=noninteractive xargs apt-get install -y --no-install-recommends \
		ca-certificates openssl </libraries \
	&& rm -rf /var/lib/apt/lists/* \
	&& groupadd --gid 7411 couponmq \
	&& useradd --uid 7411 --gid couponmq --no-create-home --home-dir /nonexistent \
		--shell /usr/sbin/nologin couponmq
COPY --from=builder /out/ /usr/local/bin/
# A library that is missing above is found here and not at the first start.
RUN for program in coupon-gateway coupon-worker coupon-admin couponctl coupon-rush psql; do \
		! ldd /usr/local/bin/$program | grep 'not found' || exit 1; \
	done
USER 7411:7411
CMD ["coupon-gateway"]
