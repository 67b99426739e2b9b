// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "pilothouse_scheduler"

func counter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{
		Name: subsystem + "_" + name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

var (
	cycles    = counter("cycles_total", "Scheduling cycles by path: scored, overridden, fallback, or why skipped.", "path")
	panics    = counter("panics_total", "Panics that were recovered, by where.", "where")
	refreshes = counter("refreshes_total", "Refreshes of the score table, by result.", "result")
	records   = counter("records_total",
		"Records of placements: sent, dropped because the queue was full or the scheduler ended, or failed.", "result")
	comparisons = counter("comparisons_total",
		"Placements compared: agreed or disagreed, by mode; dropped where too many comparisons were at work. "+
			"Enforced ones with the choice of the default's resource scores (least allocated, balanced), "+
			"shadowed ones with the policy's.", "mode", "result")
	rejections = counter("hard_limit_rejections_total", "Nodes kept from a pod because of its hard latency limit.")
	forward    = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: subsystem + "_forward_duration_seconds",
		Help: "Time of PreScore, by path.", StabilityLevel: metrics.ALPHA,
		Buckets: []float64{25e-6, 50e-6, 100e-6, 150e-6, 200e-6, 300e-6, 400e-6, 600e-6, 1e-3, 1.5e-3, 3e-3, 10e-3},
	}, []string{"path"})
	tableAge = metrics.NewGauge(&metrics.GaugeOpts{
		Name: subsystem + "_table_age_seconds",
		Help: "Age of the score table when it was last used.", StabilityLevel: metrics.ALPHA,
	})
	register sync.Once
)

// registerMetrics: several profiles make several plugins, and the registry takes each metric once.
func registerMetrics() {
	register.Do(func() {
		legacyregistry.MustRegister(cycles, panics, refreshes, records, comparisons, rejections, forward, tableAge)
	})
}
