# The three programs in one image: coupon-gateway, coupon-worker, couponctl.
FROM debian:bookworm-slim AS builder
RUN apt-get update \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		build-essential pkg-config postgresql-client-15 \
		libcjson-dev libevent-dev libhiredis-dev libpq-dev librabbitmq-dev libssl-dev \
		uthash-dev \
	&& rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN make build BUILD_DIR=build \
	&& install -D -s -t /out build/coupon-gateway build/coupon-worker build/couponctl \
		/usr/lib/postgresql/15/bin/psql \
	&& install -m 755 scripts/compose-migrate.sh /out/couponmq-migrate \
	&& install -m 755 scripts/compose-health.sh /out/couponmq-health

FROM debian:bookworm-slim
RUN apt-get update \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		libcjson1 libevent-2.1-7 libhiredis0.14 libpq5 libreadline8 librabbitmq4 libssl3 \
	&& rm -rf /var/lib/apt/lists/* \
	&& groupadd --gid 7411 couponmq \
	&& useradd --uid 7411 --gid couponmq --no-create-home --home-dir /nonexistent \
		--shell /usr/sbin/nologin couponmq
COPY --from=builder /out/ /usr/local/bin/
# A library that is missing above is found here and not at the first start.
RUN for program in coupon-gateway coupon-worker couponctl psql; do \
		! ldd /usr/local/bin/$program | grep 'not found' || exit 1; \
	done
USER 7411:7411
CMD ["coupon-gateway"]
