// SPDX-License-Identifier: Apache-2.0

// Command web serves the files of a folder by HTTP: the web service of the edge network of the CETIC study of 2018,
// written anew on the standard library.
//
//	web [-listen :80] FOLDER
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"coracle/edge/internal/service"
)

const (
	// headerTimeout bounds how long a client may take for a request's headers, idleTimeout how long it may be silent
	// between requests.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// maxHeaderBytes bounds a request's headers.
	maxHeaderBytes = 16 << 10
)

func main() {
	listen := flag.String("listen", ":80", "address")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	service.Main("web", func(stop context.Context) error {
		return run(stop, *listen, flag.Arg(0), nil)
	})
}

// run serves the folder on address until stop is done. It calls ready, if given, with the address it listens on.
func run(stop context.Context, address, folder string, ready func(net.Addr)) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           newHandler(root.FS()),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	slog.Info("serving", "folder", folder, "address", listener.Addr().String())
	if ready != nil {
		ready(listener.Addr())
	}
	select {
	case err := <-served:
		return err
	case <-stop.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), service.ShutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
