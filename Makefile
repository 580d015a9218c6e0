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

# xtask is Rust itself, so what it takes to compile it cannot be installed by it.
rust:
	@missing=(); \
	command -v cc >/dev/null || missing+=(gcc libc6-dev); \
	if ! command -v cargo >/dev/null && ! command -v rustup >/dev/null; then \
	    command -v curl >/dev/null || missing+=(curl ca-certificates); \
	fi; \
	if [ $${#missing[@]} -gt 0 ]; then \
	    echo "installing $${missing[*]}"; \
	    $(SUDO) apt-get update -qq && \
	    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$${missing[@]}" >/dev/null || exit 1; \
	fi; \
	if ! command -v cargo >/dev/null; then \
	    echo "installing Rust through rustup (https://rustup.rs)"; \
	    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | \
	        sh -s -- -y --quiet --no-modify-path --profile minimal --default-toolchain none || exit 1; \
	fi
