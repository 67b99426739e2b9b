// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	scheduler "k8s.io/kubernetes/pkg/scheduler/metrics"
)

const fixtures = "../../api/fixtures/placement/"

// aHandle is a scheduler with nothing but a snapshot. Whatever else is asked of it panics, which is
// what some tests want.
type aHandle struct {
	fwk.Handle
	fwk.SharedLister
	fwk.NodeInfoLister
	nodes     []fwk.NodeInfo
	panics    bool
	mutex     sync.Mutex
	activated []string
}

func (h *aHandle) ProfileName() string                    { return "a-profile" }
func (h *aHandle) SnapshotSharedLister() fwk.SharedLister { return h }
func (h *aHandle) NodeInfos() fwk.NodeInfoLister          { return h }

func (h *aHandle) List() ([]fwk.NodeInfo, error) {
	if h.panics {
		panic("the snapshot is on fire")
	}
	return h.nodes, nil
}

func (h *aHandle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for name := range pods {
		h.activated = append(h.activated, name)
	}
}

func aNode(name, cpu, memory string, pods ...*v1.Pod) fwk.NodeInfo {
	info := framework.NewNodeInfo(pods...)
	info.SetNode(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
			v1.ResourcePods: resource.MustParse("110"),
		}},
	})
	return info
}

func aPod(name, cpu, memory string, annotations ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: types.UID("uid-" + name), Annotations: map[string]string{},
	}}
	for i := 0; i+1 < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
	}}}}
	return pod
}

// aTable is a good answer of the scorer, changed as a test needs it.
func aTable(t testing.TB, change func(answer map[string]any)) []byte {
	t.Helper()
	card, err := os.ReadFile(fixtures + "fixture.json")
	if err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile(fixtures + "fixture.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	answer := map[string]any{
		"apiVersion": TableVersion, "serial": "1", "ttlSeconds": 10,
		"policy": map[string]any{
			"version": "fixture-e1a6d72b07ff", "card": json.RawMessage(card),
			"weights": base64.StdEncoding.EncodeToString(weights),
		},
		"latency": map[string]any{"": map[string]any{"near": 5.0, "far": 80.0}},
	}
	if change != nil {
		change(answer)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func withArgs(change func(*Args)) *Args {
	args := DefaultArgs()
	args.Mode = Enforce
	args.CompareShare = 0
	if change != nil {
		change(&args)
	}
	return &args
}

// aPlugin runs nothing in the background; the test puts the table in place.
func aPlugin(t testing.TB, args *Args, handle fwk.Handle, answer []byte) *Placement {
	t.Helper()
	registerMetrics()
	scheduler.Register()
	p := newPlacement(args, handle, &trust{})
	if answer != nil {
		made, err := readTable(answer, nil, time.Now(), args.MaximumAge.Duration)
		if err != nil {
			t.Fatal(err)
		}
		p.refresher.current.Store(made)
	}
	return p
}

// scores runs one scheduling cycle as far as scoring.
func scores(
	t testing.TB, p *Placement, pod *v1.Pod, nodes []fwk.NodeInfo,
) (map[string]int64, fwk.CycleState, *fwk.Status) {
	t.Helper()
	state := framework.NewCycleState()
	status := p.PreScore(context.Background(), state, pod, nodes)
	if status.IsSkip() {
		return nil, state, status
	}
	found := map[string]int64{}
	for _, node := range nodes {
		score, status := p.Score(context.Background(), state, pod, node)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		found[node.Node().Name] = score
	}
	return found, state, status
}
