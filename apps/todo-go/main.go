// SPDX-License-Identifier: Apache-2.0

// Command todo-go is the to-do REST service of Goethals et al. 2018, Go
// column, written anew on the standard library. It knows nothing of the
// kernel it runs on: the same binary is measured on Linux and as a unikernel.
package main

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// defaultPort is the port of the published service.
const defaultPort = "8080"

// shutdownGrace bounds how long running requests may take after SIGTERM.
const shutdownGrace = 5 * time.Second

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = defaultPort
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := run(stop, net.JoinHostPort("", port)); err != nil {
		log.Fatalf("todo-go: %v", err)
	}
}

// run serves on address until stop is done, then finishes the requests under
// way. It returns nil after an orderly shutdown.
func run(stop context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           newHandler(),
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Printf("listening on %s", listener.Addr())

	select {
	case err := <-served:
		return err
	case <-stop.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
