// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	scheduler "k8s.io/kubernetes/pkg/scheduler/metrics"
)

// placed runs the real scheduler over nodes of one CPU each until every pod has its place, in the
// order given, and tells the paths the plugin recorded.
func placed(t *testing.T, nodes []string, pods ...*v1.Pod) []string {
	t.Helper()
	r := start(t, withArgs(nil), aTable(t, nil), nodes, pods...)
	var paths []string
	for range pods {
		r.cycle()
	}
	for _, pod := range pods {
		if pod.Spec.SchedulerName == ours {
			found := r.record()
			paths = append(paths, found.Pod+": "+found.Path)
		}
	}
	slices.Sort(paths) // binding goes on beside the cycles
	return paths
}

// Two of these do not fit on one node.
func large(name string) *v1.Pod { return scheduledBy(ours, aPod(name, "800m", "64Mi")) }

func TestPostBind_APodThatTookOverAnEqualPodsResultIsAHint(t *testing.T) {
	want := "[1: scored 2: hint 3: hint]"
	found := ""
	for range 5 { // the scheduler forgets a result after half a second, which a busy machine may take
		if found = fmt.Sprint(placed(t, []string{"a", "b", "c"}, large("1"), large("2"), large("3"))); found == want {
			return
		}
	}
	t.Fatalf("%s instead of %s", found, want)
}

func TestPostBind_TheOnlyFeasibleNodeIsNoHintThoughThePodEqualsTheOneBefore(t *testing.T) {
	between := scheduledBy("default-scheduler", aPod("between", "10m", "64Mi")) // makes the scheduler forget
	paths := placed(t, []string{"a", "b"}, large("1"), between, large("2"))
	if want := "[1: scored 2: single]"; fmt.Sprint(paths) != want {
		t.Fatalf("%v instead of %s", paths, want)
	}
}

func TestPostBind_ANominatedNodeIsNeitherHintNorSingle(t *testing.T) {
	nominated := large("1")
	nominated.Status.NominatedNodeName = "c"
	if paths := placed(t, []string{"a", "b", "c"}, nominated); fmt.Sprint(paths) != "[1: nominated]" {
		t.Fatal(paths)
	}
}

// A cycle that used a hint and then failed elsewhere must not make a hint of the next pod.
func TestReserve_AHintOfAnEarlierCycleIsNotThisCycles(t *testing.T) {
	handle := threeNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
	ctx, pod := context.Background(), aPod("p", "100m", "64Mi")
	used := scheduler.BatchAttemptStats.WithLabelValues(handle.ProfileName(), scheduler.BatchAttemptHintUsed)
	path := func(hinted bool) string {
		state := newState()
		p.PreFilter(ctx, state, pod, handle.nodes)
		if hinted {
			used.Inc()
		}
		p.Reserve(ctx, state, pod, "near")
		return readCycle(state).path
	}
	used.Inc()
	if found := path(false); found != pathSingle {
		t.Fatalf("after somebody else's hint: %q", found)
	}
	if found := path(true); found != pathHint {
		t.Fatalf("with a hint of its own: %q", found)
	}
	if found := path(false); found != pathSingle {
		t.Fatalf("after a hint: %q", found)
	}
}

// apart are nodes that no two scorers find equal, so that the order is always the same one.
var apart = map[string]any{"a": 5.0, "b": 30.0, "c": 70.0, "d": 150.0, "e": 300.0}

func withLatency(suggestions map[string]any) func(answer map[string]any) {
	return func(answer map[string]any) {
		answer["latency"], answer["suggestions"] = map[string]any{"": apart}, suggestions
	}
}

func suggesting(scores map[string]any) map[string]any {
	return map[string]any{"scores": scores, "expiresInSeconds": 30}
}

// trip places equal large pods, one a node; suggestions are published when all of them are signed
// and, by pod, right before that pod's cycle.
func trip(t *testing.T, suggestions map[string]any) (nodes, paths []string) {
	t.Helper()
	pods := []*v1.Pod{large("1"), large("2"), large("3"), large("4")}
	r := start(t, withArgs(nil), aTable(t, withLatency(nil)), []string{"a", "b", "c", "d", "e"}, pods...)
	for _, pod := range pods {
		if given, has := suggestions[pod.Name]; has {
			r.publish(withLatency(map[string]any{string(pod.UID): given}))
		}
		r.cycle()
		found := r.record()
		nodes, paths = append(nodes, found.Node), append(paths, found.Path)
	}
	return nodes, paths
}

// until tries again when the scheduler had forgotten its result, as it does after half a second.
func until(t *testing.T, want string, run func(t *testing.T) string) {
	t.Helper()
	found := ""
	for range 5 {
		if found = run(t); found == want {
			return
		}
	}
	t.Fatalf("%s instead of %s", found, want)
}

func TestHints_ASuggestionPublishedAfterThePodWasSignedIsNotMissed(t *testing.T) {
	order, _ := trip(t, nil)
	want := fmt.Sprint([]string{order[0], order[3], order[1], order[2]}, " [scored overridden scored hint]")
	until(t, want, func(t *testing.T) string {
		given := suggesting(map[string]any{order[3]: 100, order[2]: 50})
		nodes, paths := trip(t, map[string]any{"2": given})
		return fmt.Sprint(nodes, fmt.Sprint(" ", paths))
	})
}

