// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func newState() fwk.CycleState { return framework.NewCycleState() }

func mustPodInfo(t testing.TB, pod *v1.Pod) *framework.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// A good answer may take long on a busy machine; who waits for none is given little.
const patient, impatient = time.Minute, 200 * time.Millisecond

func refresherAt(address string, timeout time.Duration) *refresher {
	return newRefresher(withArgs(func(a *Args) {
		a.ScorerAddress = address
		a.Timeout = metav1.Duration{Duration: timeout}
	}), &trust{}, nil)
}

func TestRefresher_WhateverTheScorerDoesTheLastGoodTableStays(t *testing.T) {
	good := aTable(t, nil)
	release := make(chan struct{})
	defer close(release)
	garbage := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	changed := func(change func(answer map[string]any)) http.HandlerFunc { return garbage(string(aTable(t, change))) }
	behaviors := map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
		"drips": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, " ")
				w.(http.Flusher).Flush()
				select {
				case <-release:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		},
		"answers 500":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"redirects":      func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://127.0.0.1:1/", 302) },
		"sends nothing":  garbage(""),
		"sends text":     garbage("<html>"),
		"sends NaN":      garbage(strings.Replace(string(good), "80", "NaN", 1)),
		"sends 1e999":    garbage(strings.Replace(string(good), "80", "1e999", 1)),
		"sends too much": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, zeros{}, 100<<20) },
		"other version":  changed(func(a map[string]any) { a["apiVersion"] = "pilothouse.dev/v7" }),
		"no policy":      changed(func(a map[string]any) { delete(a, "policy") }),
		"broken policy": changed(func(a map[string]any) {
			a["policy"] = map[string]any{"version": "x", "card": json.RawMessage(`{}`), "weights": "AAAA"}
		}),
		"weights that are no base64": changed(func(a map[string]any) {
			a["policy"].(map[string]any)["weights"] = "%%"
			a["policy"].(map[string]any)["version"] = "x"
		}),
		"lives for -1 s": changed(func(a map[string]any) { a["ttlSeconds"] = -1 }),
		"hangs up": func(w http.ResponseWriter, _ *http.Request) {
			connection, _, _ := w.(http.Hijacker).Hijack()
			connection.Close()
		},
	}
	for name, behave := range behaviors {
		t.Run(name, func(t *testing.T) {
			var bad atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if bad.Load() {
					behave(w, r)
				} else {
					_, _ = w.Write(good)
				}
			}))
			defer server.Close()
			defer server.CloseClientConnections()
			first := refresherAt(server.URL, patient)
			if err := first.refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			before := first.current.Load()
			r := refresherAt(server.URL, impatient)
			r.current.Store(before)
			bad.Store(true)
			began := time.Now()
			if err := r.refresh(context.Background()); err == nil {
				t.Fatal("it was accepted")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Fatalf("it took %s", took)
			}
			if r.current.Load() != before {
				t.Fatal("the last good table is gone")
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestReadTable_LeavesOutValuesThatMakeNoSense(t *testing.T) {
	made, err := readTable(aTable(t, func(answer map[string]any) {
		answer["latency"] = map[string]any{"": map[string]any{"near": 1e308, "far": -1e308, "unknown": 3}}
		answer["idlePowerShare"] = map[string]any{"near": 1e308, "far": 0.4}
		answer["ttlSeconds"] = 1e308
	}), nil, time.Now(), 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, has := made.latency[""]["far"]; has {
		t.Fatal("a negative latency was taken")
	}
	if len(made.idlePowerShare) != 1 {
		t.Fatalf("power shares %v", made.idlePowerShare)
	}
	if left := time.Until(made.expires); left > 15*time.Second {
		t.Fatalf("it lives for %s", left)
	}
	handle := threeNodes()
	p := aPlugin(t, withArgs(nil), handle, nil)
	p.refresher.current.Store(made)
	found, _, status := scores(t, p, aPod("p", "1", "1Gi", "latencySoftConstraint", "1e308"), handle.nodes)
	if !status.IsSuccess() || len(found) != 3 {
		t.Fatalf("scores %v, status %v", found, status)
	}
}

func TestRefresher_FetchesWeightsOnlyOnce(t *testing.T) {
	asked := make(chan string, 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query().Get("policy")
		known := r.URL.Query().Get("policy") != ""
		_, _ = w.Write(aTable(t, func(answer map[string]any) {
			if known {
				answer["policy"] = map[string]any{"version": r.URL.Query().Get("policy")}
			}
		}))
	}))
	defer server.Close()
	r := refresherAt(server.URL, patient)
	for range 2 {
		if err := r.refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if first, second := <-asked, <-asked; first != "" || second != "fixture-e1a6d72b07ff" {
		t.Fatalf("asked with %q and %q", first, second)
	}
}

func TestRefresher_APanicIsRecovered(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(aTable(t, nil))
	}))
	defer server.Close()
	r := refresherAt(server.URL, patient)
	r.changed = func(*table) { panic("on purpose") }
	r.refreshAndCount(context.Background())
	if r.current.Load() == nil {
		t.Fatal("the table is lost")
	}
}

func TestRecorder_DeliversWhenTheJournalComesBackAndCountsWhatItDropped(t *testing.T) {
	var turn atomic.Int32
	got := make(chan map[string]any, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch turn.Add(1) {
		case 1:
			w.WriteHeader(503)
			return
		case 2: // a success, but not the journal's: it took nothing
			fmt.Fprint(w, "<html>welcome</html>")
			return
		}
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		got <- body
		w.WriteHeader(202)
	}))
	defer server.Close()
	r := newRecorder(withArgs(func(a *Args) { a.JournalAddress = server.URL; a.QueueSize = 4 }), &trust{})
	for i := range 10 {
		r.enqueue(&Record{Pod: fmt.Sprint(i)})
	}
	if r.dropped.Load() != 6 {
		t.Fatalf("%d dropped", r.dropped.Load())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() { r.run(ctx); close(ended) }()
	body := <-got
	if len(body["placements"].([]any)) != 4 || body["dropped"].(float64) != 6 {
		t.Fatalf("sent %v", body)
	}
	cancel()
	<-ended
}

func TestTraffic_PrefersTheNodeThatReceivesLeast(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Query().Get("query"), `device="ens3"}[7m]`) {
			t.Errorf("asked %q", r.URL.RawQuery)
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[
			{"metric":{"instance":"10.0.0.1:9100"},"value":[1,"1000"]},
			{"metric":{"node":"far"},"value":[1,"250"]},
			{"metric":{"node":"broken"},"value":[1,"NaN"]}]}}`)
	}))
	defer server.Close()
	args := withArgs(func(a *Args) {
		a.PrometheusAddress, a.NetworkInterface, a.TimeRangeInMinutes = server.URL, "ens3", 7
	})
	traffic := newTraffic(args, &trust{})
	traffic.refresh(context.Background())
	byAddress := &v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Address: "10.0.0.1"}}}}
	for node, want := range map[*v1.Node]int64{
		byAddress: 0, {ObjectMeta: metav1.ObjectMeta{Name: "far"}}: 75,
	} {
		if score, known := traffic.score(node); !known || score != want {
			t.Fatalf("score %d, known %v, want %d", score, known, want)
		}
	}
	if _, known := traffic.score(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}); known {
		t.Fatal("NaN was taken for a rate")
	}
}
