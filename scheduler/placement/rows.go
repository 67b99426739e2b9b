// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"pilothouse.dev/scheduler/policy"
)

var errUnknownCandidate = errors.New("a candidate is not in the snapshot")

// rows are the nodes of the scheduler's whole snapshot as columns, kept between pods: a node is
// read again only when its generation changed. One row per node, in the snapshot's order.
type rows struct {
	uncounted map[string]bool
	infos     []*framework.NodeInfo
	versions  []int64
	names     []string
	index     index
	byName    map[string]int
	nodes     []policy.Node
	rooms     *rooms // what the default's resource scores look at
	candidate []bool // may be chosen: passed the filters and need not be avoided
	before    []bool // the same for the pod before
	stale     []bool // has to be encoded again

	cluster    *policy.Cluster
	network    *policy.Network
	table      *table
	wish       wish
	largest    policy.Room
	ask        policy.Ask
	q          []float32
	choice     policy.Choice
	candidates int
}

func newRows(uncountedNamespaces []string) *rows {
	r := &rows{uncounted: map[string]bool{}}
	for _, namespace := range uncountedNamespaces {
		r.uncounted[namespace] = true
	}
	return r
}

// score brings the rows up to date and works out the Q values of the candidates for one pod.
func (r *rows) score(list, candidates []fwk.NodeInfo, t *table, w wish) error {
	whole := r.follow(list)
	if r.network != t.network {
		r.network, r.cluster = t.network, policy.NewCluster(t.network)
		whole = true
	}
	if whole || r.table != t || r.wish.user != w.user {
		r.takeTable(t, w.user)
	}
	whole = whole || !r.wish.same(w)
	r.table, r.wish = t, w
	if err := r.takeCandidates(candidates, t); err != nil {
		r.network = nil // nothing was encoded: the next pod starts afresh
		return err
	}
	r.ask = policy.NewAsk(&r.network.Card, w.Pod, r.largest)
	if whole {
		r.cluster.Resize(len(r.nodes))
	}
	for row := range r.nodes {
		if !whole && !r.stale[row] && r.candidate[row] == r.before[row] {
			continue
		}
		if r.takeFeasible(row, w) || r.stale[row] || whole {
			r.cluster.Mark(row)
			r.stale[row] = false
		}
	}
	r.q = r.cluster.Score(&r.ask, r.nodes, r.candidate)
	r.choice = policy.Choose(r.q, r.candidate)
	return nil
}

// follow takes over what changed in the snapshot; true when the nodes are others or the largest is.
func (r *rows) follow(list []fwk.NodeInfo) bool {
	whole := len(list) != len(r.infos)
	for row := 0; !whole && row < len(list); row++ {
		whole = concrete(list[row]) != r.infos[row]
	}
	if whole {
		r.rebuild(list)
		return true
	}
	resized := false
	for row, node := range r.infos {
		if node.Generation != r.versions[row] {
			r.versions[row] = node.Generation
			r.rooms = r.rooms.writable()
			resized = r.read(row, node) || resized
		}
	}
	return resized && r.measure()
}

func (r *rows) rebuild(list []fwk.NodeInfo) {
	r.infos = make([]*framework.NodeInfo, len(list))
	r.versions = make([]int64, len(list))
	r.names = make([]string, len(list))
	r.nodes = make([]policy.Node, len(list))
	r.rooms = &rooms{of: make([]room, len(list))}
	r.candidate = make([]bool, len(list))
	r.before = make([]bool, len(list))
	r.stale = make([]bool, len(list))
	r.index = newIndex(list)
	r.byName = make(map[string]int, len(list))
	for row, info := range list {
		r.infos[row] = concrete(info)
		r.versions[row] = info.GetGeneration()
		r.names[row] = info.Node().Name
		r.byName[r.names[row]] = row
		r.read(row, info)
	}
	r.measure()
}

// read takes the columns that come from the scheduler itself; true when the node has another size.
func (r *rows) read(row int, info fwk.NodeInfo) bool {
	requested, allocatable := info.GetRequested(), info.GetAllocatable()
	node := &r.nodes[row]
	cpu, memory, disk := node.CPUAllocatable, node.MemoryAllocatable, node.DiskAllocatable
	pods := info.GetPods()
	node.DiskRequested = float64(requested.GetEphemeralStorage())
	node.DiskAllocatable = float64(allocatable.GetEphemeralStorage())
	node.Pods, node.PodCapacity = float64(len(pods)), float64(allocatable.GetAllowedPodNumber())
	node.CPURequested, node.CPUAllocatable = float64(requested.GetMilliCPU()), float64(allocatable.GetMilliCPU())
	node.MemoryRequested, node.MemoryAllocatable = float64(requested.GetMemory()), float64(allocatable.GetMemory())
	node.Active = r.isActive(pods)
	r.rooms.of[row] = roomOf(info)
	r.stale[row] = true
	return node.CPUAllocatable != cpu || node.MemoryAllocatable != memory || node.DiskAllocatable != disk
}

