// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"time"
)

// todo is one entry of the list; the field order is that of the published
// response bodies.
type todo struct {
	Name      string    `json:"name"`
	Completed bool      `json:"completed"`
	Due       time.Time `json:"due"`
}

// todos is the fixed content of the service.
var todos = []todo{
	{Name: "Write presentation"},
	{Name: "Host meetup"},
	{Name: "Run tests"},
	{Name: "Stand in traffic"},
	{Name: "Learn Go"},
}

// maxSortBytes bounds the body of POST /sort: the study sorts 20 000 numbers,
// about 120 kB; one mebibyte keeps the quadratic sort from running for hours.
const maxSortBytes = 1 << 20

// newHandler returns the routes of the service.
func newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /todos", list)
	mux.HandleFunc("GET /todos/{id}", show)
	mux.HandleFunc("POST /sort", sortNumbers)
	return mux
}

// index answers GET /.
func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, "Welcome!\n")
}

// list answers GET /todos with the whole list.
func list(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, todos)
}

// show answers GET /todos/{id}; ids count from 0. As published, an id that is
// not a number means 0, and an unknown one is reported with status 200.
func show(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		id = 0
	}
	if id < 0 || id >= len(todos) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "Todo not found: %d", id)
		return
	}
	writeJSON(w, todos[id])
}

// sortNumbers answers POST /sort: a JSON array of integers in, sorted out.
func sortNumbers(w http.ResponseWriter, r *http.Request) {
	var numbers []int
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSortBytes))
	if err := body.Decode(&numbers); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			http.Error(w, fmt.Sprintf("body exceeds %d bytes", tooLarge.Limit), http.StatusRequestEntityTooLarge)
			return
		}
		http.Error(w, "want a JSON array of integers: "+err.Error(), http.StatusBadRequest)
		return
	}
	if numbers == nil { // the body was "null"
		numbers = []int{}
	}
	bubbleSort(numbers)
	writeJSON(w, numbers)
}

// bubbleSort sorts in place: the classic double loop with a swap and no early
// exit, so its work depends on the length alone.
func bubbleSort(numbers []int) {
	for end := len(numbers) - 1; end > 0; end-- {
		for i := 0; i < end; i++ {
			if numbers[i] > numbers[i+1] {
				numbers[i], numbers[i+1] = numbers[i+1], numbers[i]
			}
		}
	}
}

// writeJSON sends value as compact JSON and a newline.
func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Printf("write response: %v", err)
	}
}
