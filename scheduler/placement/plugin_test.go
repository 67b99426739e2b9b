// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	scheduler "k8s.io/kubernetes/pkg/scheduler/metrics"
)

func threeNodes() *aHandle {
	return &aHandle{nodes: []fwk.NodeInfo{
		aNode("near", "4", "8Gi", aPod("one", "1", "1Gi")), aNode("far", "8", "16Gi"),
		aNode("other", "2", "4Gi", aPod("two", "500m", "1Gi"), aPod("three", "500m", "1Gi")),
	}}
}

func TestPreScore_SkipsWhenThereIsNothingToGoBy(t *testing.T) {
	stale := func(answer map[string]any) { answer["ttlSeconds"] = 1e-9 }
	cases := map[string]struct {
		args   *Args
		answer []byte
		why    string
	}{
		"no table yet":   {withArgs(nil), nil, "no table"},
		"a stale table":  {withArgs(nil), aTable(t, stale), "stale table"},
		"switched off":   {withArgs(func(a *Args) { a.Mode = Off }), aTable(t, nil), "off"},
		"only in shadow": {withArgs(func(a *Args) { a.Mode = Shadow }), aTable(t, nil), "shadow"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			handle := threeNodes()
			p := aPlugin(t, c.args, handle, c.answer)
			_, state, status := scores(t, p, aPod("p", "100m", "64Mi"), handle.nodes)
			if !status.IsSkip() {
				t.Fatalf("status %v", status)
			}
			if found := readCycle(state); found.path != pathSkipped || found.why != c.why {
				t.Fatalf("path %q, why %q", found.path, found.why)
			}
		})
	}
}

func TestPreScore_ScoresEveryCandidateAndTheBestWithAHundred(t *testing.T) {
	handle := threeNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
	found, state, status := scores(t, p, aPod("p", "100m", "64Mi", "latencySoftConstraint", "20"), handle.nodes)
	if !status.IsSuccess() || readCycle(state).path != pathScored {
		t.Fatalf("status %v, path %q", status, readCycle(state).path)
	}
	best := 0
	for name, score := range found {
		if score < 0 || score > 100 {
			t.Fatalf("%s scores %d", name, score)
		}
		if score == 100 {
			best++
		}
	}
	if best != 1 {
		t.Fatalf("%d nodes are best: %v", best, found)
	}
}

func TestPreScore_LooksAtTheWholeSnapshotNotOnlyAtTheSample(t *testing.T) {
	handle := threeNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
	pod := aPod("p", "100m", "64Mi")
	scores(t, p, pod, handle.nodes[:2])
	sampled := append([]float32(nil), p.rows.q...)
	other := threeNodes()
	other.nodes = other.nodes[:2]
	q := aPlugin(t, withArgs(nil), other, aTable(t, nil))
	scores(t, q, pod, other.nodes)
	if sampled[0] == q.rows.q[0] {
		t.Fatal("a node outside the sample makes no difference")
	}
}

