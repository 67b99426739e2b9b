// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
)

// A whole cycle of the plugin at 1,000 and 5,000 nodes, all of them candidates: PreScore, Score of
// every node, Reserve and PostBind. Pods like the one before, and pods unlike it.
func BenchmarkCycle(b *testing.B) {
	for _, size := range []int{1000, 5000} {
		for name, requests := range map[string][]string{"likebefore": {"100m"}, "anotherpod": {"100m", "200m"}} {
			b.Run(fmt.Sprintf("%dnodes/%s", size, name), func(b *testing.B) {
				handle := &aHandle{}
				for i := range size {
					handle.nodes = append(handle.nodes, aNode(fmt.Sprintf("node-%d", i), "64", "256Gi"))
				}
				args := withArgs(func(a *Args) { a.JournalAddress = "http://127.0.0.1:1"; a.QueueSize = 1 })
				p := aPlugin(b, args, handle, aTable(b, func(answer map[string]any) { answer["ttlSeconds"] = 1e6 }))
				p.refresher.current.Load().expires = p.refresher.current.Load().expires.AddDate(1, 0, 0)
				b.ReportAllocs()
				for turn := 0; b.Loop(); turn++ {
					cycleOnce(b, p, handle.nodes, requests[turn%len(requests)], turn)
				}
			})
		}
	}
}

// The same without a table, by the fallback.
func BenchmarkFallback(b *testing.B) {
	handle := &aHandle{}
	for i := range 5000 {
		handle.nodes = append(handle.nodes, aNode(fmt.Sprintf("node-%d", i), "64", "256Gi"))
	}
	p := aPlugin(b, withArgs(func(a *Args) { a.Fallback = LeastAllocated }), handle, nil)
	b.ReportAllocs()
	for turn := 0; b.Loop(); turn++ {
		cycleOnce(b, p, handle.nodes, "100m", turn)
	}
}

func cycleOnce(b *testing.B, p *Placement, nodes []fwk.NodeInfo, cpu string, turn int) {
	pod := aPod("p", cpu, "64Mi", "latencySoftConstraint", "20")
	state := newState()
	if status := p.PreScore(context.Background(), state, pod, nodes); !status.IsSuccess() {
		b.Fatal(status)
	}
	for _, node := range nodes {
		p.Score(context.Background(), state, pod, node)
	}
	chosen := nodes[turn%len(nodes)]
	p.Reserve(context.Background(), state, pod, chosen.Node().Name)
	p.PostBind(context.Background(), state, pod, chosen.Node().Name)
	if turn%50 == 0 { // a bind changes a node; here now and then, so that the cluster does not fill
		chosen.AddPodInfo(mustPodInfo(b, pod))
	}
}
