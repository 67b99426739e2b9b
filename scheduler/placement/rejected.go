// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const mostRejected = 10_000

// rejected are pods the filter turned away from some node. They are tried again when a node that
// was too far for them may be near enough, for all that is known.
type rejected struct {
	handle fwk.Handle
	mutex  sync.Mutex
	pods   map[types.UID]waiting
}

// waiting is a pod, its limit, and the last table that kept it off nodes; none: no table did, and the
// next one is as good as any.
type waiting struct {
	pod   *v1.Pod
	limit limit
	seen  *table
}

func newRejected(handle fwk.Handle) *rejected {
	return &rejected{handle: handle, pods: map[types.UID]waiting{}}
}

// add: a pod that finds no room here is tried again when the scheduler next empties its queue of
// unschedulable pods.
func (r *rejected) add(pod *v1.Pod, l limit, seen *table) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if _, has := r.pods[pod.UID]; has || len(r.pods) < mostRejected {
		r.pods[pod.UID] = waiting{pod: pod, limit: l, seen: seen}
	}
}

// forget a pod that found its place.
func (r *rejected) forget(pod *v1.Pod) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.pods, pod.UID)
}

// retry wakes the pods that may pass by what is known now. No table: nothing is known, all may pass.
// Scheduling cycles do not wait while it looks.
func (r *rejected) retry(now *table) {
	r.mutex.Lock()
	pods := maps.Clone(r.pods)
	r.mutex.Unlock()
	if len(pods) == 0 {
		return
	}
	woken, gone, same := map[string]*v1.Pod{}, []types.UID{}, memory{}
	for uid, one := range pods {
		switch {
		case !r.waits(one.pod):
			gone = append(gone, uid)
		case same.mayPass(one, now):
			woken[one.pod.Namespace+"/"+one.pod.Name] = one.pod
			gone = append(gone, uid)
		}
	}
	r.settle(pods, gone, now)
	if len(woken) > 0 {
		r.handle.Activate(klog.Background(), woken)
	}
}

// settle forgets who is gone. The others were held against this table, so the older one may go.
// Whoever was rejected again meanwhile stays as noted then.
func (r *rejected) settle(pods map[types.UID]waiting, gone []types.UID, now *table) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, uid := range gone {
		if r.pods[uid] == pods[uid] {
			delete(r.pods, uid)
		}
		delete(pods, uid)
	}
	for uid, one := range pods {
		if r.pods[uid] == one {
			one.seen = now
			r.pods[uid] = one
		}
	}
}

// waits: not deleted, not made anew under its name, not placed.
func (r *rejected) waits(pod *v1.Pod) bool {
	pods := r.handle.SharedInformerFactory().Core().V1().Pods().Lister()
	found, err := pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && found.UID == pod.UID && found.Spec.NodeName == ""
}

// memory answers once for all pods with the same limit.
type memory map[question]bool

type question struct {
	limit limit
	seen  *table
}

// mayPass: some node that was too far is not known to be so any more.
func (m memory) mayPass(one waiting, now *table) bool {
	if now == nil || one.seen == nil {
		return true
	}
	asked := question{limit: one.limit, seen: one.seen}
	may, has := m[asked]
	if !has {
		for node := range one.seen.latency[one.limit.user] {
			if may = one.limit.forbids(one.seen, node) && !one.limit.forbids(now, node); may {
				break
			}
		}
		m[asked] = may
	}
	return may
}
