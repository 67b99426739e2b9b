// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tally is what became of every request that was due. Nothing is left out: due is the sum of the rest.
type tally struct {
	Due      uint64 `json:"due"`      // by the schedule, whether or not anybody was there to answer
	Answered uint64 `json:"answered"` // with success
	Refused  uint64 `json:"refused"`  // nobody listened, or no endpoint was known
	Failed   uint64 `json:"failed"`   // answered with an error, or cut off
	Late     uint64 `json:"late"`     // no answer in time
	Unsent   uint64 `json:"unsent"`   // too many were open: the offered load was not met

	FirstLostSeconds float64 `json:"first_lost_seconds"` // when the first that got no success was due; -1: none

	P50Ms float64 `json:"p50_ms"` // of answered requests, from when they were due
	P95Ms float64 `json:"p95_ms"`
	P99Ms float64 `json:"p99_ms"`
}

// stage is one stretch of constant load.
type stage struct {
	perSecond float64
	lasts     time.Duration
}

// generator offers requests by the clock, never waiting for answers: a slow service gets no mercy.
type generator struct {
	client    *http.Client
	endpoints atomic.Pointer[[]string]
	open      chan struct{}

	due, answered, refused, failed, late, unsent atomic.Uint64

	began     time.Time
	latency   histogram
	mutex     sync.Mutex
	took      []float64     // milliseconds
	firstLost time.Duration // since the beginning; negative: none was
}

