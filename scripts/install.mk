# Installing, and the packages of Debian: see scripts/install.sh and scripts/deb.sh.

export DESTDIR PREFIX LIBDIR UNITDIR DEB_DIR

# Which of these targets there are.
PAGES := $(shell sed -n 's/^\(man\|completion\):.*/\1/p' Makefile scripts/*.mk)

.PHONY: install uninstall deb

install: build library $(PAGES) ## install in PREFIX=/usr/local, below DESTDIR=
	@BUILD_DIR=$(BUILD_DIR) scripts/install.sh install

uninstall: $(PAGES) ## remove what install has installed, with the same PREFIX= and DESTDIR=
	@BUILD_DIR=$(BUILD_DIR) scripts/install.sh uninstall

deb: ## Debian packages of the files as they are, in build/deb or DEB_DIR=
	@scripts/packages.sh deb
	@scripts/deb.sh
