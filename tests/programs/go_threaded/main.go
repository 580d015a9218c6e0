// SPDX-License-Identifier: Apache-2.0

// go_threaded exercises what Go's runtime asks of a kernel: threads and futexes (goroutines, mutexes, channels), signals
// (preemption of busy loops, nil dereference turned into a panic), memory (garbage collection), timers and the network
// poller (over pipes). Every part has a result known in advance. The last line is "go_threaded: ok"; exit status 1 else.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

var failed bool

func part(name string, got, wanted int64) {
	verdict := "as expected"
	if got != wanted {
		verdict = fmt.Sprintf("WRONG, %d was expected", wanted)
		failed = true
	}
	fmt.Printf("%-20s %d %s\n", name, got, verdict)
}

// all runs n goroutines and waits for them.
func all(n int, body func(id int)) {
	var group sync.WaitGroup
	for id := range n {
		group.Go(func() { body(id) })
	}
	group.Wait()
}

func mutexes() int64 {
	var mutex sync.Mutex
	var sum int64
	all(16, func(int) {
		for i := range int64(1000) {
			mutex.Lock()
			sum += i
			mutex.Unlock()
		}
	})
	return sum
}

func channels() int64 {
	numbers, squares := make(chan int64), make(chan int64, 4)
	go func() {
		for i := range int64(2000) {
			numbers <- i
		}
		close(numbers)
	}()
	go func() {
		all(8, func(int) {
			for n := range numbers {
				squares <- n * n
			}
		})
		close(squares)
	}()
	var sum int64
	for s := range squares {
		sum += s
	}
	return sum
}

func condition() int64 {
	var mutex sync.Mutex
	turn := sync.NewCond(&mutex)
	var count int64
	all(4, func(id int) {
		for range 100 {
			mutex.Lock()
			for count%4 != int64(id) {
				turn.Wait()
			}
			count++
			turn.Broadcast()
			mutex.Unlock()
		}
	})
	return count
}

// busy needs preemption: more endless loops than processors, and no call inside them.
func busy() int64 {
	var stop atomic.Bool
	var running sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for !stop.Load() {
			}
		})
	}
	var ticks int64
	ticker := time.NewTicker(2 * time.Millisecond)
	for range 5 {
		<-ticker.C
		ticks++
	}
	runtime.GC() // stops the world: every loop must be interrupted
	stop.Store(true)
	running.Wait()
	return ticks
}

type node struct {
	left, right *node
	payload     [40]byte
}

func grow(depth int) *node {
	if depth == 0 {
		return nil
	}
	return &node{left: grow(depth - 1), right: grow(depth - 1), payload: [40]byte{byte(depth)}}
}

func (n *node) count() int64 {
	if n == nil {
		return 0
	}
	if n.payload[0] == 0 {
		return -1 << 40
	}
	return 1 + n.left.count() + n.right.count()
}

func garbage() int64 {
	var nodes atomic.Int64
	all(4, func(int) {
		kept := grow(10)
		for range 10 {
			nodes.Add(grow(9).count())
		}
		nodes.Add(kept.count())
	})
	debug.FreeOSMemory() // madvise
	return nodes.Load()
}

func manyGoroutines() int64 {
	var sum atomic.Int64
	all(10000, func(id int) {
		runtime.Gosched()
		sum.Add(int64(id))
	})
	return sum.Load()
}

func lockedThreads() int64 {
	var sum atomic.Int64
	all(20, func(int) {
		runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
		time.Sleep(time.Millisecond)
		sum.Add(1)
	})
	return sum.Load()
}

func recovered() (count int64) {
	for range 50 {
		func() {
			defer func() {
				if recover() != nil {
					count++
				}
			}()
			var nothing *node
			nothing.payload[3] = 1
		}()
	}
	return count
}

func deepStacks() int64 {
	var down func(depth int64) int64
	down = func(depth int64) int64 {
		var frame [200]byte
		frame[depth%200] = 1
		if depth == 0 {
			return 0
		}
		return down(depth-1) + int64(frame[depth%200])
	}
	var sum atomic.Int64
	all(4, func(int) { sum.Add(down(5000)) })
	return sum.Load()
}

func timers() int64 {
	var fired atomic.Int64
	all(100, func(id int) {
		wanted := time.Duration(id%10) * time.Millisecond
		start := time.Now()
		select {
		case <-time.After(wanted):
			if time.Since(start) >= wanted {
				fired.Add(1)
			}
		case <-time.After(time.Minute):
		}
	})
	return fired.Load()
}

func pipes() int64 {
	reader, writer, err := os.Pipe()
	if err != nil {
		fmt.Fprintln(os.Stderr, "go_threaded: pipe:", err)
		return -1
	}
	go func() {
		for i := range 1000 {
			if _, err := writer.Write([]byte{byte(i), 1, 2, 3}); err != nil {
				break
			}
		}
		writer.Close()
	}()
	var total int64
	buffer := make([]byte, 256)
	for {
		n, err := reader.Read(buffer)
		total += int64(n)
		if err != nil {
			break
		}
	}
	reader.Close()
	return total
}

func main() {
	debug.SetGCPercent(20) // collect often
	part("mutexes", mutexes(), 16*499500)
	part("channels", channels(), 2664667000)
	part("condition variable", condition(), 400)
	part("busy loops", busy(), 5)
	part("garbage", garbage(), 4*(1023+10*511))
	part("many goroutines", manyGoroutines(), 49995000)
	part("locked threads", lockedThreads(), 20)
	part("recovered faults", recovered(), 50)
	part("deep stacks", deepStacks(), 20000)
	part("timers", timers(), 100)
	part("pipes", pipes(), 4000)
	if failed {
		fmt.Println("go_threaded: FAILED")
		os.Exit(1)
	}
	fmt.Println("go_threaded: ok")
}
