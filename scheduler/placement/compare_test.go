// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
)

func TestReserve_ShadowCountsHowOftenItWouldHaveChosenOtherwise(t *testing.T) {
	for _, fallback := range []Fallback{NoFallback, LeastAllocated} {
		t.Run(string(fallback), func(t *testing.T) { shadowCounts(t, fallback) })
	}
}

func shadowCounts(t *testing.T, fallback Fallback) {
	handle := threeNodes()
	shadow := aPlugin(t, withArgs(func(a *Args) { a.Mode, a.Fallback = Shadow, fallback }), handle, aTable(t, nil))
	enforcer := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
	enforcing, _, _ := scores(t, enforcer, aPod("p", "100m", "64Mi"), handle.nodes)
	for name, score := range enforcing {
		result := map[bool]string{true: "agreed", false: "disagreed"}[score == 100]
		before, _ := testutil.GetCounterMetricValue(comparisons.WithLabelValues("shadow", result))
		_, state, _ := scores(t, shadow, aPod("p", "100m", "64Mi"), handle.nodes)
		shadow.Reserve(context.Background(), state, aPod("p", "100m", "64Mi"), name)
		after, _ := testutil.GetCounterMetricValue(comparisons.WithLabelValues("shadow", result))
		if after != before+1 {
			t.Fatalf("%s with score %d: %s went from %g to %g", name, score, result, before, after)
		}
	}
}

// counted is how many comparisons of a mode agreed and disagreed so far.
func counted(mode Mode) (agreed, disagreed float64) {
	agreed, _ = testutil.GetCounterMetricValue(comparisons.WithLabelValues(string(mode), "agreed"))
	disagreed, _ = testutil.GetCounterMetricValue(comparisons.WithLabelValues(string(mode), "disagreed"))
	return agreed, disagreed
}

func dropped() float64 {
	found, _ := testutil.GetCounterMetricValue(comparisons.WithLabelValues(string(Enforce), "dropped"))
	return found
}

// bound scores a pod and reserves a node for it, whatever the scores were.
func bound(t testing.TB, p *Placement, pod *v1.Pod, nodes []fwk.NodeInfo, name string) {
	t.Helper()
	_, state, _ := scores(t, p, pod, nodes)
	if status := p.Reserve(context.Background(), state, pod, name); !status.IsSuccess() {
		t.Fatal(status)
	}
}

func waitForComparisons(t testing.TB, r *rooms) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); r.readers.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d comparisons do not end", r.readers.Load())
		}
	}
}

func TestReserve_ASampledPodIsComparedWithTheDefaultsChoice(t *testing.T) {
	cases := map[string]struct {
		node   string
		agrees bool
	}{
		"where the default had put it":              {"empty", true},
		"on the other of two equal nodes":           {"as-empty", true},
		"where the default had not put it":          {"used", false},
		"on the best node that was not a candidate": {"emptiest", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			handle := &aHandle{nodes: []fwk.NodeInfo{
				aNode("empty", "4", "8Gi"), aNode("as-empty", "4", "8Gi"),
				aNode("used", "4", "8Gi", aPod("x", "1", "2Gi")), aNode("emptiest", "64", "128Gi"),
			}}
			p := aPlugin(t, withArgs(func(a *Args) { a.CompareShare = 1 }), handle, aTable(t, nil))
			agreed, disagreed := counted(Enforce)
			bound(t, p, aPod("p", "1", "1Gi"), handle.nodes[:3], c.node)
			waitForComparisons(t, p.rows.rooms)
			if c.agrees {
				agreed++
			} else {
				disagreed++
			}
			if a, d := counted(Enforce); a != agreed || d != disagreed {
				t.Fatalf("%g agreed and %g disagreed instead of %g and %g", a, d, agreed, disagreed)
			}
		})
	}
}

// Affinity, taints and spread are not worked out, so nobody may take it for all of the default.
func TestComparisons_HelpNamesTheScoresThatAreCompared(t *testing.T) {
	registerMetrics()
	compared(Enforce, true) // a metric shows once it has a value
	found, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range found {
		if family.GetName() == "pilothouse_scheduler_comparisons_total" {
			if !strings.Contains(family.GetHelp(), "the default's resource scores") {
				t.Fatal(family.GetHelp())
			}
			return
		}
	}
	t.Fatal("there is no such metric")
}

func TestReserve_OnlyTheSampleIsCompared(t *testing.T) {
	handle := threeNodes()
	const pods = 400
	for share, bounds := range map[float64][2]float64{0: {0, 0}, 0.5: {120, 280}, 1: {pods, pods}} {
		p := aPlugin(t, withArgs(func(a *Args) { a.CompareShare = share }), handle, aTable(t, nil))
		agreed, disagreed := counted(Enforce)
		lost := dropped()
		for range pods {
			bound(t, p, aPod("p", "100m", "64Mi"), handle.nodes, "far")
		}
		waitForComparisons(t, p.rows.rooms)
		a, d := counted(Enforce)
		sampled := a + d - agreed - disagreed + dropped() - lost // of many at once some are dropped
		if sampled < bounds[0] || sampled > bounds[1] {
			t.Fatalf("of a share of %g, %g of %d pods were compared", share, sampled, pods)
		}
	}
}