func load(arguments []string) int {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	urls := flags.String("urls", "", "comma-separated addresses to ask, http://host:port/")
	service := flags.String("service", "", "namespace/name: ask the ready endpoints of this service instead")
	api := flags.String("api", "", "address of the API server, for -service")
	authority := flags.String("ca", "", "certificate authority of the API server, for -service")
	token := flags.String("token-file", "", "bearer token for the API server, for -service")
	shape := flags.String("shape", "10x30s", "stages of requests per second and length: 10x30s,40x2m")
	timeout := flags.Duration("timeout", 2*time.Second, "an answer after this is late")
	limit := flags.Int("open", 512, "requests that may be open at once")
	seed := flags.Uint64("seed", 0, "of the arrival times")
	listen := flags.String("listen", "", "address for /metrics while it runs")
	_ = flags.Parse(arguments)

	stages, err := stagesOf(*shape)
	if err != nil {
		fmt.Fprintf(os.Stderr, "workload load: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	g := &generator{
		client: &http.Client{
			Timeout:   *timeout,
			Transport: &http.Transport{MaxIdleConnsPerHost: *limit, IdleConnTimeout: 5 * time.Second},
		},
		open:      make(chan struct{}, *limit),
		firstLost: -1,
	}
	known := strings.FieldsFunc(*urls, func(r rune) bool { return r == ',' })
	g.endpoints.Store(&known)
	if *service != "" {
		watcher, err := newDirectory(*api, *authority, *token, *service)
		if err != nil {
			fmt.Fprintf(os.Stderr, "workload load: %v\n", err)
			return 2
		}
		watcher.refresh(g)
		go watcher.run(ctx, g)
	}
	if *listen != "" {
		go func() { _ = http.ListenAndServe(*listen, http.HandlerFunc(g.metrics)) }()
	}
	g.run(ctx, stages, rand.New(rand.NewPCG(*seed, 1)))
	answer, _ := json.Marshal(g.tally())
	fmt.Println(string(answer))
	return 0
}

// stagesOf reads "10x30s,40x2m".
func stagesOf(shape string) ([]stage, error) {
	var stages []stage
	for _, part := range strings.Split(shape, ",") {
		rate, length, found := strings.Cut(part, "x")
		perSecond, rateErr := strconv.ParseFloat(rate, 64)
		lasts, lengthErr := time.ParseDuration(length)
		if !found || rateErr != nil || lengthErr != nil || perSecond < 0 || perSecond > 100_000 || lasts <= 0 {
			return nil, fmt.Errorf("a stage must look like 10x30s (requests per second, length), but got %q", part)
		}
		stages = append(stages, stage{perSecond, lasts})
	}
	return stages, nil
}

// run sends every request at its own time. Arrivals are those of independent users: exponential gaps.
func (g *generator) run(ctx context.Context, stages []stage, random *rand.Rand) {
	var open sync.WaitGroup
	begins := time.Now()
	g.began = begins
	turn := 0
	for _, s := range stages {
		ends := begins.Add(s.lasts)
		at := begins
		for s.perSecond > 0 && ctx.Err() == nil {
			at = at.Add(time.Duration(random.ExpFloat64() / s.perSecond * float64(time.Second)))
			if at.After(ends) {
				break
			}
			wait(ctx, time.Until(at))
			if ctx.Err() != nil {
				break
			}
			g.due.Add(1)
			turn++
			select {
			case g.open <- struct{}{}:
				open.Add(1)
				go func(due time.Time, turn int) {
					defer open.Done()
					defer func() { <-g.open }()
					g.ask(due, turn)
				}(at, turn)
			default:
				g.unsent.Add(1)
				g.lost(at)
			}
		}
		wait(ctx, time.Until(ends))
		begins = ends
	}
	open.Wait()
}

func wait(ctx context.Context, rest time.Duration) {
	if rest <= 0 {
		return
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (g *generator) ask(due time.Time, turn int) {
	endpoints := *g.endpoints.Load()
	if len(endpoints) == 0 {
		g.refused.Add(1)
		g.lost(due)
		return
	}
	response, err := g.client.Get(endpoints[turn%len(endpoints)])
	if err != nil {
		g.count(err)
		g.lost(due)
		return
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	switch {
	case err != nil:
		g.count(err)
		g.lost(due)
	case response.StatusCode != http.StatusOK:
		g.failed.Add(1)
		g.lost(due)
	default:
		g.answered.Add(1)
		took := time.Since(due)
		g.latency.observe(took)
		g.mutex.Lock()
		g.took = append(g.took, float64(took.Microseconds())/1000)
		g.mutex.Unlock()
	}
}

// lost remembers the earliest request that got no success, by when it was due.
func (g *generator) lost(due time.Time) {
	at := due.Sub(g.began)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.firstLost < 0 || at < g.firstLost {
		g.firstLost = at
	}
}

func (g *generator) count(err error) {
	var network net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EINVAL): // a blackhole route
		g.refused.Add(1)
	case errors.As(err, &network) && network.Timeout():
		g.late.Add(1)
	default:
		g.failed.Add(1)
	}
}

func (g *generator) tally() tally {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	slices.Sort(g.took)
	at := func(share float64) float64 {
		if len(g.took) == 0 {
			return 0
		}
		return g.took[min(int(share*float64(len(g.took))), len(g.took)-1)]
	}
	first := -1.0
	if g.firstLost >= 0 {
		first = g.firstLost.Seconds()
	}
	return tally{
		FirstLostSeconds: first,
		Due:              g.due.Load(), Answered: g.answered.Load(), Refused: g.refused.Load(),
		Failed: g.failed.Load(), Late: g.late.Load(), Unsent: g.unsent.Load(),
		P50Ms: at(0.50), P95Ms: at(0.95), P99Ms: at(0.99),
	}
}

func (g *generator) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	g.latency.write(w, "load_request_duration_seconds", "From when a request was due to its answer.", "")
	for _, row := range []struct {
		fate  string
		count *atomic.Uint64
	}{{"answered", &g.answered}, {"refused", &g.refused}, {"failed", &g.failed}, {"late", &g.late}, {"unsent", &g.unsent}} {
		fmt.Fprintf(w, "load_requests_total{fate=%q} %d\n", row.fate, row.count.Load())
	}
}

// directory looks up the ready endpoints of one service, once a second, as kube-proxy would.
type directory struct {
	client  *http.Client
	address string
	token   string
}

func newDirectory(api, authority, tokenFile, service string) (*directory, error) {
	namespace, name, found := strings.Cut(service, "/")
	if !found || api == "" {
		return nil, fmt.Errorf("-service must be namespace/name and needs -api, but got %q and %q", service, api)
	}
	pool := x509.NewCertPool()
	if certificate, err := os.ReadFile(authority); err != nil || !pool.AppendCertsFromPEM(certificate) {
		return nil, fmt.Errorf("-ca must name a certificate, but %q is none (%v)", authority, err)
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, fmt.Errorf("-token-file: %w", err)
	}
	return &directory{
		client: &http.Client{
			Timeout:   2 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
		},
		address: fmt.Sprintf("%s/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices?labelSelector=kubernetes.io/service-name=%s",
			api, namespace, name),
		token: strings.TrimSpace(string(token)),
	}, nil
}

// run keeps the last known endpoints when the API server does not answer.
func (d *directory) run(ctx context.Context, g *generator) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.refresh(g)
		}
	}
}

func (d *directory) refresh(g *generator) {
	request, err := http.NewRequest(http.MethodGet, d.address, nil)
	if err != nil {
		return
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	response, err := d.client.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	var slices struct {
		Items []struct {
			Endpoints []struct {
				Addresses  []string `json:"addresses"`
				Conditions struct {
					Ready *bool `json:"ready"`
				} `json:"conditions"`
			} `json:"endpoints"`
			Ports []struct {
				Port int `json:"port"`
			} `json:"ports"`
		} `json:"items"`
	}
	if response.StatusCode != http.StatusOK || json.NewDecoder(response.Body).Decode(&slices) != nil {
		return
	}
	var found []string
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if ready && len(endpoint.Addresses) > 0 && len(slice.Ports) > 0 {
				found = append(found, fmt.Sprintf("http://%s:%d/", endpoint.Addresses[0], slice.Ports[0].Port))
			}
		}
	}
	g.endpoints.Store(&found)
}