func TestPreScore_KeepsBetweenPodsOnlyWhatDidNotChange(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	handle := &aHandle{}
	for i := range 70 {
		handle.nodes = append(handle.nodes, aNode(fmt.Sprintf("n%d", i), "8", "16Gi"))
	}
	answer := aTable(t, nil)
	kept := aPlugin(t, withArgs(nil), handle, answer)
	for step := range 60 {
		pod := aPod(fmt.Sprintf("p%d", step), []string{"100m", "250m"}[step/10%2], "64Mi")
		candidates := handle.nodes[random.IntN(30) : 40+random.IntN(30)]
		if step%7 == 3 { // another table, in which some nodes are nearer and others are not known
			latency := map[string]any{}
			for i := range 70 {
				if random.IntN(10) > 0 {
					latency[fmt.Sprintf("n%d", i)] = []float64{5, 50}[random.IntN(2)]
				}
			}
			answer = aTable(t, func(answer map[string]any) { answer["latency"] = map[string]any{"": latency} })
			swapped, err := readTable(answer, kept.refresher.current.Load(), time.Now(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			kept.refresher.current.Store(swapped)
		}
		if step%10 == 0 { // as the pods change, somebody asks about a node that is not there
			scores(t, kept, pod, append([]fwk.NodeInfo{aNode("nonesuch", "1", "1Gi")}, candidates...))
		}
		found, _, _ := scores(t, kept, pod, candidates)
		fresh, _, _ := scores(t, aPlugin(t, withArgs(nil), handle, answer), pod, candidates)
		for name, want := range fresh {
			if found[name] != want {
				t.Fatalf("step %d: %s scores %d, from scratch %d", step, name, found[name], want)
			}
		}
		node := handle.nodes[random.IntN(len(handle.nodes))]
		node.AddPodInfo(mustPodInfo(t, pod))
		if step == 30 { // a node leaves, another joins
			handle.nodes = append(handle.nodes[1:], aNode("newcomer", "16", "32Gi"))
		}
	}
}

func TestPreScore_ASuggestionForOnePodMovesThatPod(t *testing.T) {
	handle := threeNodes()
	answer := aTable(t, func(answer map[string]any) {
		answer["suggestions"] = map[string]any{
			"uid-chosen":  map[string]any{"scores": map[string]any{"other": 90, "nonesuch": 100}, "expiresInSeconds": 30},
			"uid-expired": map[string]any{"scores": map[string]any{"other": 90}, "expiresInSeconds": -1},
		}
	})
	p := aPlugin(t, withArgs(nil), handle, answer)
	found, state, _ := scores(t, p, aPod("chosen", "100m", "64Mi"), handle.nodes)
	if found["other"] != 90 || found["near"] != 0 || readCycle(state).path != pathOverridden {
		t.Fatalf("scores %v, path %q", found, readCycle(state).path)
	}
	for _, name := range []string{"expired", "unmentioned"} {
		if _, state, _ := scores(t, p, aPod(name, "100m", "64Mi"), handle.nodes); readCycle(state).path != pathScored {
			t.Fatalf("%s: path %q", name, readCycle(state).path)
		}
	}
}

func TestPreScore_ASuggestionThatFavorsNoCandidateLeavesThePolicysScores(t *testing.T) {
	handle := threeNodes()
	pod := aPod("p", "100m", "64Mi")
	plain, _, _ := scores(t, aPlugin(t, withArgs(nil), handle, aTable(t, nil)), pod, handle.nodes[:2])
	cases := map[string]struct {
		scores map[string]any
		avoid  []string
		wanted map[string]int64 // nil: the policy's
	}{
		"unknown nodes":            {map[string]any{"nonesuch": 100}, nil, nil},
		"a node that was filtered": {map[string]any{"other": 100}, nil, nil},
		"nothing above zero":       {map[string]any{"near": 0, "far": 0}, nil, nil},
		"one of the candidates":    {map[string]any{"far": 7, "other": 100}, nil, map[string]int64{"near": 0, "far": 7}},
		"an avoided node":          {map[string]any{"near": 100}, []string{"near"}, map[string]int64{"near": 0, "far": 100}},
		"an avoided node and another": {
			map[string]any{"near": 100, "far": 7}, []string{"near"}, map[string]int64{"near": 0, "far": 7},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := aPlugin(t, withArgs(nil), handle, aTable(t, func(answer map[string]any) {
				answer["suggestions"] = map[string]any{"uid-p": suggesting(c.scores)}
				answer["avoid"] = c.avoid
			}))
			found, state, _ := scores(t, p, pod, handle.nodes[:2])
			wanted, path, why := c.wanted, pathOverridden, ""
			if found["far"] != 7 {
				path, why = pathScored, "suggestion favors no candidate"
			}
			if wanted == nil {
				wanted = plain
			}
			if cycle := readCycle(state); !maps.Equal(found, wanted) || cycle.path != path || cycle.why != why {
				t.Fatalf("%v instead of %v, path %q, why %q", found, wanted, cycle.path, cycle.why)
			}
			if p.hints.tainted != (path == pathOverridden) {
				t.Fatal("equal pods may not use a result of the policy, or may use a suggestion's")
			}
		})
	}
}

func TestPreScore_LeavesOutNodesToAvoidUnlessNothingElseRemains(t *testing.T) {
	handle := threeNodes()
	plain, _, _ := scores(t, aPlugin(t, withArgs(nil), handle, aTable(t, nil)), aPod("p", "100m", "64Mi"), handle.nodes)
	best := ""
	for name, score := range plain {
		if score == 100 {
			best = name
		}
	}
	avoiding := aTable(t, func(answer map[string]any) { answer["avoid"] = []string{best} })
	p := aPlugin(t, withArgs(nil), handle, avoiding)
	if found, _, _ := scores(t, p, aPod("p", "100m", "64Mi"), handle.nodes); found[best] != 0 {
		t.Fatalf("the avoided %s scores %d", best, found[best])
	}
	everything := aTable(t, func(answer map[string]any) { answer["avoid"] = []string{"near", "far", "other"} })
	p = aPlugin(t, withArgs(nil), handle, everything)
	if found, _, _ := scores(t, p, aPod("p", "100m", "64Mi"), handle.nodes); found[best] != 100 {
		t.Fatalf("with everything to be avoided, %s scores %d", best, found[best])
	}
}

func TestPreScore_APanicIsRecoveredCountedAndSkipped(t *testing.T) {
	handle := threeNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
	before, _ := testutil.GetCounterMetricValue(panics.WithLabelValues("prescore"))
	handle.panics = true
	if _, _, status := scores(t, p, aPod("p", "100m", "64Mi"), handle.nodes); !status.IsSkip() {
		t.Fatalf("status %v", status)
	}
	after, _ := testutil.GetCounterMetricValue(panics.WithLabelValues("prescore"))
	if after != before+1 {
		t.Fatalf("%g panics counted, then %g", before, after)
	}
	handle.panics = false
	if _, state, _ := scores(t, p, aPod("p", "100m", "64Mi"), handle.nodes); readCycle(state).path != pathScored {
		t.Fatalf("after the panic: path %q", readCycle(state).path)
	}
}

func TestPreScore_WhereThePolicyDoesNotScoreTheFallbackDoes(t *testing.T) {
	for name, c := range map[string]struct {
		mode   Mode
		answer []byte
		why    string
	}{
		"no table":     {Enforce, nil, "no table"},
		"in shadow":    {Shadow, aTable(t, nil), "shadow"},
		"switched off": {Off, nil, "off"},
	} {
		t.Run(name, func(t *testing.T) {
			handle := threeNodes()
			args := withArgs(func(a *Args) { a.Fallback, a.Mode = LeastAllocated, c.mode })
			p := aPlugin(t, args, handle, c.answer)
			found, state, status := scores(t, p, aPod("p", "100m", "64Mi"), handle.nodes)
			if cycle := readCycle(state); !status.IsSuccess() || cycle.path != pathFallback || cycle.why != c.why {
				t.Fatalf("status %v, path %q, why %q", status, cycle.path, cycle.why)
			}
			if !(found["far"] > found["near"] && found["near"] > found["other"]) {
				t.Fatalf("the emptiest is not preferred: %v", found)
			}
		})
	}
}

// The fallback is asked for every candidate of every pod, 5,000 times where there are so many nodes.
func TestScore_TheFallbackMakesNothingToCollect(t *testing.T) {
	handle := threeNodes()
	p := aPlugin(t, withArgs(func(a *Args) { a.Fallback = LeastAllocated }), handle, nil)
	pod := aPod("p", "100m", "64Mi")
	_, state, _ := scores(t, p, pod, handle.nodes)
	ctx := context.Background()
	if made := testing.AllocsPerRun(100, func() { p.Score(ctx, state, pod, handle.nodes[0]) }); made != 0 {
		t.Fatalf("%g allocations for each node", made)
	}
}

func TestSignPod_SaysWhatTheScoresDependOn(t *testing.T) {
	p := aPlugin(t, withArgs(nil), threeNodes(), aTable(t, func(answer map[string]any) {
		answer["suggestions"] = map[string]any{"uid-own": suggesting(map[string]any{"near": 1})}
	}))
	sign := func(pod *v1.Pod) string {
		fragments, status := p.SignPod(context.Background(), pod)
		if !status.IsSuccess() {
			return "refused"
		}
		return fmt.Sprint(fragments)
	}
	plain := sign(aPod("a", "100m", "64Mi"))
	if sign(aPod("b", "100m", "64Mi")) != plain {
		t.Fatal("equal pods are signed differently")
	}
	for name, pod := range map[string]*v1.Pod{
		"soft limit": aPod("a", "100m", "64Mi", "latencySoftConstraint", "20"),
		"hard limit": aPod("a", "100m", "64Mi", "latencyHardConstraint", "20"),
		"user":       aPod("a", "100m", "64Mi", "pilothouse.dev/latency-user", "10.0.0.1:80"),
		"request":    aPod("a", "200m", "64Mi"),
		"suggestion": aPod("own", "100m", "64Mi"),
	} {
		if sign(pod) == plain {
			t.Fatalf("another %s is signed the same", name)
		}
	}
	counted := scheduler.GetNodeHintDuration
	defer func() { scheduler.GetNodeHintDuration = counted }()
	scheduler.GetNodeHintDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{Name: "not_registered"}, nil)
	if sign(aPod("a", "100m", "64Mi")) != "refused" {
		t.Fatal("signed, though nobody would notice a hint")
	}
}

