// SPDX-License-Identifier: Apache-2.0

// Command dns is an authoritative name server for one zone, read from a file when it starts: the DNS service of the
// edge network of the CETIC study of 2018, written anew on github.com/miekg/dns. It serves UDP and TCP.
//
//	dns [-listen :53] [-log-queries] ZONE-FILE
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"os"
	"time"

	"coracle/edge/internal/service"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
)

const (
	// maxConnections bounds the TCP connections open at one time.
	maxConnections = 1000
	// maxQueries bounds the queries of one TCP connection.
	maxQueries = 1000
	// idleTimeout and ioTimeout bound how long a TCP connection may be silent, or slow.
	idleTimeout = 10 * time.Second
	ioTimeout   = 2 * time.Second
)

func main() {
	listen := flag.String("listen", ":53", "address of UDP and TCP")
	logQueries := flag.Bool("log-queries", false, "log each query")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	service.Main("dns", func(stop context.Context) error {
		zone, err := readZone(flag.Arg(0))
		if err != nil {
			return err
		}
		answers := &handler{zone: zone}
		if *logQueries {
			answers.queries = slog.Default()
		}
		return run(stop, *listen, answers, nil)
	})
}

// run serves on address until stop is done. It calls ready, if given, with the address it listens on.
func run(stop context.Context, address string, answers *handler, ready func(net.Addr)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer listener.Close()
	// The same port, also where the system chose it.
	packets, err := net.ListenPacket("udp", listener.Addr().String())
	if err != nil {
		return err
	}
	defer packets.Close()
	servers := []*dns.Server{
		{PacketConn: packets, Handler: answers, UDPSize: dns.DefaultMsgSize},
		{
			Listener: netutil.LimitListener(listener, maxConnections), Handler: answers, MaxTCPQueries: maxQueries,
			ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, IdleTimeout: func() time.Duration { return idleTimeout },
		},
	}
	ended := make(chan error, len(servers))
	for _, server := range servers {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- server.ActivateAndServe() }()
		select {
		case <-started:
		case err := <-ended:
			return err
		}
	}
	slog.Info("serving", "zone", answers.zone.origin, "names", len(answers.zone.nodes), "address", listener.Addr().String())
	if ready != nil {
		ready(listener.Addr())
	}
	select {
	case err := <-ended:
		return err
	case <-stop.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), service.ShutdownGrace)
	defer cancel()
	return errors.Join(servers[0].ShutdownContext(grace), servers[1].ShutdownContext(grace))
}
