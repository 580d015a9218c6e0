// SPDX-License-Identifier: Apache-2.0

// A Go program with C in it, so dynamic: the C library's threads, names and environment below Go's run-time.
// It checks itself; what it prints is the same on every system.
package main

/*
#cgo CFLAGS: -std=gnu17 -O2 -Wall -Wextra -Werror
#include <stdlib.h>
#include "threads.h"
*/
import "C"

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	threads = 8
	calls   = 500
	// The most anything here may take on a busy machine.
	limit = 60 * time.Second
)

var visited [threads]atomic.Int64

//export goVisit
func goVisit(index C.int) {
	// A fault of Go code on a thread of C becomes a panic, which must not leave this function.
	defer func() {
		if recover() != nil {
			visited[index].Add(1)
		}
	}()
	var nowhere *int
	*nowhere = int(index)
}

//export goSquare
func goSquare(i C.int) C.int64_t {
	return C.int64_t(i) * C.int64_t(i)
}

func main() {
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"callbacks from Go threads", callbacks},
		{"callbacks from C threads", callbacksFromThreads},
		{"signals from C threads", signals},
		{"environment of C", environment},
		{"names by the C library", names},
		{"users by the C library", users},
		{"profiles under load", profiles},
	} {
		if err := part.run(); err != nil {
			fmt.Printf("%s: %v\n", part.name, err)
			os.Exit(1)
		}
		fmt.Printf("%s: ok\n", part.name)
	}
}

// Many goroutines are in C at the same time and come back to Go from there.
func callbacks() error {
	const count = 200
	want := int64((count - 1) * count * (2*count - 1) / 6)
	var group sync.WaitGroup
	var wrong atomic.Int64
	for range 16 {
		group.Go(func() {
			for range 20 {
				if int64(C.walk(count)) != want {
					wrong.Add(1)
				}
			}
		})
	}
	group.Wait()
	if n := wrong.Load(); n != 0 {
		return fmt.Errorf("%d wrong sums", n)
	}
	return nil
}

func callbacksFromThreads() error {
	if code := C.visit_from_threads(threads, calls); code != 0 {
		return syscall.Errno(code)
	}
	for i := range visited {
		if n := visited[i].Load(); n != calls {
			return fmt.Errorf("thread %d: %d calls recovered, want %d", i, n, calls)
		}
	}
	return nil
}

// Go's handlers run on threads that Go did not make, on a signal stack that Go gives them.
func signals() error {
	own, other := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(own, syscall.SIGUSR1)
	signal.Notify(other, syscall.SIGUSR2)
	defer signal.Stop(own)
	defer signal.Stop(other)
	for range 50 {
		if code := C.signal_from_thread(C.int(syscall.SIGUSR1), C.int(syscall.SIGUSR2)); code != 0 {
			return syscall.Errno(code)
		}
		for _, channel := range []chan os.Signal{own, other} {
			select {
			case <-channel:
			case <-time.After(limit):
				return fmt.Errorf("a signal did not come")
			}
		}
	}
	return nil
}

// With cgo os.Setenv sets the variable in the C library too.
func environment() error {
	if err := os.Setenv("CORACLE_CGO", "both"); err != nil {
		return err
	}
	name := C.CString("CORACLE_CGO")
	defer C.free(unsafe.Pointer(name))
	if got := C.GoString(C.getenv(name)); got != "both" {
		return fmt.Errorf("getenv says %q", got)
	}
	return nil
}

// The build tag netcgo sends every look-up through getaddrinfo and getnameinfo.
func names() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, "localhost")
	if err != nil {
		return err
	}
	if !slices.Contains(addresses, "127.0.0.1") {
		return fmt.Errorf("localhost is %v", addresses)
	}
	back, err := net.DefaultResolver.LookupAddr(ctx, "127.0.0.1")
	if err != nil {
		return err
	}
	if !slices.Contains(back, "localhost") {
		return fmt.Errorf("127.0.0.1 is %v", back)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", "http")
	if err != nil {
		return err
	}
	if port != 80 {
		return fmt.Errorf("http is port %d", port)
	}
	return nil
}

func users() error {
	root, err := user.Lookup("root")
	if err != nil {
		return err
	}
	if root.Uid != "0" || root.Gid != "0" {
		return fmt.Errorf("root is %s:%s", root.Uid, root.Gid)
	}
	group, err := user.LookupGroupId("0")
	if err != nil {
		return err
	}
	if group.Name != "root" {
		return fmt.Errorf("group 0 is %s", group.Name)
	}
	return nil
}
