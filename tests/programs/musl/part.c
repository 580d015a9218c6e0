// SPDX-License-Identifier: Apache-2.0
//
// A library that musl.c loads: thread-local data of its own, and a function looked up by name.
static _Thread_local long sum = 100;

long add(long by) { return sum += by; }
