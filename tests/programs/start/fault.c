// SPDX-License-Identifier: Apache-2.0
//
// A library whose functions fail in different ways.
#include <stdlib.h>
#include <string.h>

void library_writes_to(volatile int *at);
int library_recurses(int depth);
void library_aborts(void);

__attribute__((noinline)) void library_writes_to(volatile int *at) { *at = 1; }

__attribute__((noinline)) int library_recurses(int depth) {
    volatile char room[4096];
    memset((char *)room, depth, sizeof room);
    return depth < 0 ? 0 : library_recurses(depth + 1) + room[depth % 4096];
}

__attribute__((noinline)) void library_aborts(void) { abort(); }
