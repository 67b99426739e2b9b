// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestFilter_KeepsPodsOffNodesKnownToBeTooFar(t *testing.T) {
	limited := aPod("p", "100m", "64Mi", "latencyHardConstraint", "30")
	cases := map[string]struct {
		enforce bool
		pod     *v1.Pod
		stale   bool
		refused map[string]bool
	}{
		"limit enforced":          {true, limited, false, map[string]bool{"far": true}},
		"not asked to enforce":    {false, limited, false, nil},
		"a stale table passes":    {true, limited, true, nil},
		"no limit passes":         {true, aPod("q", "1", "1Gi"), false, nil},
		"a limit nobody can read": {true, aPod("q", "1", "1Gi", "latencyHardConstraint", "soon"), false, nil},
		"our form of the annotation": {true, aPod("q", "1", "1Gi", "pilothouse.dev/latencyHardConstraint", "30ms"), false,
			map[string]bool{"far": true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			handle := threeNodes()
			answer := aTable(t, func(answer map[string]any) {
				if c.stale {
					answer["ttlSeconds"] = 1e-9
				}
			})
			p := aPlugin(t, withArgs(func(a *Args) { a.EnforceHardLimit = c.enforce }), handle, answer)
			state := newState()
			if _, status := p.PreFilter(context.Background(), state, c.pod, handle.nodes); status.IsSkip() {
				if len(c.refused) > 0 {
					t.Fatal("the filter was skipped")
				}
				return
			}
			for _, node := range handle.nodes {
				status := p.Filter(context.Background(), state, c.pod, node)
				if refused := !status.IsSuccess(); refused != c.refused[node.Node().Name] {
					t.Fatalf("%s: %v", node.Node().Name, status)
				}
				if code := status.Code(); code != fwk.Success && code != fwk.UnschedulableAndUnresolvable {
					t.Fatalf("%s: %s would make preemption evict pods for nothing", node.Node().Name, code)
				}
			}
		})
	}
}

const hisUser = "10.0.0.1:80"

// latencies are those to our pod's user, and to somebody else.
func latencies(his, others map[string]any) func(answer map[string]any) {
	return func(answer map[string]any) { answer["latency"] = map[string]any{hisUser: his, "": others} }
}

// turnedAway is a scheduler with a pod that is too far from its user everywhere.
func turnedAway(t *testing.T) *running {
	t.Helper()
	pod := scheduledBy(ours, aPod("p", "100m", "64Mi", hardAnnotation, "30", userAnnotation, hisUser))
	far := map[string]any{"far": 80.0, "away": 90.0, "elsewhere": 1.0} // that is no node of the cluster
	r := start(t, withArgs(func(a *Args) { a.EnforceHardLimit = true }), aTable(t, latencies(far, far)),
		[]string{"far", "away"}, pod)
	r.cycle()
	if _, message := r.s.SchedulingQueue.PendingPods(); r.ready() || len(r.p.rejected.pods) != 1 {
		t.Fatalf("the pod was not turned away: %s", message)
	}
	return r
}

func TestFilter_RejectedPodsAreTriedAgainWhenANodeMayBeNearEnoughForThem(t *testing.T) {
	far := map[string]any{"far": 80.0, "away": 90.0}
	cases := map[string]struct {
		his, others map[string]any
		woken       bool
	}{
		"nothing changed":               {map[string]any{"far": 80.0, "away": 90.0, "elsewhere": 1.0}, far, false},
		"another user's latency did":    {far, map[string]any{"far": 1.0, "away": 1.0}, false},
		"nearer, but not near enough":   {map[string]any{"far": 40.0, "away": 31.0}, far, false},
		"still farther":                 {map[string]any{"far": 800.0, "away": 900.0}, far, false},
		"another node was measured":     {map[string]any{"far": 80.0, "away": 90.0, "new": 1.0}, far, false},
		"near enough":                   {map[string]any{"far": 80.0, "away": 30.0}, far, true},
		"not known any more":            {map[string]any{"far": 80.0}, far, true},
		"nothing known of its user":     {map[string]any{}, far, true},
		"one is nearer, one is farther": {map[string]any{"far": 800.0, "away": 1.0}, far, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := turnedAway(t)
			r.publish(latencies(c.his, c.others))
			if r.ready() != c.woken {
				t.Fatalf("woken: %v", r.ready())
			}
			if c.woken {
				r.cycle()
				r.record()
			}
		})
	}
}

func TestFilter_RejectedPodsAreTriedAgainWhenTheTableIsTooOld(t *testing.T) {
	r := turnedAway(t)
	table := r.p.refresher.current.Load()
	r.p.refresher.address = "http://127.0.0.1:1" // nobody is there
	r.p.refresher.refreshAndCount(t.Context())
	if r.ready() {
		t.Fatal("woken while the table still counts")
	}
	table.expires = time.Now()
	r.p.refresher.refreshAndCount(t.Context())
	if !r.ready() {
		t.Fatal("stale latency passes, but nobody told the pod")
	}
	r.cycle()
	r.record()
}

func TestFilter_EditingThePodsOwnLimitOrUserWakesIt(t *testing.T) {
	edits := map[string]struct {
		annotation, value string
		woken             bool
	}{
		"limit":               {hardAnnotation, "100", true},
		"limit in our form":   {prefix + hardAnnotation, "100", true},
		"user":                {userAnnotation, "10.0.0.2:80", true},
		"the same limit":      {hardAnnotation, "30ms", false},
		"soft limit":          {softAnnotation, "5", false},
		"somebody else's own": {"example.com/owner", "me", false},
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			r := turnedAway(t)
			pods := r.client.CoreV1().Pods("shop")
			pod, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pod.Annotations[edit.annotation], pod.ResourceVersion = edit.value, "2"
			if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.eventually("seen", func() bool { return r.queued().Annotations[edit.annotation] == edit.value })
			if edit.woken {
				r.eventually("woken", r.ready)
			} else if r.ready() {
				t.Fatal("woken for nothing")
			}
		})
	}
}

