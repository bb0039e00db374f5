# The system in containers: docs/guides/compose.md, docs/guides/kubernetes.md.

COUPON_IMAGE ?= couponmq:latest
COUPON_DEBIAN ?= trixie

.PHONY: compose-env compose-clean image test-compose test-kubernetes

compose-env: ## write a .env with random passwords, for docker-compose: TLS=yes NAMES=…, HA=yes
	@scripts/compose-env.sh

image: ## build the image of the programs: COUPON_IMAGE=couponmq:latest COUPON_DEBIAN=trixie
	@docker build -t $(COUPON_IMAGE) --build-arg COUPON_DEBIAN=$(COUPON_DEBIAN) \
		--build-arg REVISION="$$(git rev-parse HEAD)" .

test-compose: ## bring docker-compose.yml up for real, with a load on it
	@scripts/compose-test.sh

compose-clean: ## remove the engine and the images that test-compose keeps
	@scripts/compose-test.sh clean

test-kubernetes: ## render deploy/kubernetes, and check it against the types of the API
	@scripts/packages.sh kubernetes
	@$(MAKE) --no-print-directory build build/kubernetes/$(NPM_DONE)
	@TESTS=tests/docs/test_kubernetes.py scripts/test.sh