func TestHints_ASuggestionLeavesNothingToEqualPods(t *testing.T) {
	order, _ := trip(t, nil)
	want := fmt.Sprint([]string{order[2], order[0], order[1], order[3]}, " [overridden scored hint hint]")
	until(t, want, func(t *testing.T) string {
		// Its second best is the policy's worst.
		given := suggesting(map[string]any{order[2]: 100, order[3]: 90})
		nodes, paths := trip(t, map[string]any{"1": given})
		return fmt.Sprint(nodes, fmt.Sprint(" ", paths))
	})
}

// Where the hint is also where the pod ends, the scheduler keeps the rest of the suggestion's order.
func TestHints_WhatASuggestionLeftIsRefusedUntilItIsReplaced(t *testing.T) {
	order, _ := trip(t, nil)
	want := fmt.Sprint([]string{order[2], order[0], order[1], order[3]}, " [overridden scored scored hint]")
	until(t, want, func(t *testing.T) string {
		// The next of its order is the policy's best, and the one after that the policy's worst.
		given := suggesting(map[string]any{order[2]: 100, order[0]: 90, order[3]: 80})
		nodes, paths := trip(t, map[string]any{"1": given})
		return fmt.Sprint(nodes, fmt.Sprint(" ", paths))
	})
}

// Where only the node of the refused hint is left, nobody followed the hint.
func TestHints_TheOnlyNodeLeftIsNoHintWhereHintsAreRefused(t *testing.T) {
	pods := []*v1.Pod{large("1"), large("2")}
	r := start(t, withArgs(nil), aTable(t, nil), []string{"near", "far"}, pods...)
	r.cycle()
	r.publish(func(answer map[string]any) {
		answer["suggestions"] = map[string]any{"uid-2": suggesting(map[string]any{"near": 1, "far": 1})}
	})
	r.cycle()
	for range pods {
		if found := r.record(); found.Pod == "2" && found.Path != pathSingle {
			t.Fatalf("path %q", found.Path)
		}
	}
}

// lose deletes a node, and waits until the scheduler knows.
func (r *running) lose(node string, left int) {
	r.Helper()
	if err := r.client.CoreV1().Nodes().Delete(r.Context(), node, metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.eventually("gone", func() bool { return r.s.Cache.NodeCount() == left })
}

// The scheduler counts a hint as given and then does not look at its node, which is gone.
func TestHints_AHintToADeletedNodeKeepsNobodyFromTheOthers(t *testing.T) {
	order, _ := trip(t, nil)
	for name, given := range map[string]map[string]any{
		"published for the pod":     {"uid-2": suggesting(map[string]any{order[3]: 100, order[2]: 50})},
		"left by the one before it": {"uid-1": suggesting(map[string]any{order[0]: 100, order[1]: 90})},
	} {
		r := start(t, withArgs(nil), aTable(t, withLatency(nil)), []string{"a", "b", "c", "d", "e"}, large("1"), large("2"))
		if _, has := given["uid-1"]; has {
			r.publish(withLatency(given))
		}
		r.cycle()
		r.lose(order[1], 4)
		r.publish(withLatency(given))
		r.cycle()
		if first, second := r.record(), r.record(); first.Node == second.Node {
			t.Fatalf("%s: both on %s", name, first.Node)
		}
	}
}

func TestHints_WhereTheOnlyNodeWasTakenForAHintThePodIsTriedAgain(t *testing.T) {
	order, _ := trip(t, nil)
	until(t, "refused, then bound", func(t *testing.T) string {
		r := start(t, withArgs(nil), aTable(t, withLatency(nil)), order[:3], large("1"), large("2"))
		given := withLatency(map[string]any{"uid-2": suggesting(map[string]any{order[2]: 50})})
		r.cycle()
		r.record()
		r.lose(order[1], 2)
		r.publish(given)
		r.cycle()
		select {
		case found := <-r.p.recorder.queue:
			return "bound at once: the scheduler had no hint any more, " + found.Path
		case <-time.After(300 * time.Millisecond):
		}
		r.publish(given)
		r.eventually("tried again", r.ready)
		r.cycle()
		r.record()
		return "refused, then bound"
	})
}

// Filters run for every node of every pod, so a cycle without a hint must soon be known as such.
func TestHints_ACycleWithoutSuggestionsHasNoFilterToRun(t *testing.T) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.OpportunisticBatching) {
		t.Fatal("the scheduler gives no hints: these tests show nothing")
	}
	handle := threeNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, func(answer map[string]any) {
		answer["suggestions"] = map[string]any{"uid-own": suggesting(map[string]any{"near": 1})}
	}))
	for name, skipped := range map[string]bool{"other": true, "own": false} {
		_, status := p.PreFilter(context.Background(), newState(), aPod(name, "1", "1Gi"), handle.nodes)
		if status.IsSkip() != skipped {
			t.Fatalf("%s: %v", name, status)
		}
	}
	refusal := p.hints.begin(aPod("own", "1", "1Gi"), true)
	scheduler.BatchAttemptStats.WithLabelValues(handle.ProfileName(), scheduler.BatchAttemptNoHint).Inc()
	if refusal.concerns(&p.hints, "near") || !refusal.over.Load() {
		t.Fatal("there was no hint, but every node is taken for one that may be it")
	}
}
