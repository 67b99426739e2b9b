// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"pilothouse.dev/scheduler/policy"
)

func compared(mode Mode, agreed bool) {
	result := "disagreed"
	if agreed {
		result = "agreed"
	}
	comparisons.WithLabelValues(string(mode), result).Inc()
}

// compareWithDefault works out, beside the scheduling cycles, whether the chosen node is among
// those the default's resource scores (least allocated and balanced) would have chosen.
func (p *Placement) compareWithDefault(w wish, chosen int) {
	nodes, candidate := slices.Clone(p.rows.nodes), slices.Clone(p.rows.candidate)
	go func() {
		defer recovered("compare")
		compared(Enforce, slices.Contains(defaultChoice(nodes, candidate, w.Pod), chosen))
	}()
}

// defaultChoice is the set of equally good nodes by the default's resource scores.
func defaultChoice(nodes []policy.Node, candidate []bool, pod policy.Pod) []int {
	var best []int
	top := math.Inf(-1)
	for row, node := range nodes {
		if !candidate[row] {
			continue
		}
		cpu := share(node.CPURequested+pod.CPURequest, node.CPUAllocatable)
		memory := share(node.MemoryRequested+pod.MemoryRequest, node.MemoryAllocatable)
		free := math.Floor((1-cpu)*100+(1-memory)*100) / 2
		balance := math.Floor((1 - math.Abs(cpu-memory)/2) * 100)
		switch score := math.Floor(free) + balance; {
		case score > top:
			best, top = append(best[:0], row), score
		case score == top:
			best = append(best, row)
		}
	}
	return best
}

func share(part, whole float64) float64 {
	if whole <= 0 {
		return 1
	}
	return min(part/whole, 1)
}

// leastAllocated scores a node by the CPU and memory that would be left.
func leastAllocated(w wish, info fwk.NodeInfo) int64 {
	requested, allocatable := info.GetRequested(), info.GetAllocatable()
	cpu := share(float64(requested.GetMilliCPU())+w.CPURequest, float64(allocatable.GetMilliCPU()))
	memory := share(float64(requested.GetMemory())+w.MemoryRequest, float64(allocatable.GetMemory()))
	return int64(math.Round((2 - cpu - memory) * 50))
}
