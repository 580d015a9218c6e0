// SPDX-License-Identifier: Apache-2.0

// holder is an HTTP client that holds many connections open while a few of them work. It answers the question whether
// idle connections cost a server throughput.
//
//	holder -address HOST:PORT [-path /] [-open 2000] [-active 100] [-seconds 10] [-json]
//
// It measures requests/s of the active connections alone, then opens the others, measures again, and asks every idle
// connection for one request at the end. Exit status 1 if any connection failed.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const requestTimeout = 20 * time.Second

type client struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
}

func dial(address, path string) (*client, error) {
	conn, err := net.DialTimeout("tcp", address, requestTimeout)
	if err != nil {
		return nil, err
	}
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, address)
	return &client{conn, bufio.NewReader(conn), []byte(request)}, nil
}

// do sends one request and reads the whole answer, which must be 200 with a Content-Length.
func (c *client) do() error {
	if err := c.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	text := textproto.NewReader(c.reader)
	status, err := text.ReadLine()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return fmt.Errorf("unexpected answer %q", status)
	}
	header, err := text.ReadMIMEHeader()
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	if err != nil {
		return errors.New("answer without Content-Length")
	}
	_, err = io.CopyN(io.Discard, c.reader, size)
	return err
}

// figure is one measurement; latencies in microseconds.
type figure struct {
	Open     int     `json:"open"`
	Active   int     `json:"active"`
	Requests int     `json:"requests"`
	Rate     float64 `json:"requests_per_s"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
}

func measure(active []*client, open int, duration time.Duration) (figure, error) {
	var group sync.WaitGroup
	samples := make([][]time.Duration, len(active))
	failures := make([]error, len(active))
	start := time.Now()
	for i, c := range active {
		group.Go(func() {
			for time.Since(start) < duration {
				begin := time.Now()
				if err := c.do(); err != nil {
					failures[i] = err
					return
				}
				samples[i] = append(samples[i], time.Since(begin))
			}
		})
	}
	group.Wait()
	spent := time.Since(start)
	sorted := slices.Concat(samples...)
	if err := errors.Join(failures...); err != nil {
		return figure{}, err
	}
	slices.Sort(sorted)
	at := func(share float64) float64 {
		return float64(sorted[int(share*float64(len(sorted)-1))].Nanoseconds()) / 1000
	}
	return figure{open, len(active), len(sorted), float64(len(sorted)) / spent.Seconds(), at(0.5), at(0.99)}, nil
}

// openAll opens n connections, a few at a time, and makes one request on each.
func openAll(n int, address, path string) ([]*client, error) {
	clients := make([]*client, n)
	failures := make([]error, n)
	slots := make(chan struct{}, 32)
	var group sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			c, err := dial(address, path)
			if err == nil {
				err = c.do()
			}
			clients[i], failures[i] = c, err
		})
	}
	group.Wait()
	return clients, errors.Join(failures...)
}

func run(address, path string, open, active int, duration time.Duration, asJSON bool) error {
	working, err := openAll(active, address, path)
	if err != nil {
		return fmt.Errorf("opening the active connections: %w", err)
	}
	alone, err := measure(working, active, duration)
	if err != nil {
		return fmt.Errorf("%d connections alone: %w", active, err)
	}
	begin := time.Now()
	idle, err := openAll(open-active, address, path)
	if err != nil {
		return fmt.Errorf("opening the idle connections: %w", err)
	}
	opened := time.Since(begin)
	beside, err := measure(working, open, duration)
	if err != nil {
		return fmt.Errorf("%d connections beside idle ones: %w", active, err)
	}
	for i, c := range idle {
		if err := c.do(); err != nil {
			return fmt.Errorf("idle connection %d of %d was lost: %w", i+1, len(idle), err)
		}
	}
	ratio := beside.Rate / alone.Rate
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"alone": alone, "beside_idle": beside, "ratio": ratio, "opening_s": opened.Seconds()})
	}
	fmt.Printf("%-8s %-8s %10s %12s %10s %10s\n", "open", "active", "requests", "requests/s", "p50 us", "p99 us")
	for _, f := range []figure{alone, beside} {
		fmt.Printf("%-8d %-8d %10d %12.0f %10.0f %10.0f\n", f.Open, f.Active, f.Requests, f.Rate, f.P50, f.P99)
	}
	fmt.Printf("ratio %.3f; %d idle connections opened in %.2f s and all alive at the end\n", ratio, len(idle), opened.Seconds())
	return nil
}

func main() {
	address := flag.String("address", "", "HOST:PORT of the server")
	path := flag.String("path", "/", "path to ask for")
	open := flag.Int("open", 2000, "connections open in all, at most 20000")
	active := flag.Int("active", 100, "connections that work")
	seconds := flag.Float64("seconds", 10, "duration of each of the two measurements, at most 3600")
	asJSON := flag.Bool("json", false, "print one JSON object")
	flag.Parse()
	if *address == "" || flag.NArg() > 0 || *active < 1 || *open < *active || *open > 20000 || *seconds <= 0 || *seconds > 3600 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*address, *path, *open, *active, time.Duration(*seconds*float64(time.Second)), *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		os.Exit(1)
	}
}