func TestFilter_EditingAnotherPodWakesNobody(t *testing.T) {
	before, after := aPod("other", "1", "1Gi"), aPod("other", "1", "1Gi", hardAnnotation, "100")
	for name, wanted := range map[string]fwk.QueueingHint{"p": fwk.QueueSkip, "other": fwk.Queue} {
		hint, err := afterPodUpdate(klog.Background(), aPod(name, "1", "1Gi"), before, after)
		if hint != wanted || err != nil {
			t.Fatalf("%s: %s, %v", name, hint, err)
		}
	}
}

func TestFilter_ANewNodeWakesThePodUnlessItIsKnownToBeTooFar(t *testing.T) {
	for name, woken := range map[string]bool{"near": true, "unknown": true, "far-too": false} {
		t.Run(name, func(t *testing.T) {
			r := turnedAway(t)
			r.publish(latencies(map[string]any{"far": 80.0, "away": 90.0, "near": 5.0, "far-too": 50.0, "far-also": 50.0}, nil))
			r.addNode(name)
			r.eventually("seen", func() bool { return r.s.Cache.NodeCount() == 3 })
			if woken {
				r.eventually("woken", r.ready)
				r.cycle()
				r.record()
				return
			}
			r.addNode("far-also") // once this one is known, the queue has heard of the other
			r.eventually("seen", func() bool { return r.s.Cache.NodeCount() == 4 })
			if r.ready() {
				t.Fatal("woken for nothing")
			}
		})
	}
}

func TestRejected_KeepsNobodyWhoNoLongerWaits(t *testing.T) {
	ends := map[string]func(r *running){
		"placed": func(r *running) {
			r.p.Reserve(r.Context(), newState(), r.queued(), "far")
		},
		"deleted": func(r *running) {
			_ = r.client.CoreV1().Pods("shop").Delete(r.Context(), "p", metav1.DeleteOptions{})
			r.eventually("deleted", func() bool { return !r.p.rejected.waits(aPod("p", "1", "1Gi")) })
			r.publish(latencies(map[string]any{"far": 80.0, "away": 90.0}, nil))
		},
		"made anew": func(r *running) {
			pod := r.queued().DeepCopy()
			pod.UID = "another"
			_, _ = r.client.CoreV1().Pods("shop").Update(r.Context(), pod, metav1.UpdateOptions{})
			r.eventually("made anew", func() bool { return !r.p.rejected.waits(aPod("p", "1", "1Gi")) })
			r.publish(latencies(map[string]any{"far": 80.0, "away": 90.0}, nil))
		},
		"placed by somebody else": func(r *running) {
			pod := r.queued().DeepCopy()
			pod.Spec.NodeName = "far"
			_, _ = r.client.CoreV1().Pods("shop").Update(r.Context(), pod, metav1.UpdateOptions{})
			r.eventually("placed", func() bool { return !r.p.rejected.waits(aPod("p", "1", "1Gi")) })
			r.publish(latencies(map[string]any{"far": 80.0, "away": 90.0}, nil))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			r := turnedAway(t)
			r.publish(latencies(map[string]any{"far": 80.0, "away": 90.0}, nil))
			if len(r.p.rejected.pods) != 1 {
				t.Fatal("forgotten too early")
			}
			if end(r); len(r.p.rejected.pods) != 0 {
				t.Fatal("still there")
			}
		})
	}
}

func TestRejected_IsBoundedAndHoldsOnToOneTable(t *testing.T) {
	r := turnedAway(t)
	seen := r.p.refresher.current.Load()
	for i := range mostRejected + 5 {
		r.p.rejected.add(aPod(fmt.Sprint(i), "1", "1Gi"), limit{milliseconds: 30}, seen)
	}
	if found := len(r.p.rejected.pods); found != mostRejected {
		t.Fatalf("%d are kept", found)
	}
	r.publish(latencies(map[string]any{"far": 80.0, "away": 90.0}, nil))
	for _, one := range r.p.rejected.pods {
		if one.seen == seen {
			t.Fatal("an old table is kept")
		}
	}
}

// A table may come while the filters are at work with the one before.
func TestRejected_APodRejectedByAnOlderTableIsWokenByTheNext(t *testing.T) {
	r := turnedAway(t)
	before, pod := r.p.refresher.current.Load(), r.queued()
	r.p.rejected.forget(pod)
	near := latencies(map[string]any{"far": 1.0, "away": 1.0}, nil)
	r.publish(near)
	r.p.rejected.add(pod, limitOf(pod), before)
	r.publish(near)
	if !r.ready() {
		t.Fatal("the table that changed it came too early, and nobody noticed")
	}
}

func TestRefresher_SaysWhatTableCountsNow(t *testing.T) {
	var broken atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(aTable(t, nil))
	}))
	defer server.Close()
	r := refresherAt(server.URL, patient)
	var told []*table
	r.changed = func(now *table) { told = append(told, now) }
	r.refreshAndCount(t.Context())
	broken.Store(true)
	r.refreshAndCount(t.Context())
	if len(told) != 1 || told[0] != r.current.Load() {
		t.Fatalf("told %v while the table counts", told)
	}
	r.current.Load().expires = time.Now()
	r.refreshAndCount(t.Context())
	if len(told) != 2 || told[1] != nil {
		t.Fatalf("told %v when it is too old", told)
	}
}
