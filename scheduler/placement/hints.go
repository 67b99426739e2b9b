// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"sync/atomic"

	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	scheduler "k8s.io/kubernetes/pkg/scheduler/metrics"
)

// hints keeps the scheduler's batching and published suggestions apart.
//
// The scheduler may place a pod where its result for an equal pod says, without asking for scores.
// Which pods are equal it learns when they are queued (SignPod), so it cannot know of a suggestion
// that is published later: such a pod would miss its suggestion, and leave the order of its own
// suggestion to equal pods. Plugins are told nothing of hints, but a hinted node has to pass the
// filters alone before all others are looked at, and there it is turned away where it must not
// count. The pod then goes the usual way in the same cycle. What tells that moment from the rest of
// the cycle is what the scheduler counts: hints given before it, rounds of filters after it.
type hints struct {
	profile string
	used    float64 // when this cycle began
	// tainted: what the scheduler keeps for equal pods may be the order of a pod's own suggestion.
	tainted bool
}

// countsHints: a scheduler told not to count (--disabled-metrics) cannot be watched.
func countsHints() bool {
	return scheduler.BatchAttemptStats.IsCreated() && scheduler.GetNodeHintDuration.IsCreated() &&
		scheduler.FrameworkExtensionPointDuration.IsCreated()
}

// begin notes where a cycle starts; with a refusal where it must not follow a hint. A nominated
// node goes before a hint.
func (h *hints) begin(pod *v1.Pod, suggested bool) *refusal {
	h.used = h.count(scheduler.BatchAttemptHintUsed)
	if !suggested && !h.tainted || pod.Status.NominatedNodeName != "" ||
		!utilfeature.DefaultFeatureGate.Enabled(features.OpportunisticBatching) {
		return nil
	}
	return &refusal{none: h.count(scheduler.BatchAttemptNoHint), given: h.given(), rounds: h.rounds()}
}

// overridden: the scheduler keeps the result of this cycle for equal pods.
func (h *hints) overridden() { h.tainted = true }

// end is told at the end of a cycle that no suggestion decided. Unless it used a hint, the scheduler
// has another result now, or none.
func (h *hints) end() (hinted bool) {
	before := h.used
	h.used = h.count(scheduler.BatchAttemptHintUsed)
	hinted = h.used > before
	h.tainted = h.tainted && hinted
	return hinted
}

// refusal is a cycle that must not follow a hint, with the counts it began with.
type refusal struct {
	none, given, rounds float64
	over                atomic.Bool // there was no hint, or it has been looked at
	hint                atomic.Pointer[string]
}

// concerns says whether the node the filters are asked about now is a hint: the first node of a cycle
// that was given one. A hint whose node has been deleted is never looked at, and then it is some node
// that the pod would have had beside others; that is why it is one node and no more.
func (r *refusal) concerns(h *hints, node string) bool {
	if r == nil || r.over.Load() {
		return false
	}
	if h.count(scheduler.BatchAttemptNoHint) > r.none || h.rounds() > r.rounds {
		r.over.Store(true)
		return false
	}
	if h.given() <= r.given {
		return false
	}
	r.hint.CompareAndSwap(nil, &node)
	return *r.hint.Load() == node
}

// count is how many pods of this profile had this result of batching.
func (h *hints) count(result string) float64 {
	return read(scheduler.BatchAttemptStats.WithLabelValues(h.profile, result))
}

func (h *hints) given() float64 {
	return read(scheduler.GetNodeHintDuration.WithLabelValues("hint", h.profile))
}

// rounds is how often the filters have been through with a list of nodes, be that a hint alone.
func (h *hints) rounds() float64 {
	sum := 0.0
	for _, code := range []fwk.Code{fwk.Success, fwk.Error} {
		rounds := scheduler.FrameworkExtensionPointDuration.WithLabelValues(scheduler.Filter, code.String(), h.profile)
		sum += read(rounds)
	}
	return sum
}

// read is a counter's value, or how often a histogram was observed.
func read(metric any) float64 {
	readable, ok := metric.(metrics.Metric)
	if !ok {
		return 0
	}
	var found dto.Metric
	if err := readable.Write(&found); err != nil {
		return 0
	}
	return found.GetCounter().GetValue() + float64(found.GetHistogram().GetSampleCount())
}

// unscoredPath says why nobody asked for scores: the scheduler does not when it is left with one
// node, be that nominated, taken over from an equal pod before, or the only one that passed.
func unscoredPath(pod *v1.Pod, nodeName string, hinted bool) string {
	switch {
	case pod.Status.NominatedNodeName == nodeName:
		return pathNominated
	case hinted:
		return pathHint
	}
	return pathSingle
}
