// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// server is a service with a dial for everything that goes wrong with services.
type server struct {
	burner     burner
	hoard      hoard
	work       atomic.Int64 // processor time per request, nanoseconds
	latency    histogram
	step       atomic.Int64 // wall time of the last training step, nanoseconds
	requests   atomic.Uint64
	draining   atomic.Bool
	deployment string
}

func serve(arguments []string) int {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	listen := flags.String("listen", ":8000", "address to answer on")
	burn := flags.Int64("burn-millicores", 0, "processor demand beside requests")
	flap := flags.Duration("flap", 0, "switch that demand off and on again, so long each; 0: never")
	work := flags.Duration("work", 5*time.Millisecond, "processor time per request")
	memory := flags.Int64("memory-mib", 8, "memory held from the start")
	grow := flags.Int64("grow-mib-per-minute", 0, "memory growth from the start")
	step := flags.Duration("train-step", 20*time.Millisecond, "processor time of a training step; 0: none")
	every := flags.Duration("train-every", 2*time.Second, "time between two training steps")
	linger := flags.Duration("linger", 2*time.Second, "time between the end signal and closing the door")
	_ = flags.Parse(arguments)

	s := &server{deployment: os.Getenv("DEPLOYMENT")}
	s.work.Store(int64(*work))
	s.burner.millicores.Store(*burn)
	s.hoard.growBy(*grow)
	if err := s.hoard.resize(*memory); err != nil {
		fmt.Fprintf(os.Stderr, "workload serve: taking %d MiB: %v\n", *memory, err)
		return 1
	}
	s.burner.run(runtime.NumCPU())
	if *flap > 0 {
		go s.burner.flap(*burn, *flap)
	}
	go s.hoard.run()
	if *step > 0 {
		go s.train(*step, *every)
	}
	door := &http.Server{Addr: *listen, Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	closed := make(chan struct{})
	go s.closeWhenTold(door, *linger, closed)
	if err := door.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Fprintf(os.Stderr, "workload serve: listening on %s: %v\n", *listen, err)
		return 1
	}
	<-closed
	return 0
}

// closeWhenTold stays ready to answer while endpoints are being taken away, then finishes what is open.
func (s *server) closeWhenTold(door *http.Server, linger time.Duration, closed chan<- struct{}) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	s.draining.Store(true)
	time.Sleep(linger)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = door.Shutdown(ctx)
	close(closed)
}

// train repeats a step of fixed work; how long it takes is what a throttled trainer feels.
func (s *server) train(work, every time.Duration) {
	for range time.Tick(every) {
		started := time.Now()
		spin(work)
		s.step.Store(int64(time.Since(started)))
	}
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.answer)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("POST /burn", s.dial("millicores", func(n int64) error { s.burner.millicores.Store(n); return nil }))
	mux.HandleFunc("POST /memory", s.dial("mib", s.hoard.resize))
	mux.HandleFunc("POST /grow", s.dial("mib_per_minute", func(n int64) error { s.hoard.growBy(n); return nil }))
	mux.HandleFunc("POST /work", s.dial("microseconds", func(n int64) error {
		s.work.Store(n * int64(time.Microsecond))
		return nil
	}))
	return mux
}

func (s *server) answer(w http.ResponseWriter, _ *http.Request) {
	started := time.Now()
	spin(time.Duration(s.work.Load()))
	s.requests.Add(1)
	s.latency.observe(time.Since(started))
	fmt.Fprintln(w, "done")
}

func (s *server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// dial turns one whole number of the query into a change of behavior.
func (s *server) dial(name string, set func(int64) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
		if err != nil || value < 0 || value > 1<<40 {
			http.Error(w, fmt.Sprintf("%s must be a whole number from 0 on, but got %q", name, r.URL.Query().Get(name)), http.StatusBadRequest)
			return
		}
		if err := set(value); err != nil {
			http.Error(w, err.Error(), http.StatusInsufficientStorage)
			return
		}
		fmt.Fprintf(w, "%s %d\n", name, value)
	}
}

func (s *server) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	label := ""
	if s.deployment != "" {
		label = fmt.Sprintf("deployment=%q,", s.deployment)
	}
	braces := ""
	if label != "" {
		braces = "{" + label[:len(label)-1] + "}"
	}
	s.latency.write(w, "workload_request_duration_seconds", "Time to answer a request.", label)
	sample(w, "counter", "workload_requests_total", "Requests answered.", braces, float64(s.requests.Load()))
	if step := s.step.Load(); step > 0 {
		sample(w, "gauge", "model_training_latency_seconds", "Wall time of the last training step.", braces, time.Duration(step).Seconds())
	}
	sample(w, "gauge", "workload_burn_millicores", "Processor demand beside requests.", braces, float64(s.burner.millicores.Load()))
	sample(w, "gauge", "workload_held_bytes", "Memory held on command.", braces, float64(s.hoard.size()*mebibyte))
}
