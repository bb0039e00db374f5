# The tests on each supported platform: see scripts/platforms.sh.

.PHONY: test-platforms platforms-clean

test-platforms: ## the tests on each supported release of Debian; needs root
	@scripts/platforms.sh

platforms-clean: ## remove the root folders that test-platforms keeps
	@scripts/platforms.sh clean