// isActive: pods of DaemonSets and of the system run everywhere and say nothing.
func (r *rows) isActive(pods []fwk.PodInfo) bool {
	for _, info := range pods {
		pod := info.GetPod()
		if r.uncounted[pod.Namespace] {
			continue
		}
		daemon := false
		for i := range pod.OwnerReferences {
			daemon = daemon || pod.OwnerReferences[i].Kind == "DaemonSet"
		}
		if !daemon {
			return true
		}
	}
	return false
}

// measure finds the largest node; true when it is another size than before.
func (r *rows) measure() bool {
	var largest policy.Room
	for row := range r.nodes {
		largest.Include(&r.nodes[row])
	}
	changed := largest != r.largest
	r.largest = largest
	return changed
}

// takeTable takes the columns that come from the scorer. A table comes every second, and most of
// what it says is what the one before said.
func (r *rows) takeTable(t *table, user string) {
	for row, name := range r.names {
		node := &r.nodes[row]
		latency, power := t.latencyOf(user, name), t.idlePowerOf(name)
		if !equal(node.LatencyMS, latency) || !equal(node.IdlePowerShare, power) {
			node.LatencyMS, node.IdlePowerShare = latency, power
			r.stale[row] = true
		}
	}
}

func (r *rows) takeCandidates(candidates []fwk.NodeInfo, t *table) error {
	r.candidate, r.before = r.before, r.candidate
	all := len(candidates) == len(r.nodes) // of one snapshot, and none of them twice
	for row := range r.candidate {
		r.candidate[row] = all
	}
	if !all {
		for _, info := range candidates {
			row, has := r.index.find(info)
			if !has {
				return errUnknownCandidate
			}
			r.candidate[row] = true
		}
	}
	r.candidates = len(candidates)
	r.avoid(t)
	return nil
}

// avoid leaves out the nodes the referee wants left alone, unless nothing would remain.
func (r *rows) avoid(t *table) {
	if len(t.avoid) == 0 {
		return
	}
	avoided, remain := make([]int, 0, len(t.avoid)), false
	for row, is := range r.candidate {
		if is && t.avoid[r.names[row]] {
			avoided = append(avoided, row)
		} else if is {
			remain = true
		}
	}
	if !remain {
		return
	}
	for _, row := range avoided {
		r.candidate[row] = false
	}
}

// takeFeasible works out the feature of that name; true when it changed. The filters look at a
// sample of the nodes only; for the others fitting by CPU, memory, disk and pods stands in.
func (r *rows) takeFeasible(row int, w wish) bool {
	node := &r.nodes[row]
	feasible := r.candidate[row] ||
		node.CPURequested+w.CPURequest <= node.CPUAllocatable &&
			node.MemoryRequested+w.MemoryRequest <= node.MemoryAllocatable &&
			(w.DiskRequest == 0 || node.DiskRequested+w.DiskRequest <= node.DiskAllocatable) &&
			node.Pods < node.PodCapacity
	if feasible == node.Feasible {
		return false
	}
	node.Feasible = feasible
	return true
}

// favors says whether a suggestion tells candidates apart: it has more than 0 for one of them. Nodes
// that are unknown, filtered out or to be avoided are none.
func (r *rows) favors(given suggestion) bool {
	for node, score := range given.scores {
		if row, has := r.byName[node]; has && score > 0 && r.candidate[row] {
			return true
		}
	}
	return false
}

// suggestedScore is what a suggestion says of a candidate. Avoided nodes get nothing, nor do those it
// does not name: who publishes scores says which nodes are wanted.
func (r *rows) suggestedScore(given suggestion, info fwk.NodeInfo) int64 {
	row, has := r.index.find(info)
	if !has || !r.candidate[row] {
		return 0
	}
	return given.scores[r.names[row]]
}

// scoreOf is the score of a candidate; avoided nodes get nothing.
func (r *rows) scoreOf(info fwk.NodeInfo) int64 {
	row, has := r.index.find(info)
	if !has || !r.candidate[row] {
		return 0
	}
	return r.choice.Score(r.q[row])
}
