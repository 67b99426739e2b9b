// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// mostComparing bounds the comparisons at work: each holds a copy of the cluster, and there are as
// many as pods when all are compared.
const mostComparing = 4

func compared(mode Mode, agreed bool) {
	result := "disagreed"
	if agreed {
		result = "agreed"
	}
	comparisons.WithLabelValues(string(mode), result).Inc()
}

// room is what the default's resource scores know of a node: milli-CPU and bytes. Counted is with
// what the scheduler assumes for containers that request nothing.
type room struct {
	allocatable, requested, counted [2]int64
}

func roomOf(info fwk.NodeInfo) room {
	pair := func(r fwk.Resource) [2]int64 { return [2]int64{r.GetMilliCPU(), r.GetMemory()} }
	return room{pair(info.GetAllocatable()), pair(info.GetRequested()), pair(info.GetNonZeroRequested())}
}

// rooms are those of all nodes, by row. Comparisons read them while the scheduling cycles go on,
// so cycles change them only when nobody reads and take a copy of their own otherwise.
type rooms struct {
	of      []room
	readers atomic.Int32
}

func (r *rooms) writable() *rooms {
	if r.readers.Load() == 0 {
		return r
	}
	return &rooms{of: slices.Clone(r.of)}
}

// compareWithDefault works out, beside the scheduling cycles, whether the chosen node is among
// those the default's resource scores (least allocated and balanced) would have chosen. This cycle
// copies one flag per node; the next one copies the rooms, where the comparison is not done by then.
// Where many are not done, this one is dropped and counted.
func (p *Placement) compareWithDefault(pod *v1.Pod, chosen int) {
	if p.comparing.Load() >= mostComparing { // only cycles add to it, one after the other
		comparisons.WithLabelValues(string(Enforce), "dropped").Inc()
		return
	}
	p.comparing.Add(1)
	seen, candidate := p.rows.rooms, slices.Clone(p.rows.candidate)
	seen.readers.Add(1)
	go func() {
		defer recovered("compare")
		defer p.comparing.Add(-1)
		defer seen.readers.Add(-1)
		compared(Enforce, slices.Contains(defaultChoice(seen.of, candidate, pod), chosen))
	}()
}

// defaultChoice is the set of equally good candidates by the default's resource scores.
func defaultChoice(of []room, candidate []bool, pod *v1.Pod) []int {
	requests, counted := requestsOf(pod, nil), requestsOf(pod, assumed)
	var best []int
	top := int64(-1)
	for row := range of {
		if !candidate[row] {
			continue
		}
		switch score := of[row].free(counted) + of[row].balance(requests); {
		case score > top:
			best, top = append(best[:0], row), score
		case score == top:
			best = append(best, row)
		}
	}
	return best
}

// assumed is what the scheduler counts for a container that requests nothing.
var assumed = v1.ResourceList{
	v1.ResourceCPU:    *resource.NewMilliQuantity(schedutil.DefaultMilliCPURequest, resource.DecimalSI),
	v1.ResourceMemory: *resource.NewQuantity(schedutil.DefaultMemoryRequest, resource.DecimalSI),
}

func requestsOf(pod *v1.Pod, assumed v1.ResourceList) [2]int64 {
	options := resourcehelper.PodResourcesOptions{NonMissingContainerRequests: assumed}
	requests := resourcehelper.PodRequests(pod, options)
	return [2]int64{requests.Cpu().MilliValue(), requests.Memory().Value()}
}

// free is NodeResourcesFit's score by least allocated.
func (r *room) free(pod [2]int64) int64 {
	sum, kinds := int64(0), int64(0)
	for i, whole := range r.allocatable {
		if whole == 0 {
			continue
		}
		kinds++
		sum += max(whole-r.counted[i]-pod[i], 0) * fwk.MaxNodeScore / whole
	}
	return sum / max(kinds, 1)
}

// balance is NodeResourcesBalancedAllocation's score: how much better CPU and memory are balanced
// with the pod than without. The plugin leaves out pods that request nothing, for which this is the
// same everywhere.
func (r *room) balance(pod [2]int64) int64 {
	with := [2]int64{r.requested[0] + pod[0], r.requested[1] + pod[1]}
	half := fwk.MaxNodeScore / 2
	return half + (half+r.evenness(with)-r.evenness(r.requested))/2
}

func (r *room) evenness(requested [2]int64) int64 {
	if r.allocatable[0] == 0 || r.allocatable[1] == 0 {
		return fwk.MaxNodeScore
	}
	cpu := min(float64(requested[0])/float64(r.allocatable[0]), 1)
	memory := min(float64(requested[1])/float64(r.allocatable[1]), 1)
	return int64((1 - math.Abs((cpu-memory)/2)) * float64(fwk.MaxNodeScore))
}

func share(part, whole float64) float64 {
	if whole <= 0 {
		return 1
	}
	return min(part/whole, 1)
}

// leastAllocated scores a node by the CPU and memory that would be left.
func leastAllocated(w *wish, info fwk.NodeInfo) int64 {
	requested, allocatable := info.GetRequested(), info.GetAllocatable()
	cpu := share(float64(requested.GetMilliCPU())+w.CPURequest, float64(allocatable.GetMilliCPU()))
	memory := share(float64(requested.GetMemory())+w.MemoryRequest, float64(allocatable.GetMemory()))
	return int64(math.Round((2 - cpu - memory) * 50))
}
