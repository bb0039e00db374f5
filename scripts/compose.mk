# The system in containers: docs/compose.md.

.PHONY: compose-env compose-clean test-compose

compose-env: ## write a .env with random passwords, for docker-compose: TLS=yes NAMES=…, HA=yes
	@scripts/compose-env.sh

test-compose: ## bring docker-compose.yml up for real, with a load on it
	@scripts/compose-test.sh

compose-clean: ## remove the engine and the images that test-compose keeps
	@scripts/compose-test.sh clean
