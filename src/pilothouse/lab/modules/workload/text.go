// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// bounds are the upper edges of the latency buckets, in seconds.
var bounds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// histogram counts durations the way Prometheus expects them.
type histogram struct {
	mutex   sync.Mutex
	buckets [12]uint64
	sum     float64
	count   uint64
}

func (h *histogram) observe(took time.Duration) {
	seconds := took.Seconds()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	at := len(bounds)
	for i, bound := range bounds {
		if seconds <= bound {
			at = i
			break
		}
	}
	h.buckets[at]++
	h.sum += seconds
	h.count++
}

// write prints the histogram in the text format; labels come as `a="b",` or empty.
func (h *histogram) write(out io.Writer, name, help, labels string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name)
	total := uint64(0)
	for i, bound := range bounds {
		total += h.buckets[i]
		fmt.Fprintf(out, "%s_bucket{%sle=\"%g\"} %d\n", name, labels, bound, total)
	}
	fmt.Fprintf(out, "%s_bucket{%sle=\"+Inf\"} %d\n", name, labels, h.count)
	braces := ""
	if labels != "" {
		braces = "{" + strings.TrimSuffix(labels, ",") + "}"
	}
	fmt.Fprintf(out, "%s_sum%s %g\n%s_count%s %d\n", name, braces, h.sum, name, braces, h.count)
}

// sample prints one series with its help; labels come as `{a="b"}` or empty.
func sample(out io.Writer, kind, name, help, labels string, value float64) {
	fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n%s%s %g\n", name, help, name, kind, name, labels, value)
}
