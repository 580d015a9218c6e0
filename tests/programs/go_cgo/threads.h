// SPDX-License-Identifier: Apache-2.0
//
// What the C half offers to the Go half.
#pragma once

#include <stdint.h>

// Starts `threads` threads of C that call Go `calls` times each with their index; waits for their end. 0, or the
// error of pthread_create.
int visit_from_threads(int threads, int calls);

// From a thread of C with a small stack of its own: the signal to that thread itself, then the other to the process.
// 0, or an error number.
int signal_from_thread(int own, int other);

// A walk over `count` numbers in C that calls Go for each; the sum of what Go answered.
int64_t walk(int count);

// A mixing of bits that takes a little time.
uint64_t mix(uint64_t seed, int rounds);
