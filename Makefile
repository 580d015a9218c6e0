# SPDX-License-Identifier: Apache-2.0
#
# The front door: makes sure there is a Rust tool chain and a C linker, then hands over to `cargo xtask`.

SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)

# Empty for root, `sudo` otherwise.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: all demo test build setup clean rust

all: build

demo test build setup: rust
	cargo xtask $@

clean: rust
	cargo clean
	rm -rf build

# xtask is Rust itself, so what it takes to compile it cannot be installed by it. The distribution's rustup is preferred
# where there is one (Debian 13, Ubuntu 24.04); it installs the tool chain that rust-toolchain.toml names on first use.
rust:
	@set -euo pipefail; \
	apt_install() { \
	    echo "installing $$*"; \
	    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$$@" >/dev/null; \
	}; \
	cc=0; rust=0; \
	command -v cc >/dev/null || cc=1; \
	command -v cargo >/dev/null || rust=1; \
	[ $$cc$$rust = 00 ] || $(SUDO) apt-get update -qq; \
	[ $$cc = 0 ] || apt_install gcc libc6-dev; \
	if [ $$rust = 1 ] && apt-cache policy rustup | grep -q 'Candidate: [0-9]'; then \
	    apt_install rustup ca-certificates; \
	elif [ $$rust = 1 ]; then \
	    command -v curl >/dev/null || apt_install curl ca-certificates; \
	    echo "installing Rust through rustup (https://rustup.rs)"; \
	    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | \
	        sh -s -- -y --quiet --no-modify-path --profile minimal --default-toolchain none; \
	fi
