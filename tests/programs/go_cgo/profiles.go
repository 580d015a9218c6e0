// SPDX-License-Identifier: Apache-2.0

package main

// #include "threads.h"
import "C"

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof"
	"strconv"
	"sync"
)

// A profile of processor time comes from timers and signals of each thread; it must know what ran.
const profile = "/debug/pprof/profile?seconds=2"

// Loads a service that works in C and in Go, while its profiles are read.
func profiles() error {
	http.HandleFunc("/mix", func(w http.ResponseWriter, r *http.Request) {
		seed, err := strconv.ParseUint(r.FormValue("seed"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, mixedTwice(seed))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// The handlers of net/http/pprof are in the default multiplexer.
	go func() { _ = http.Serve(listener, nil) }()
	base := "http://" + listener.Addr().String()

	done := make(chan struct{})
	failed := make(chan error, 4)
	var load sync.WaitGroup
	for client := range 4 {
		load.Go(func() { failed <- ask(base, uint64(client)+1, done) })
	}
	// One after the other: there is one profiler of each kind.
	reads := []error{
		readProfile(base),
		read(base, "/debug/pprof/goroutine?debug=1", "goroutine profile"),
		read(base, "/debug/pprof/heap?debug=1", "heap profile"),
		read(base, "/debug/pprof/threadcreate?debug=1", "threadcreate profile"),
		read(base, "/debug/pprof/trace?seconds=0.2", "go 1."),
	}
	close(done)
	load.Wait()
	for range 4 {
		reads = append(reads, <-failed)
	}
	return errors.Join(reads...)
}

// One half of the rounds in C, the other in Go.
func mixedTwice(seed uint64) uint64 {
	const rounds = 20_000
	return mixInGo(uint64(C.mix(C.uint64_t(seed), rounds)), rounds)
}

//go:noinline
func mixInGo(seed uint64, rounds int) uint64 {
	for range rounds {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
	}
	return seed
}

// Requests one after the other until done, each answer compared.
func ask(base string, seed uint64, done <-chan struct{}) error {
	want := strconv.FormatUint(mixedTwice(seed), 10)
	url := base + "/mix?seed=" + strconv.FormatUint(seed, 10)
	for {
		select {
		case <-done:
			return nil
		default:
		}
		if got, err := get(url); err != nil {
			return err
		} else if string(got) != want {
			return fmt.Errorf("answer %q, want %s", got, want)
		}
	}
}

func readProfile(base string) error {
	packed, err := get(base + profile)
	if err != nil {
		return err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		return err
	}
	// Names of functions stand in it as they are, if samples hit them.
	for _, name := range []string{"main.mixInGo", "main.mixedTwice"} {
		if !bytes.Contains(text, []byte(name)) {
			return fmt.Errorf("the profile has no sample in %s", name)
		}
	}
	return nil
}

func read(base, path, start string) error {
	text, err := get(base + path)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(text, []byte(start)) {
		return fmt.Errorf("%s begins with %.40q", path, text)
	}
	return nil
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: limit}
	answer, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return text, err
}