func TestPostBind_RecordsThePathAndTheNumbers(t *testing.T) {
	handle := threeNodes()
	for _, mode := range []Mode{Enforce, Shadow} {
		args := withArgs(func(a *Args) { a.Mode = mode; a.JournalAddress = "http://127.0.0.1:1" })
		p := aPlugin(t, args, handle, aTable(t, nil))
		pod := aPod("p", "100m", "64Mi", "latencySoftConstraint", "20")
		_, state, _ := scores(t, p, pod, handle.nodes)
		p.Reserve(context.Background(), state, pod, "near")
		p.PostBind(context.Background(), state, pod, "near")
		record := <-p.recorder.queue
		if record.Node != "near" || record.Chosen == nil || record.Chosen.Node != "near" || len(record.Alternatives) != 2 {
			t.Fatalf("%s: %+v", mode, record)
		}
		if record.Chosen.Features[6] != 5 || *record.SoftLimitMS != 20 || record.HardLimitMS != nil {
			t.Fatalf("%s: %+v", mode, record.Chosen)
		}
		if len(record.PooledMean) != 32 || len(record.PooledMax) != 32 {
			t.Fatalf("%s: pools of %d and %d", mode, len(record.PooledMean), len(record.PooledMax))
		}
		if want := map[Mode]string{Enforce: "scored", Shadow: "skipped"}[mode]; record.Path != want {
			t.Fatalf("%s: path %q", mode, record.Path)
		}
		if _, err := json.Marshal(record); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadArgs_DefaultsAndRefuses(t *testing.T) {
	read := func(text string) (*Args, error) { return ReadArgs(&runtime.Unknown{Raw: []byte(text)}) }
	args, err := read(`{"mode": "enforce", "refresh": "250ms"}`)
	if err != nil || args.Refresh.Duration != 250*time.Millisecond || args.MaximumAge.Duration != 15*time.Second {
		t.Fatalf("%+v %v", args, err)
	}
	if args, err := ReadArgs(nil); err != nil || args.Mode != Shadow {
		t.Fatalf("%+v %v", args, err)
	}
	for text, says := range map[string]string{
		`{"mode": "loud"}`:                    `mode: Unsupported value: "loud"`,
		`{"refresh": "-5ms"}`:                 `refresh: Invalid value: "-5ms": must be greater than 0`,
		`{"apiVersion": "pilothouse.dev/v9"}`: "apiVersion",
		`{"refrsh": "1s"}`:                    "refrsh",
		`{"scorerAddress": "scorer"}`:         "scorerAddress",
		`{"fallback": "networkTraffic"}`:      "prometheusAddress",
		`{"prometheusAddress": "prometheus"}`: "prometheusAddress",
		`{"fallback": "mostAllocated"}`:       `fallback: Unsupported value: "mostAllocated"`,
		`{"queueSize": -1}`:                   "queueSize",
		`{"compareShare": 2}`:                 "compareShare",
		`[`:                                   "pilothousePlacementArgs",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

func TestReadArgs_NullIsUnsetAndZeroIsZero(t *testing.T) {
	fields := reflect.TypeFor[Args]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		args, err := ReadArgs(&runtime.Unknown{Raw: fmt.Appendf(nil, `{%q: null}`, name)})
		if fields.Field(i).Type == reflect.TypeFor[metav1.Duration]() {
			if err == nil || !strings.Contains(err.Error(), "invalid duration") {
				t.Errorf("%s: null gives %v", name, err)
			}
			continue
		}
		if defaults := DefaultArgs(); err != nil || !reflect.DeepEqual(*args, defaults) {
			t.Errorf("%s: null gives %+v %v", name, args, err)
		}
	}
	raw := []byte(`{"compareShare": 0, "uncountedNamespaces": []}`)
	args, err := ReadArgs(&runtime.Unknown{Raw: raw})
	if err != nil || args.CompareShare != 0 || len(args.UncountedNamespaces) != 0 {
		t.Fatalf("%+v %v", args, err)
	}
}
