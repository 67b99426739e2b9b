// SPDX-License-Identifier: Apache-2.0

package placement

import (
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	scheduler "k8s.io/kubernetes/pkg/scheduler/metrics"
)

// unscoredPath says why nobody asked for scores: the scheduler does not when it is left with one
// node, be that nominated, taken over from an equal pod before, or the only one that passed. A
// nominated node goes before a hint.
func (p *Placement) unscoredPath(pod *v1.Pod, nodeName string) string {
	before := p.hints
	p.hints = p.hintsUsed()
	switch {
	case pod.Status.NominatedNodeName == nodeName:
		return pathNominated
	case p.hints > before:
		return pathHint
	}
	return pathSingle
}

// hintsUsed is how many pods of this profile went where an equal pod's result said. The scheduler
// tells plugins nothing of hints, but it counts the ones it used before it reserves: the count
// rises during a cycle exactly when the cycle used one.
func (p *Placement) hintsUsed() float64 {
	readable, ok := hintUsed(p).(metrics.Metric)
	if !ok {
		return 0
	}
	var read dto.Metric
	if err := readable.Write(&read); err != nil {
		return 0
	}
	return read.GetCounter().GetValue()
}

func hintUsed(p *Placement) metrics.CounterMetric {
	return scheduler.BatchAttemptStats.WithLabelValues(p.handle.ProfileName(), scheduler.BatchAttemptHintUsed)
}
