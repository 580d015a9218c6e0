// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const listBody = `[{"name":"Write presentation","completed":false,"due":"0001-01-01T00:00:00Z"},` +
	`{"name":"Host meetup","completed":false,"due":"0001-01-01T00:00:00Z"},` +
	`{"name":"Run tests","completed":false,"due":"0001-01-01T00:00:00Z"},` +
	`{"name":"Stand in traffic","completed":false,"due":"0001-01-01T00:00:00Z"},` +
	`{"name":"Learn Go","completed":false,"due":"0001-01-01T00:00:00Z"}]` + "\n"

func TestResponses(t *testing.T) {
	first := `{"name":"Write presentation","completed":false,"due":"0001-01-01T00:00:00Z"}` + "\n"
	last := `{"name":"Learn Go","completed":false,"due":"0001-01-01T00:00:00Z"}` + "\n"
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"welcome", "GET", "/", "", 200, "Welcome!\n"},
		{"list", "GET", "/todos", "", 200, listBody},
		{"first", "GET", "/todos/0", "", 200, first},
		{"last", "GET", "/todos/4", "", 200, last},
		{"unknown id", "GET", "/todos/5", "", 200, "Todo not found: 5"},
		{"negative id", "GET", "/todos/-1", "", 200, "Todo not found: -1"},
		{"not a number", "GET", "/todos/abc", "", 200, first},
		{"unknown path", "GET", "/other", "", 404, "404 page not found\n"},
		{"wrong method", "POST", "/todos", "", 405, "Method Not Allowed\n"},
		{"sort", "POST", "/sort", "[3,1,2,-5]", 200, "[-5,1,2,3]\n"},
		{"sort none", "POST", "/sort", "[]", 200, "[]\n"},
		{"sort null", "POST", "/sort", "null", 200, "[]\n"},
		{"sort by GET", "GET", "/sort", "", 405, "Method Not Allowed\n"},
	}
	handler := newHandler()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
			if recorder.Code != test.status || recorder.Body.String() != test.want {
				t.Errorf("got %d %q, want %d %q", recorder.Code, recorder.Body, test.status, test.want)
			}
		})
	}
}

func TestSortRefusesBadBodies(t *testing.T) {
	tests := map[string]struct {
		body   string
		status int
	}{
		"not JSON":       {"3,1,2", http.StatusBadRequest},
		"not an array":   {`{"a":1}`, http.StatusBadRequest},
		"not integers":   {"[1.5]", http.StatusBadRequest},
		"empty":          {"", http.StatusBadRequest},
		"over the limit": {"[" + strings.Repeat("1,", maxSortBytes/2) + "1]", http.StatusRequestEntityTooLarge},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			newHandler().ServeHTTP(recorder, httptest.NewRequest("POST", "/sort", strings.NewReader(test.body)))
			if recorder.Code != test.status {
				t.Errorf("got %d %q, want %d", recorder.Code, recorder.Body, test.status)
			}
		})
	}
}

func TestBubbleSort(t *testing.T) {
	for _, length := range []int{0, 1, 2, 3, 100} {
		t.Run(strconv.Itoa(length), func(t *testing.T) {
			descending := make([]int, length)
			for i := range descending {
				descending[i] = length - i
			}
			want := slices.Clone(descending)
			slices.Sort(want)
			bubbleSort(descending)
			if !slices.Equal(descending, want) {
				t.Errorf("got %v, want %v", descending, want)
			}
		})
	}
}

func TestRunServesAndStops(t *testing.T) {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	probe.Close()

	stop, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(stop, address) }()

	var answer string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		response, err := http.Get("http://" + address + "/")
		if err != nil {
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		answer = string(body)
		break
	}
	if answer != "Welcome!\n" {
		t.Errorf("got %q", answer)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func TestRunReportsPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := run(context.Background(), taken.Addr().String()); err == nil {
		t.Error("no error although the port is in use")
	}
}
