// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
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
	r := newRecorder(withArgs(func(a *Args) { a.JournalAddress = "http://journal" }), &trust{})
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

// keeps is a journal that takes everything and notes the pods.
func keeps(pods *[]string) journal {
	return func(r *http.Request) (*http.Response, error) {
		var body struct{ Placements []Record }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return nil, err
		}
		for _, record := range body.Placements {
			*pods = append(*pods, record.Pod)
		}
		return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
	}
}

func TestRecorder_ARecordThatCannotBeWrittenCostsNoOther(t *testing.T) {
	var pods []string
	r := newRecorder(withArgs(func(a *Args) { a.JournalAddress = "http://journal" }), &trust{})
	r.client.Transport = keeps(&pods)
	for _, name := range []string{"first", "broken", "last"} {
		record := &Record{Pod: name}
		if name == "broken" {
			record.TableAgeSeconds = math.Inf(1)
		}
		r.enqueue(record)
	}
	failed := countOf(t, "failed")
	ctx, _ := ended(t)
	r.run(ctx)
	if found := countOf(t, "failed") - failed; fmt.Sprint(pods) != "[first last]" || found != 1 || r.dropped.Load() != 1 {
		t.Fatalf("%v were sent, %g failed, %d counted as dropped", pods, found, r.dropped.Load())
	}
}

func TestRecorder_APanicCostsABatchAndNotTheScheduler(t *testing.T) {
	var pods []string
	turn, failed := 0, countOf(t, "failed")
	r := aRecorder(func(request *http.Request) (*http.Response, error) {
		if turn++; turn == 1 {
			panic("on purpose")
		}
		return keeps(&pods)(request)
	})
	ctx, _ := ended(t)
	r.run(ctx)
	if found := countOf(t, "failed") - failed; found != batchSize || len(pods) != several-batchSize {
		t.Fatalf("%g failed and %d were sent", found, len(pods))
	}
}

func TestDescribe_RecordsOnlyWhatIsANumber(t *testing.T) {
	nan, infinite := float32(math.NaN()), float32(math.Inf(1))
	handle := threeNodes()
	pod := aPod("p", "100m", "64Mi", softAnnotation, "inf", hardAnnotation, "1e999")
	for name, c := range map[string]struct {
		spoil  func(p *Placement)
		chosen bool
		others int
	}{
		"all are numbers":      {func(*Placement) {}, true, 2},
		"the chosen one's Q":   {func(p *Placement) { p.rows.q[0] = nan }, false, 0},
		"another one's Q":      {func(p *Placement) { p.rows.q[1] = infinite }, true, 1},
		"what a node looks as": {func(p *Placement) { p.rows.nodes[2].CPURequested = math.NaN() }, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
			_, state, _ := scores(t, p, pod, handle.nodes)
			c.spoil(p)
			p.Reserve(t.Context(), state, pod, "near")
			record := readCycle(state).record
			if _, err := json.Marshal(record); err != nil {
				t.Fatal(err)
			}
			if (record.Chosen != nil) != c.chosen || len(record.Alternatives) != c.others {
				t.Fatalf("chosen %+v, others %+v", record.Chosen, record.Alternatives)
			}
			if record.SoftLimitMS != nil || record.HardLimitMS != nil {
				t.Fatal("a limit without end is none")
			}
		})
	}
}
