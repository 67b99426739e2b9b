// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

const several = 2*batchSize + 50

// journal answers the recorder without a network, so that a test's clock may be a fake one.
type journal func(*http.Request) (*http.Response, error)

func (j journal) RoundTrip(r *http.Request) (*http.Response, error) { return j(r) }

func taken(r *http.Request) int {
	var body struct{ Placements []Record }
	_ = json.NewDecoder(r.Body).Decode(&body)
	return len(body.Placements)
}

func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func aRecorder(answers journal) *recorder {
	r := newRecorder(withArgs(func(a *Args) { a.JournalAddress = "http://journal" }))
	r.client.Transport = answers
	for i := range several {
		r.enqueue(&Record{Pod: fmt.Sprint(i)})
	}
	return r
}

// ended is a context that is over, with a log to read.
func ended(t *testing.T) (context.Context, ktesting.Buffer) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	cancel()
	return ctx, logger.GetSink().(ktesting.Underlier).GetBuffer()
}

func countOf(t *testing.T, result string) float64 {
	t.Helper()
	registerMetrics()
	count, err := testutil.GetCounterMetricValue(records.WithLabelValues(result))
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestRecorder_SendsAllThatIsQueuedWhenTheSchedulerEnds(t *testing.T) {
	ctx, log := ended(t)
	dropped, got := countOf(t, "dropped"), 0
	aRecorder(func(r *http.Request) (*http.Response, error) {
		got += taken(r)
		return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
	}).run(ctx)
	if found := countOf(t, "dropped") - dropped; got != several || found != 0 || log.String() != "" {
		t.Fatalf("%d sent, %g dropped, log %q", got, found, log.String())
	}
}

func TestRecorder_CountsWhatIsNotSentSoonAfterTheSchedulerEnds(t *testing.T) {
	refuses := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
	}
	for name, answers := range map[string]journal{"hangs": hangs, "refuses": refuses} {
		t.Run(name, func(t *testing.T) {
			ctx, log := ended(t)
			dropped := countOf(t, "dropped")
			synctest.Test(t, func(t *testing.T) {
				r := aRecorder(answers)
				began := time.Now()
				r.run(ctx)
				if took := time.Since(began); took != lastSends {
					t.Fatalf("it took %s", took)
				}
				r.enqueue(&Record{Pod: "bound meanwhile"})
			})
			if found := countOf(t, "dropped") - dropped; found != several+1 {
				t.Fatalf("%g dropped", found)
			}
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), fmt.Sprintf("dropped=%d", several)) {
				t.Fatalf("log %q", log.String())
			}
		})
	}
}

func TestClose_WaitsUntilTheLastRecordsAreSent(t *testing.T) {
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Add(int64(taken(r)))
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	for mode, want := range map[Mode]int64{Enforce: several, Off: 0} {
		got.Store(0)
		given := fmt.Sprintf(`{"mode": %q, "scorerAddress": "http://127.0.0.1:1", "journalAddress": %q}`, mode, server.URL)
		made, err := New(t.Context(), &runtime.Unknown{Raw: []byte(given)}, &aHandle{})
		if err != nil {
			t.Fatal(err)
		}
		p := made.(*Placement)
		for i := range several {
			p.PostBind(t.Context(), newState(), aPod(fmt.Sprint(i), "1", "1Gi"), "near")
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if got.Load() != want {
			t.Fatalf("%s: %d records were sent instead of %d", mode, got.Load(), want)
		}
	}
}
