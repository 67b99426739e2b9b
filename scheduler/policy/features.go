// SPDX-License-Identifier: Apache-2.0

// Package policy runs a trained placement policy: features, the set network and the choice.
//
// It is the same function as pilothouse.policy in Python; the golden fixtures in
// api/fixtures/placement hold the two together. It knows nothing of Kubernetes.
package policy

import (
	"math"
	"strings"
)

// NodeFeatures and PodFeatures are the inputs of the network, in this order.
var (
	NodeFeatures = []string{
		"pods_share", "cpu_requested_share", "memory_requested_share", "cpu_after_share",
		"memory_after_share", "active", "latency_ms", "latency_known", "idle_power_share",
		"feasible", "latency_over_soft", "latency_over_hard",
	}
	PodFeatures = []string{
		"cpu_request_share", "memory_request_share", "soft_limit_ms", "hard_limit_ms",
		"has_soft", "has_hard",
	}
)

// Beside CPU a policy sees one more resource: memory, or disk when it was trained on disk. Its card
// says which by the names of its features; the network is the same.
const (
	memory   = "memory"
	disk     = "disk"
	seesDisk = "disk_requested_share" // among a policy's features
)

// seeing are the names of features when the columns of memory hold this resource.
func seeing(names []string, besideCPU string) []string {
	made := make([]string, len(names))
	for i, name := range names {
		made[i] = strings.ReplaceAll(name, memory, besideCPU)
	}
	return made
}

// Features is how many numbers describe one node in front of one pod.
const Features = 18

const (
	mostMS              = 10_000 // a measurement or limit beyond ten seconds says no more
	mostShare           = 2      // overcommitted is overcommitted
	usualIdlePowerShare = 0.5    // of a node whose power nobody described
)

// Unknown marks a latency, power share or limit that nobody gave.
var Unknown = math.NaN()

// Node is what the cluster says about one node. Unknown values are NaN.
type Node struct {
	Pods, PodCapacity                  float64
	CPURequested, CPUAllocatable       float64 // millicores
	MemoryRequested, MemoryAllocatable float64 // one unit for all
	DiskRequested, DiskAllocatable     float64 // one unit for all; of ephemeral storage
	LatencyMS, IdlePowerShare          float64
	Active, Feasible                   bool
}

// Pod is what the pod asks for. A limit that is NaN, zero or less is none.
type Pod struct {
	CPURequest, MemoryRequest, DiskRequest float64
	SoftLimitMS, HardLimitMS               float64
}

// Room is the most that any node of a cluster has to offer, by resource.
type Room struct {
	CPU, Memory, Disk float64
}

// Include widens the room to that of a node.
func (r *Room) Include(n *Node) {
	r.CPU, r.Memory = max(r.CPU, n.CPUAllocatable), max(r.Memory, n.MemoryAllocatable)
	r.Disk = max(r.Disk, n.DiskAllocatable)
}

// Ask is a pod in front of a cluster: what is the same for all nodes, worked out once.
type Ask struct {
	cpu, other       float64 // requests; the other resource is memory or disk
	disk             bool    // it is disk
	soft, hard       float64
	hasSoft, hasHard bool
	tail             [6]float32
}

// NewAsk puts a pod in front of a cluster, for a policy with this card.
func NewAsk(card *Card, pod Pod, largest Room) Ask {
	a := Ask{cpu: pod.CPURequest, other: pod.MemoryRequest, disk: card.BesideCPU() == disk}
	room := largest.Memory
	if a.disk {
		a.other, room = pod.DiskRequest, largest.Disk
	}
	a.soft, a.hasSoft = limit(pod.SoftLimitMS)
	a.hard, a.hasHard = limit(pod.HardLimitMS)
	a.tail = [6]float32{
		share(a.cpu, largest.CPU), share(a.other, room),
		float32(a.soft), float32(a.hard), flag(a.hasSoft), flag(a.hasHard),
	}
	return a
}

// Fill writes the features of one node; row has room for them.
func (a *Ask) Fill(row []float32, n *Node) {
	_ = row[Features-1]
	other, room := n.MemoryRequested, n.MemoryAllocatable
	if a.disk {
		other, room = n.DiskRequested, n.DiskAllocatable
	}
	row[0] = share(n.Pods, n.PodCapacity)
	row[1] = share(n.CPURequested, n.CPUAllocatable)
	row[2] = share(other, room)
	row[3] = share(n.CPURequested+a.cpu, n.CPUAllocatable)
	row[4] = share(other+a.other, room)
	row[5] = flag(n.Active)
	latency, known := n.LatencyMS, isFinite(n.LatencyMS)
	if known {
		latency = math.Min(math.Max(latency, 0), mostMS)
	} else {
		latency = 0
	}
	row[6] = float32(latency)
	row[7] = flag(known)
	row[8] = usualIdlePowerShare
	if isFinite(n.IdlePowerShare) {
		row[8] = float32(math.Min(math.Max(n.IdlePowerShare, 0), 1))
	}
	row[9] = flag(n.Feasible)
	row[10] = over(latency, known, a.soft, a.hasSoft)
	row[11] = over(latency, known, a.hard, a.hasHard)
	copy(row[12:Features], a.tail[:])
}

func limit(given float64) (float64, bool) {
	if !isFinite(given) || given <= 0 {
		return 0, false
	}
	return math.Min(given, mostMS), true
}

// share: a node that offers none of a resource is full, not empty.
func share(part, whole float64) float32 {
	if !(whole > 0) {
		return 1
	}
	return float32(math.Min(math.Max(part/whole, 0), mostShare))
}

// over is how far beyond the limit, in limits: -1 (no latency) to 1 (twice the limit or more).
func over(latency float64, known bool, limit float64, has bool) float32 {
	if !has || !known {
		return 0
	}
	return float32(math.Min(math.Max((latency-limit)/limit, -1), 1))
}

func flag(yes bool) float32 {
	if yes {
		return 1
	}
	return 0
}

func isFinite(x float64) bool {
	return !math.IsNaN(x) && !math.IsInf(x, 0)
}
