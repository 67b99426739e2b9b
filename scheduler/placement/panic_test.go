// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"testing"

	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// A part that is missing makes the code behind every extension point panic. None of them may let it
// out: the scheduler would end.
func TestEveryExtensionPoint_RecoversFromAPanicCountsItAndRefusesNothing(t *testing.T) {
	ctx := context.Background()
	pod := aPod("p", "100m", "64Mi", "latencyHardConstraint", "30")
	points := map[string]func(p *Placement, state fwk.CycleState, node fwk.NodeInfo) *fwk.Status{
		"prescore": func(p *Placement, state fwk.CycleState, node fwk.NodeInfo) *fwk.Status {
			p.rows = nil
			return p.PreScore(ctx, state, pod, []fwk.NodeInfo{node})
		},
		"score": func(p *Placement, state fwk.CycleState, node fwk.NodeInfo) *fwk.Status {
			p.rows = nil
			_, status := p.Score(ctx, state, pod, node)
			return status
		},
		"reserve": func(p *Placement, state fwk.CycleState, node fwk.NodeInfo) *fwk.Status {
			p.rows = nil
			return p.Reserve(ctx, state, pod, node.Node().Name)
		},
		"prefilter": func(p *Placement, state fwk.CycleState, node fwk.NodeInfo) *fwk.Status {
			p.refresher = nil
			_, status := p.PreFilter(ctx, state, pod, []fwk.NodeInfo{node})
			return status
		},
		"filter": func(p *Placement, state fwk.CycleState, node fwk.NodeInfo) *fwk.Status {
			p.PreFilter(ctx, state, pod, []fwk.NodeInfo{node})
			p.rejected = nil
			return p.Filter(ctx, state, pod, node)
		},
		"postbind": func(p *Placement, state fwk.CycleState, node fwk.NodeInfo) *fwk.Status {
			p.recorder = nil
			p.PostBind(ctx, state, pod, node.Node().Name)
			return nil
		},
		"record": func(p *Placement, _ fwk.CycleState, _ fwk.NodeInfo) *fwk.Status {
			p.recorder.client = nil
			p.recorder.enqueue(&Record{Pod: "p"})
			over, stop := context.WithCancel(ctx)
			stop()
			p.recorder.run(over)
			return nil
		},
		"queueing": func(p *Placement, _ fwk.CycleState, node fwk.NodeInfo) *fwk.Status {
			p.refresher = nil
			if hint, err := p.afterNodeAdd(klog.Background(), pod, nil, node.Node()); hint != fwk.Queue || err != nil {
				return fwk.NewStatus(fwk.Error, "the pod is left waiting")
			}
			return nil
		},
		"refresh": func(p *Placement, _ fwk.CycleState, _ fwk.NodeInfo) *fwk.Status {
			p.refresher.client = nil
			p.refresher.refreshAndCount(ctx)
			return nil
		},
	}
	for where, panicking := range points {
		t.Run(where, func(t *testing.T) {
			handle := threeNodes()
			p := aPlugin(t, withArgs(func(a *Args) {
				a.EnforceHardLimit = true
				a.JournalAddress = "http://127.0.0.1:1"
			}), handle, aTable(t, nil))
			_, state, _ := scores(t, p, pod, handle.nodes)
			before, _ := testutil.GetCounterMetricValue(panics.WithLabelValues(where))
			if status := panicking(p, state, handle.nodes[1]); !status.IsSuccess() && !status.IsSkip() {
				t.Fatalf("status %v", status)
			}
			if after, _ := testutil.GetCounterMetricValue(panics.WithLabelValues(where)); after != before+1 {
				t.Fatalf("%g panics counted, then %g", before, after)
			}
		})
	}
}

// A pod that cannot be signed is like no other: a result must not be used for it that was found
// without knowing its limits.
func TestSignPod_APanicLeavesThePodUnsigned(t *testing.T) {
	p := aPlugin(t, withArgs(nil), threeNodes(), aTable(t, nil))
	p.refresher = nil
	if _, status := p.SignPod(context.Background(), aPod("p", "100m", "64Mi")); status.IsSuccess() {
		t.Fatal("it was signed")
	}
}
