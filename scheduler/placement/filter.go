// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const filterKey = fwk.StateKey(Name + "/filter")

// hardLimit is a pod's limit and the latencies it is held against.
type hardLimit struct {
	milliseconds float64
	latency      map[string]float64
}

func (h *hardLimit) Clone() fwk.StateData { return h }

// PreFilter skips the filter unless it is asked for, the pod has a hard limit and the table is
// fresh: unknown or stale latency passes.
func (p *Placement) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (result *fwk.PreFilterResult, status *fwk.Status) {
	defer func() {
		if caught := recover(); caught != nil {
			note("prefilter", caught)
			status = fwk.NewStatus(fwk.Skip)
		}
	}()
	p.hints = p.hintsUsed() // every cycle begins here
	if !p.args.EnforceHardLimit || p.args.Mode != Enforce {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	limit := milliseconds(pod, hardAnnotation)
	t := p.refresher.current.Load()
	if limit != limit || !t.isFresh(time.Now()) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(filterKey, &hardLimit{milliseconds: limit, latency: t.latency[pod.Annotations[userAnnotation]]})
	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin; other pods do not change a latency.
func (p *Placement) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps a pod off nodes that are known to be too far from its user.
func (p *Placement) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	defer recovered("filter")
	data, err := state.Read(filterKey)
	if err != nil {
		return nil
	}
	limit, ok := data.(*hardLimit)
	if !ok {
		return nil
	}
	latency, known := limit.latency[info.Node().Name]
	if !known || latency <= limit.milliseconds {
		return nil
	}
	rejections.WithLabelValues().Inc()
	p.rejected.add(pod)
	return fwk.NewStatus(fwk.Unschedulable,
		fmt.Sprintf("node(s) were farther from the user than the pod's hard limit of %g ms", limit.milliseconds))
}

// EventsToRegister: new nodes may be nearer; a changed latency is no event of the cluster, so the
// refresher wakes rejected pods itself.
func (p *Placement) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}},
	}, nil
}

const mostRejected = 10_000

// rejected are pods the filter turned away from some node; they are tried again when latency changes.
type rejected struct {
	handle fwk.Handle
	mutex  sync.Mutex
	pods   map[string]*v1.Pod
}

func newRejected(handle fwk.Handle) *rejected {
	return &rejected{handle: handle, pods: map[string]*v1.Pod{}}
}

func (r *rejected) add(pod *v1.Pod) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(r.pods) < mostRejected {
		r.pods[pod.Namespace+"/"+pod.Name] = pod
	}
}

func (r *rejected) retry(before, after *table) {
	if before != nil && maps.EqualFunc(before.latency, after.latency, maps.Equal) {
		return
	}
	r.mutex.Lock()
	pods := r.pods
	r.pods = map[string]*v1.Pod{}
	r.mutex.Unlock()
	if len(pods) > 0 {
		r.handle.Activate(klog.Background(), pods)
	}
}
