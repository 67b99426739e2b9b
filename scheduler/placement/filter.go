// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const filterKey = fwk.StateKey(Name + "/filter")

// limit is how far from whom a pod may be.
type limit struct {
	user         string
	milliseconds float64 // NaN: as far as can be
}

func limitOf(pod *v1.Pod) limit {
	return limit{user: pod.Annotations[userAnnotation], milliseconds: milliseconds(pod, hardAnnotation)}
}

func (l limit) same(other limit) bool {
	return l.user == other.user && equal(l.milliseconds, other.milliseconds)
}

// forbids: unknown latency passes.
func (l limit) forbids(t *table, node string) bool {
	latency, known := t.latency[l.user][node]
	return known && latency > l.milliseconds
}

// filtering is what one cycle's filter goes by. No table: no limit to obey.
type filtering struct {
	limit   limit
	table   *table
	noted   atomic.Bool // the pod is among the rejected
	refusal *refusal
}

// Clone implements fwk.StateData; other pods do not change a latency.
func (f *filtering) Clone() fwk.StateData { return f }

// PreFilter skips the filter unless there is something to keep the pod from.
func (p *Placement) PreFilter(
	_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo,
) (result *fwk.PreFilterResult, status *fwk.Status) {
	defer func() {
		if caught := recover(); caught != nil {
			note("prefilter", caught)
			status = fwk.NewStatus(fwk.Skip)
		}
	}()
	f := p.filtering(pod, time.Now())
	if f.table == nil && f.refusal == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(filterKey, f)
	return nil, nil
}

// filtering: the limit is obeyed only where that is asked for, the pod has one and the table is
// fresh. Every cycle begins here.
func (p *Placement) filtering(pod *v1.Pod, now time.Time) *filtering {
	if p.args.Mode != Enforce {
		p.hints.begin(pod, false)
		return &filtering{}
	}
	t := p.refresher.current.Load()
	f := &filtering{limit: limitOf(pod)}
	if f.refusal = p.hints.begin(pod, t.suggests(pod, now)); !t.isFresh(now) {
		return f
	}
	if has := f.limit.milliseconds == f.limit.milliseconds; has && p.args.EnforceHardLimit {
		f.table = t
	}
	return f
}

// refusesHints: where the only node left is the one of the hint, the scheduler counts it as used.
func refusesHints(state fwk.CycleState) bool {
	data, err := state.Read(filterKey)
	if err != nil {
		return false
	}
	f, _ := data.(*filtering)
	return f != nil && f.refusal != nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin; other pods do not change a latency.
func (p *Placement) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps a pod off nodes that are known to be too far from its user, and off a hint that must
// not count for it. Preemption cannot make a node nearer.
func (p *Placement) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	defer recovered("filter")
	data, err := state.Read(filterKey)
	if err != nil {
		return nil
	}
	f, ok := data.(*filtering)
	if !ok {
		return nil
	}
	if f.refusal.concerns(&p.hints, info.Node().Name) {
		if f.noted.CompareAndSwap(false, true) { // in case it was the only node: see concerns
			p.rejected.add(pod, f.limit, nil)
		}
		return fwk.NewStatus(fwk.Unschedulable, "an equal pod's result does not count beside a published suggestion")
	}
	if f.table == nil || !f.limit.forbids(f.table, info.Node().Name) {
		return nil
	}
	rejections.WithLabelValues().Inc()
	if f.noted.CompareAndSwap(false, true) {
		p.rejected.add(pod, f.limit, f.table)
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
		fmt.Sprintf("node(s) were farther from the user than the pod's hard limit of %g ms", f.limit.milliseconds))
}

// EventsToRegister: a new node may be nearer, and who edits a pod's limit or user may mean another
// node. Kubernetes has no narrower event for annotations. A changed latency is no event of the
// cluster, so the refresher wakes rejected pods itself.
func (p *Placement) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	added := fwk.ClusterEventWithHint{
		Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, QueueingHintFn: p.afterNodeAdd,
	}
	if !p.args.EnforceHardLimit || p.args.Mode != Enforce { // then nobody is rejected
		return []fwk.ClusterEventWithHint{added}, nil
	}
	edited := fwk.ClusterEventWithHint{
		Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update}, QueueingHintFn: afterPodUpdate,
	}
	return []fwk.ClusterEventWithHint{added, edited}, nil
}

// afterNodeAdd wakes a pod unless the node is known to be too far for it.
func (p *Placement) afterNodeAdd(_ klog.Logger, pod *v1.Pod, _, added any) (hint fwk.QueueingHint, err error) {
	defer func() {
		if caught := recover(); caught != nil {
			note("queueing", caught)
			hint = fwk.Queue
		}
	}()
	node, ok := added.(*v1.Node)
	t := p.refresher.current.Load()
	if ok && t.isFresh(time.Now()) && limitOf(pod).forbids(t, node.Name) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// afterPodUpdate wakes a pod whose own limit or user was edited.
func afterPodUpdate(_ klog.Logger, pod *v1.Pod, old, updated any) (fwk.QueueingHint, error) {
	before, wasPod := old.(*v1.Pod)
	after, isPod := updated.(*v1.Pod)
	if !wasPod || !isPod || after.UID != pod.UID || limitOf(before).same(limitOf(after)) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
