// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"pilothouse.dev/scheduler/policy"
)

// Annotations of a pod; the bare names are those of the thesis this plugin grew out of.
const (
	prefix         = "pilothouse.dev/"
	softAnnotation = "latencySoftConstraint"
	hardAnnotation = "latencyHardConstraint"
	userAnnotation = prefix + "latency-user"
)

// wish is what a pod asks for, as far as it decides its placement.
type wish struct {
	policy.Pod
	user string // whose latency counts; empty: the default user's
}

// wishOf reads requests and annotations. A limit that is no positive number is none: a typo in an
// annotation must not keep a pod from being placed.
func wishOf(pod *v1.Pod) wish {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return wish{
		Pod: policy.Pod{
			CPURequest:    float64(requests.Cpu().MilliValue()),
			MemoryRequest: float64(requests.Memory().Value()),
			DiskRequest:   float64(requests.StorageEphemeral().Value()),
			SoftLimitMS:   milliseconds(pod, softAnnotation),
			HardLimitMS:   milliseconds(pod, hardAnnotation),
		},
		user: pod.Annotations[userAnnotation],
	}
}

// same says whether two pods ask for the same; NaN limits are equal here.
func (w wish) same(other wish) bool {
	return w.user == other.user && w.CPURequest == other.CPURequest && w.MemoryRequest == other.MemoryRequest &&
		w.DiskRequest == other.DiskRequest &&
		equal(w.SoftLimitMS, other.SoftLimitMS) && equal(w.HardLimitMS, other.HardLimitMS)
}

func equal(a, b float64) bool {
	return a == b || a != a && b != b
}

func milliseconds(pod *v1.Pod, name string) float64 {
	text, has := pod.Annotations[prefix+name]
	if !has {
		text, has = pod.Annotations[name]
	}
	if !has {
		return policy.Unknown
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "ms")), 64)
	if err != nil || !(value > 0) {
		return policy.Unknown
	}
	return value
}