// Each comparison holds a copy of the cluster: they must not pile up where all pods are compared.
func TestReserve_WhatIsTooMuchToCompareIsDroppedAndCounted(t *testing.T) {
	handle := threeNodes()
	p := aPlugin(t, withArgs(func(a *Args) { a.CompareShare = 1 }), handle, aTable(t, nil))
	for busy := range mostComparing + 1 {
		p.comparing.Store(int32(busy))
		lost := dropped()
		agreed, disagreed := counted(Enforce)
		bound(t, p, aPod("p", "100m", "64Mi"), handle.nodes, "far")
		waitForComparisons(t, p.rows.rooms)
		a, d := counted(Enforce)
		compared, wanted := a+d-agreed-disagreed, map[bool]float64{true: 1}[busy == mostComparing]
		if lost = dropped() - lost; lost != wanted || compared != 1-wanted {
			t.Fatalf("with %d at work: %g dropped, %g compared", busy, lost, compared)
		}
		for until := time.Now().Add(10 * time.Second); p.comparing.Load() > int32(busy); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%d are at work still", p.comparing.Load())
			}
		}
	}
}

// A comparison that is still at work sees the nodes as they were, and nobody waits for it.
func TestRows_AComparisonReadsWhatTheNextCycleDoesNotChange(t *testing.T) {
	handle := threeNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
	pod := aPod("p", "100m", "64Mi")
	scores(t, p, pod, handle.nodes)
	unread := p.rows.rooms
	handle.nodes[1].AddPodInfo(mustPodInfo(t, pod))
	scores(t, p, pod, handle.nodes)
	if p.rows.rooms != unread || unread.of[1].requested[0] != 100 {
		t.Fatal("copied although nobody reads, or not kept up to date")
	}
	unread.readers.Add(1)
	before := slices.Clone(unread.of)
	handle.nodes[1].AddPodInfo(mustPodInfo(t, pod))
	scores(t, p, pod, handle.nodes)
	if !slices.Equal(unread.of, before) {
		t.Fatal("changed under the reader")
	}
	if p.rows.rooms.of[1].requested[0] != 200 || p.rows.rooms.readers.Load() != 0 {
		t.Fatalf("the cycle goes on with %+v", p.rows.rooms.of[1])
	}
}

type withoutDevices struct{ *aHandle }

func (withoutDevices) SharedDRAManager() fwk.SharedDRAManager { return nil }

// stock is the scheduler's own plugin, as the default profile has it.
func stock(
	t *testing.T, args runtime.Object,
	make func(context.Context, runtime.Object, fwk.Handle, feature.Features) (fwk.Plugin, error),
) fwk.ScorePlugin {
	t.Helper()
	made, err := make(context.Background(), args, withoutDevices{&aHandle{}}, feature.Features{})
	if err != nil {
		t.Fatal(err)
	}
	return made.(fwk.ScorePlugin)
}

func TestDefaultChoice_IsWhatTheStockPluginsScoreBest(t *testing.T) {
	both := []config.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
	strategy := &config.ScoringStrategy{Type: config.LeastAllocated, Resources: both}
	plugins := []fwk.ScorePlugin{
		stock(t, &config.NodeResourcesFitArgs{ScoringStrategy: strategy}, noderesources.NewFit),
		stock(t, &config.NodeResourcesBalancedAllocationArgs{Resources: both}, noderesources.NewBalancedAllocation),
	}
	random := rand.New(rand.NewPCG(3, 3))
	ties := 0
	for turn := range 300 {
		pod := aPod("p", fmt.Sprintf("%dm", 50*random.IntN(20)), fmt.Sprintf("%dMi", 64*random.IntN(10)))
		if turn%10 == 0 { // requests nothing at all
			pod.Spec.Containers[0].Resources.Requests = nil
		}
		nodes, candidate := someNodes(random), []bool{}
		var rooms []room
		var best []int
		top := int64(-1)
		for row, node := range nodes {
			rooms = append(rooms, roomOf(node))
			candidate = append(candidate, random.IntN(4) > 0)
			total := int64(0)
			for _, plugin := range plugins {
				score, status := plugin.Score(context.Background(), newState(), pod, node)
				if !status.IsSuccess() {
					t.Fatal(status)
				}
				total += score
			}
			if candidate[row] && total > top {
				best, top = nil, total
			}
			if candidate[row] && total == top {
				best = append(best, row)
			}
		}
		if found := defaultChoice(rooms, candidate, pod); !slices.Equal(found, best) {
			t.Fatalf("turn %d: %v instead of %v", turn, found, best)
		}
		if len(best) > 1 {
			ties++
		}
	}
	if ties < 20 {
		t.Fatalf("only %d ties among the cases", ties)
	}
}

func someNodes(random *rand.Rand) []fwk.NodeInfo {
	var nodes []fwk.NodeInfo
	for row := range 12 {
		size := 1 + random.IntN(4)
		var pods []*v1.Pod
		for range random.IntN(4) {
			pod := aPod("x", fmt.Sprintf("%dm", 100*random.IntN(10)), fmt.Sprintf("%dMi", 256*random.IntN(6)))
			if random.IntN(3) == 0 {
				pod.Spec.Containers[0].Resources.Requests = nil
			}
			pods = append(pods, pod)
		}
		nodes = append(nodes, aNode(fmt.Sprintf("n%d", row), fmt.Sprint(2*size), fmt.Sprintf("%dGi", 4*size), pods...))
	}
	return nodes
}
