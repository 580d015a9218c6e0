// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"coracle/edge/internal/servicetest"
)

var testFiles = fstest.MapFS{
	"index.html":     {Data: []byte("<title>index</title>")},
	"digits.txt":     {Data: []byte("0123456789")},
	"sub/index.html": {Data: []byte("<title>sub</title>")},
	"bare/file.txt":  {Data: []byte("x")},
}

func TestAnswers(t *testing.T) {
	tests := []struct {
		name, method, path, ranges string
		status                     int
		want                       string
	}{
		{"page", "GET", "/", "", 200, "<title>index</title>"},
		{"page, headers", "HEAD", "/", "", 200, ""},
		{"file", "GET", "/digits.txt", "", 200, "0123456789"},
		{"range", "GET", "/digits.txt", "bytes=2-4", 206, "234"},
		{"end", "GET", "/digits.txt", "bytes=-3", 206, "789"},
		{"range behind the end", "GET", "/digits.txt", "bytes=20-", 416, "invalid range: failed to overlap\n"},
		{"folder", "GET", "/sub/", "", 200, "<title>sub</title>"},
		{"folder without index", "GET", "/bare/", "", 404, "404 page not found\n"},
		{"missing", "GET", "/x", "", 404, "404 page not found\n"},
		{"outside", "GET", "/../../etc/passwd", "", 404, "404 page not found\n"},
		{"post", "POST", "/", "", 405, "method not allowed\n"},
		{"post to nothing", "POST", "/x", "", 405, "method not allowed\n"},
		{"delete", "DELETE", "/digits.txt", "", 405, "method not allowed\n"},
	}
	handler := newHandler(testFiles)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request := httptest.NewRequest(test.method, test.path, nil)
			if test.ranges != "" {
				request.Header.Set("Range", test.ranges)
			}
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			if recorder.Code != test.status || recorder.Body.String() != test.want {
				t.Errorf("got %d %q, want %d %q", recorder.Code, recorder.Body, test.status, test.want)
			}
			if allowed := recorder.Header().Get("Allow"); (allowed == "GET, HEAD") != (test.status == 405) {
				t.Errorf("Allow: %q", allowed)
			}
		})
	}
}

// start serves a folder and answers its address.
func start(t *testing.T, folder string) string {
	t.Helper()
	return servicetest.Start(t, func(stop context.Context, ready func(net.Addr)) error {
		return run(stop, "127.0.0.1:0", folder, ready)
	})
}

func TestServesThePageAgainAndAgainOnOneConnection(t *testing.T) {
	connection, err := net.Dial("tcp", start(t, "www"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	reader := bufio.NewReader(connection)
	for range 3 {
		if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), "<h1>Edge network</h1>") {
			t.Fatalf("%s %q %v", response.Status, body, err)
		}
	}
}

func TestLinksDoNotLeadOut(t *testing.T) {
	folder := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "out")); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + start(t, folder) + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		t.Error("a link out of the folder was followed")
	}
}

func TestOversizedHeadersAreRefused(t *testing.T) {
	request, err := http.NewRequest("GET", "http://"+start(t, "www")+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Long", strings.Repeat("x", 2*maxHeaderBytes))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %s", response.Status)
	}
}

func TestReportsWhatIsMissing(t *testing.T) {
	if err := run(context.Background(), "127.0.0.1:0", "missing", nil); err == nil {
		t.Error("no error although the folder is missing")
	}
	if err := run(context.Background(), "256.0.0.1:0", "www", nil); err == nil {
		t.Error("no error although the address is wrong")
	}
}
