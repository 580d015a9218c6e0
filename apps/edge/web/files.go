// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"net/http"
	"path"
)

// newHandler serves the files of a folder to GET and HEAD, whole or in ranges. A folder is served as its index.html;
// there are no listings.
func newHandler(files fs.FS) http.Handler {
	serve := http.FileServerFS(pages{files})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		serve.ServeHTTP(w, r)
	})
}

// pages is a folder in which a folder without index.html does not exist.
type pages struct{ fs.FS }

// Open opens a file, or a folder with an index.html.
func (p pages) Open(name string) (fs.File, error) {
	file, err := p.FS.Open(name)
	if err != nil {
		return nil, err
	}
	about, err := file.Stat()
	if err == nil && about.IsDir() {
		_, err = fs.Stat(p.FS, path.Join(name, "index.html"))
	}
	if err == nil && !about.IsDir() && !about.Mode().IsRegular() {
		err = errors.ErrUnsupported
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
