// SPDX-License-Identifier: Apache-2.0

// Package service is what the services of the edge network have in common: structured lines on standard error, and an
// orderly end at SIGTERM.
package service

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// ShutdownGrace bounds how long answers under way may take after SIGTERM.
const ShutdownGrace = 5 * time.Second

// Main runs a service until it ends or a signal ends it. Its error is logged, and makes exit status 1.
func Main(name string, run func(stop context.Context) error) {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(stop)
	cancel()
	if err != nil {
		slog.Error(name, "error", err)
		os.Exit(1)
	}
}
