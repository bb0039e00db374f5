# The programs in one image: coupon-gateway, coupon-worker, coupon-admin, couponctl, coupon-rush.
# docs/guides/compose.md, "The image".
ARG COUPON_DEBIAN=trixie
FROM debian:${COUPON_DEBIAN}-slim AS builder
RUN apt-get update \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		build-essential ca-certificates pkg-config \
		libcjson-dev libcsv-dev libcurl4-openssl-dev libevent-dev libhiredis-dev \
		libhttp-parser-dev libpq-dev librabbitmq-dev libsodium-dev libssl-dev \
		libsystemd-dev uthash-dev \
	&& rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN make build BUILD_DIR=build \
	&& install -D -s -t /image/usr/local/bin build/coupon-gateway build/coupon-worker \
		build/coupon-admin build/couponctl build/coupon-rush
# Their libraries, and one that the C library loads to end a thread; of the packages that have these
# the description, by which scanners know them, and the licence.
RUN ldd /image/usr/local/bin/* | grep -o '/[^ ]*\.so[^ ]*' | sort -u >/libraries \
	&& ls /lib/*/libgcc_s.so.1 >>/libraries \
	&& xargs cp -L --parents -t /image </libraries \
	&& mkdir -p /image/var/lib/dpkg/status.d \
	&& sed 's|.*/\([^/]*/[^/]*\)$|*/\1|' /libraries | xargs dpkg-query -S \
		| sed -n 's|^\([^ ]*\):[^ ]*: .*|\1|p' | sort -u | while read -r package; do \
			dpkg-query -s "$package" >"/image/var/lib/dpkg/status.d/$package" || exit; \
			licence=/usr/share/doc/$package/copyright; \
			[ ! -e "$licence" ] || cp -L --parents -t /image "$licence" || exit; \
		done
# The CA certificates, where OpenSSL looks for them, and what else the C library reads.
RUN cd /image && mkdir -p etc/ssl/certs usr/lib/ssl \
	&& cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ \
	&& ln -s /etc/ssl/certs/ca-certificates.crt usr/lib/ssl/cert.pem \
	&& cp /etc/debian_version /etc/os-release etc/ \
	&& echo 'hosts: files dns' >etc/nsswitch.conf \
	&& echo 'couponmq:x:7411:7411::/nonexistent:/usr/sbin/nologin' >etc/passwd \
	&& echo 'couponmq:x:7411:' >etc/group
# A library that is missing is found here and not at the first start.
RUN for program in /image/usr/local/bin/*; do \
		chroot /image "${program#/image}" --version || exit 1; \
	done

FROM scratch
ARG VERSION=0.9.0-dev
ARG REVISION
LABEL org.opencontainers.image.title=couponmq \
	org.opencontainers.image.description="Issues coupons under a rush: \
coupon-gateway, coupon-worker, coupon-admin, couponctl, coupon-rush" \
	org.opencontainers.image.licenses=MIT \
	org.opencontainers.image.version=$VERSION \
	org.opencontainers.image.revision=$REVISION
COPY --from=builder /image/ /
ENV PATH=/usr/local/bin
USER 7411:7411
# A container is healthy while its service is ready. Process 1 is the service: its own program asks
# it, with the settings that are variables of the container. An engine shows the state, and restarts
# nothing because of it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/proc/1/exe", "--ready"]
CMD ["coupon-gateway"]
