// SPDX-License-Identifier: Apache-2.0

// Package servicetest starts services in tests.
package servicetest

import (
	"context"
	"net"
	"testing"
)

// Start runs a service until the test ends, and answers the address that it says it listens on. A service that does not
// start, or does not stop in order, fails the test.
func Start(t *testing.T, run func(stop context.Context, ready func(net.Addr)) error) string {
	t.Helper()
	stop, cancel := context.WithCancel(context.Background())
	address, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- run(stop, func(at net.Addr) { address <- at.String() })
	}()
	select {
	case at := <-address:
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("shutdown: %v", err)
			}
		})
		return at
	case err := <-done:
		cancel()
		t.Fatal(err)
		return ""
	}
}
