// SPDX-License-Identifier: Apache-2.0
//
// A measurement is a function that does something `n` times; what it costs once is what is printed.
#ifndef COST_H
#define COST_H

#include <stdint.h>
#include <stdnoreturn.h>

struct measurement {
    // The metric, ending in `_ns`.
    const char *name;
    // Does it `n` times.
    void (*work)(long n);
    // How many things one turn of `work` counts for: a round trip is two switches. 0 stands for 1.
    int parts;
};

// Ended by one without a name.
extern const struct measurement call_measurements[], memory_measurements[], thread_measurements[], socket_measurements[];

// Nanoseconds since some moment.
int64_t now_ns(void);

// Ends the program with what went wrong, unless `right`.
void check(int right, const char *what);

// The path of a file of at least 4 KiB that is there everywhere: this program.
extern const char *own_path;

#endif
