// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"pilothouse.dev/scheduler/policy"
)

const (
	mostAlternatives = 2
	batchSize        = 100
	batchWait        = 200 * time.Millisecond
	sendTimeout      = 5 * time.Second
	longestPause     = 2 * time.Second
	// lastSends is after the scheduler's end; longer than a pause: the batch in hand gets another try.
	lastSends = 3 * time.Second
)

// Record is one placement as the journal keeps it: where, by which path, and the very numbers.
type Record struct {
	Namespace            string        `json:"namespace"`
	Pod                  string        `json:"pod"`
	UID                  string        `json:"uid"`
	Node                 string        `json:"node"`
	Path                 string        `json:"path"`
	Why                  string        `json:"why,omitempty"`
	Mode                 Mode          `json:"mode"`
	Profile              string        `json:"profile"`
	At                   time.Time     `json:"at"`
	Policy               string        `json:"policy,omitempty"`
	BesideCPU            string        `json:"beside_cpu,omitempty"` // the resource its features hold
	Table                string        `json:"table,omitempty"`
	TableAgeSeconds      float64       `json:"table_age_seconds,omitempty"`
	PreScoreMicroseconds int64         `json:"prescore_microseconds,omitempty"`
	Nodes                int           `json:"nodes,omitempty"`
	Candidates           int           `json:"candidates,omitempty"`
	SoftLimitMS          *float64      `json:"soft_limit_ms,omitempty"`
	HardLimitMS          *float64      `json:"hard_limit_ms,omitempty"`
	User                 string        `json:"user,omitempty"`
	Chosen               *Alternative  `json:"chosen,omitempty"`
	Best                 bool          `json:"best,omitempty"` // the policy's own choice, or equal to it
	Alternatives         []Alternative `json:"alternatives,omitempty"`
	PooledMean           []float32     `json:"pooled_mean,omitempty"`
	PooledMax            []float32     `json:"pooled_max,omitempty"`
}

// Alternative is one node the policy looked at: what it saw there and what it made of it.
type Alternative struct {
	Node     string    `json:"node"`
	Q        float32   `json:"q"`
	Score    int64     `json:"score"`
	Features []float32 `json:"features"`
}

// describe takes down what the policy saw of the chosen node and of the best others.
func (p *Placement) describe(c *cycle, row int) *Record {
	r := p.rows
	encoding := r.network.Card.Network.Encoder[len(r.network.Card.Network.Encoder)-1]
	pooled := r.cluster.Pooled()
	record := &Record{
		Policy: r.network.Card.Version(), BesideCPU: r.network.Card.BesideCPU(), Table: c.table.serial,
		TableAgeSeconds: time.Since(c.table.fetched).Round(time.Millisecond).Seconds(),
		Nodes:           len(r.nodes), Candidates: r.candidates,
		SoftLimitMS: known(c.wish.SoftLimitMS), HardLimitMS: known(c.wish.HardLimitMS), User: c.wish.user,
		PooledMean: slices.Clone(pooled[:encoding]),
		PooledMax:  slices.Clone(pooled[len(pooled)/2 : len(pooled)/2+encoding]),
	}
	if !areNumbers(record.PooledMean) || !areNumbers(record.PooledMax) {
		record.PooledMean, record.PooledMax = nil, nil
	}
	if !r.candidate[row] { // avoided, or chosen by others among nodes we were not asked about
		return record
	}
	chosen := r.alternative(row)
	if !chosen.isFinite() { // the others say nothing without it
		return record
	}
	record.Chosen, record.Best = &chosen, r.choice.Usable && r.choice.IsBest(r.q[row])
	for _, other := range r.bestOthers(row) {
		if one := r.alternative(other); one.isFinite() {
			record.Alternatives = append(record.Alternatives, one)
		}
	}
	return record
}

func known(value float64) *float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	return &value
}

// isFinite: a policy may make something of a node that is no number, and JSON has no word for it.
func (a *Alternative) isFinite() bool {
	return areNumbers(a.Features) && areNumbers([]float32{a.Q})
}

func areNumbers(values []float32) bool {
	for _, value := range values {
		if !(value >= -math.MaxFloat32 && value <= math.MaxFloat32) {
			return false
		}
	}
	return true
}

func (r *rows) alternative(row int) Alternative {
	features := make([]float32, policy.Features)
	r.ask.Fill(features, &r.nodes[row])
	return Alternative{Node: r.names[row], Q: r.q[row], Score: r.choice.Score(r.q[row]), Features: features}
}

// bestOthers are the best candidates beside the chosen one, best first.
func (r *rows) bestOthers(chosen int) []int {
	best := make([]int, 0, mostAlternatives+1)
	for row, is := range r.candidate {
		if !is || row == chosen || len(best) == mostAlternatives && r.q[row] <= r.q[best[mostAlternatives-1]] {
			continue
		}
		at := len(best)
		for at > 0 && r.q[row] > r.q[best[at-1]] {
			at--
		}
		best = slices.Insert(best, at, row)
		best = best[:min(len(best), mostAlternatives)]
	}
	return best
}

