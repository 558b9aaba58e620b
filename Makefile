# Builds and installs what users install: make, make install PREFIX=/usr DESTDIR=/tmp/tree, make
# uninstall. A part alone: install-command, install-preload, install-c. CARGO=true installs what was
# built before: for root, who may have no Rust.
#
# The command and the library that it preloads are stripped. What debuggers and backtraces read lies
# in the folder .debug beside each: names of functions, and with
# CARGO_PROFILE_RELEASE_DEBUG=line-tables-only in the environment the lines of the sources.
#
# The command has no verb bench, whose rivals are a quarter of what would be compiled:
# CARGO_FLAGS="--features bench" brings it.

PREFIX ?= /usr/local
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
DESTDIR ?=
# The command looks for the library at this place from its own, which nothing else searches: no
# program is to be linked with that library.
BINDIR := $(PREFIX)/bin
PRIVATEDIR := $(PREFIX)/lib/kinlock

CARGO ?= cargo
INSTALL ?= install
OBJCOPY ?= objcopy

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
RELEASE := $(TARGET)/$(addsuffix /,$(CARGO_BUILD_TARGET))release
MANUAL := $(TARGET)/manual
PRELOAD := libkinlock_preload.so
GUIDE := docs/guide/knobs.md docs/guide/unmodified-programs.md

.PHONY: all c install install-command install-preload install-c uninstall FORCE

all: $(MANUAL)/kinlock.7 $(RELEASE)/$(PRELOAD) c

# Cargo knows whether there is anything to do.
$(RELEASE)/kinlock: FORCE
	$(CARGO) build --release --locked -p kinlock-command --no-default-features --features manual $(CARGO_FLAGS)

$(RELEASE)/$(PRELOAD): FORCE
	$(CARGO) build --release --locked -p kinlock-preload $(CARGO_FLAGS)

c:
	$(MAKE) -C lib/c

# The last page to be made; the command writes the others, and the completions. One that was built
# for another machine cannot: then one for this machine does.
$(MANUAL)/kinlock.7: $(RELEASE)/kinlock tools/kinlock/man7.awk $(GUIDE)
	rm -rf $(MANUAL)
	command=$(RELEASE)/kinlock; \
	if ! $$command --version >/dev/null 2>&1; then \
		env -u CARGO_BUILD_TARGET $(CARGO) build --release --locked -p kinlock-command \
			--features manual && command=$(TARGET)/release/kinlock; \
	fi; \
	$$command manual $(MANUAL)
	awk -v version=$(VERSION) -f tools/kinlock/man7.awk $(GUIDE) >$@.new
	mv $@.new $@

# stripped FILE FOLDER
define stripped
	$(INSTALL) -d $(DESTDIR)$(2)/.debug
	$(OBJCOPY) --only-keep-debug $(RELEASE)/$(1) $(DESTDIR)$(2)/.debug/$(1).debug
	chmod 644 $(DESTDIR)$(2)/.debug/$(1).debug
	$(OBJCOPY) --strip-unneeded --add-gnu-debuglink=$(DESTDIR)$(2)/.debug/$(1).debug \
		$(RELEASE)/$(1) $(DESTDIR)$(2)/$(1)
endef

# Beside the library the command makes a folder for each platform, where it may write and can run.
install: install-command install-preload install-c
	@umask 022; command=$(DESTDIR)$(BINDIR)/kinlock; \
	if $$command --version >/dev/null 2>&1; then \
		KINLOCK_PRELOAD= $$command run --print-env >/dev/null; \
	else \
		echo "$$command does not run here: run \`kinlock run --print-env\` once, as its owner," \
			"where it does"; \
	fi

install-command: $(MANUAL)/kinlock.7
	$(call stripped,kinlock,$(BINDIR))
	chmod 755 $(DESTDIR)$(BINDIR)/kinlock
	$(INSTALL) -d $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man7 $(DESTDIR)$(BASHDIR) \
		$(DESTDIR)$(ZSHDIR) $(DESTDIR)$(FISHDIR)
	$(INSTALL) -m 644 $(MANUAL)/*.1 $(DESTDIR)$(MANDIR)/man1
	$(INSTALL) -m 644 $(MANUAL)/kinlock.7 $(DESTDIR)$(MANDIR)/man7
	$(INSTALL) -m 644 $(MANUAL)/kinlock.bash $(DESTDIR)$(BASHDIR)/kinlock
	$(INSTALL) -m 644 $(MANUAL)/_kinlock $(DESTDIR)$(ZSHDIR)
	$(INSTALL) -m 644 $(MANUAL)/kinlock.fish $(DESTDIR)$(FISHDIR)

install-preload: $(RELEASE)/$(PRELOAD)
	$(call stripped,$(PRELOAD),$(PRIVATEDIR))
	chmod 644 $(DESTDIR)$(PRIVATEDIR)/$(PRELOAD)

install-c:
	$(MAKE) -C lib/c install

uninstall:
	$(MAKE) -C lib/c uninstall
	rm -rf $(DESTDIR)$(PRIVATEDIR)
	rm -f $(DESTDIR)$(BINDIR)/kinlock $(DESTDIR)$(BINDIR)/.debug/kinlock.debug \
		$(DESTDIR)$(MANDIR)/man1/kinlock.1 $(DESTDIR)$(MANDIR)/man1/kinlock-*.1 \
		$(DESTDIR)$(MANDIR)/man7/kinlock.7 $(DESTDIR)$(BASHDIR)/kinlock \
		$(DESTDIR)$(ZSHDIR)/_kinlock $(DESTDIR)$(FISHDIR)/kinlock.fish
	-rmdir --ignore-fail-on-non-empty $(DESTDIR)$(BINDIR)/.debug