// recorder sends records to the owner of the journal, in batches, through a bounded queue.
type recorder struct {
	address string
	token   string // file
	queue   chan *Record
	dropped atomic.Int64
	ended   atomic.Bool // nobody reads the queue any more
	client  *http.Client
}

func newRecorder(args *Args, trusted *trust) *recorder {
	return &recorder{
		address: strings.TrimSuffix(args.JournalAddress, "/") + "/v1/records",
		token:   args.JournalTokenFile,
		queue:   make(chan *Record, args.QueueSize),
		client:  &http.Client{Timeout: sendTimeout, Transport: trusted.usual(), CheckRedirect: noRedirects},
	}
}

// enqueue never waits: what does not fit is dropped, and how much was is part of the next batch.
func (r *recorder) enqueue(record *Record) {
	if r.ended.Load() {
		r.drop(1)
		return
	}
	select {
	case r.queue <- record:
	default:
		r.drop(1)
	}
}

func (r *recorder) drop(count int) {
	r.dropped.Add(int64(count))
	records.WithLabelValues("dropped").Add(float64(count))
}

// run sends until ctx ends, and what is queued by then for a short while after.
func (r *recorder) run(ctx context.Context) {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(lastSends, stop) })
	unsent := 0
	for sending.Err() == nil {
		batch := r.gather(ctx)
		if len(batch) == 0 {
			break
		}
		unsent += r.settle(sending, batch)
	}
	r.ended.Store(true)
	if unsent += len(r.queue); unsent > 0 {
		r.drop(unsent)
		klog.FromContext(ctx).Info("The scheduler ended before all records of placements were sent", "dropped", unsent)
	}
}

// gather waits for a first record and takes what comes shortly after it. Once ctx is over it waits
// for nothing, and what it gives is empty when the queue is.
func (r *recorder) gather(ctx context.Context) []*Record {
	var batch []*Record
	var enough <-chan time.Time
	for len(batch) < batchSize {
		select {
		case record := <-r.queue:
			batch = append(batch, record)
			if enough == nil {
				enough = time.After(batchWait)
			}
		case <-enough:
			return batch
		case <-ctx.Done():
			select {
			case record := <-r.queue:
				batch = append(batch, record)
			default:
				return batch
			}
		}
	}
	return batch
}

// settle sends a batch or counts it as failed; what it gives back is how many records ctx left unsent.
// A panic costs a batch, not the scheduler.
func (r *recorder) settle(ctx context.Context, batch []*Record) (unsent int) {
	left := len(batch)
	defer func() {
		if caught := recover(); caught != nil {
			note("record", caught)
			r.fail(left)
			unsent = 0
		}
	}()
	encoded := r.encode(ctx, batch)
	if left = len(encoded); left == 0 || r.deliver(ctx, encoded) {
		return 0
	}
	return left
}

// fail counts records that nobody will take.
func (r *recorder) fail(count int) {
	records.WithLabelValues("failed").Add(float64(count))
	r.dropped.Add(int64(count))
}

// encode turns records to JSON one by one: one that cannot be does not cost the others.
func (r *recorder) encode(ctx context.Context, batch []*Record) []json.RawMessage {
	made := make([]json.RawMessage, 0, len(batch))
	for _, record := range batch {
		text, err := json.Marshal(record)
		if err != nil {
			r.fail(1)
			klog.FromContext(ctx).Error(err, "A record of a placement was lost", "pod", klog.KRef(record.Namespace, record.Pod))
			continue
		}
		made = append(made, text)
	}
	return made
}

// deliver tries until the batch is taken or refused for good; the queue absorbs what comes
// meanwhile. It is false when ctx ended before either.
func (r *recorder) deliver(ctx context.Context, batch []json.RawMessage) bool {
	pause := 100 * time.Millisecond
	for {
		again, err := r.send(ctx, batch)
		if err == nil {
			records.WithLabelValues("sent").Add(float64(len(batch)))
			return true
		}
		if !again {
			r.fail(len(batch))
			klog.FromContext(ctx).V(2).Info("Records of placements were lost", "err", err, "records", len(batch))
			return true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
		pause = min(2*pause, longestPause)
	}
}

// send posts one batch; again says whether another try may succeed.
func (r *recorder) send(ctx context.Context, batch []json.RawMessage) (again bool, err error) {
	body, err := json.Marshal(map[string]any{
		"kind": "placements", "placements": batch, "dropped": r.dropped.Load(),
	})
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.address, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Pilothouse-Source", "scheduler")
	if r.token != "" {
		token, err := os.ReadFile(r.token)
		if err != nil {
			return true, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return true, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16))
	if answer.StatusCode == http.StatusAccepted { // any other success is somebody else's
		return false, nil
	}
	final := answer.StatusCode == http.StatusBadRequest || answer.StatusCode == http.StatusRequestEntityTooLarge
	return !final, fmt.Errorf("the journal's owner answered %d", answer.StatusCode)
}
