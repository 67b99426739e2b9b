// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"pilothouse.dev/scheduler/policy"
)

const requestedShare, afterShare, requestShare = 2, 4, 13 // of the resource beside CPU

// onDisk makes the table's policy the fixture that sees disk; its weights are the other's.
func onDisk(t testing.TB) func(answer map[string]any) {
	card, err := os.ReadFile(fixtures + "disk.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(answer map[string]any) {
		answer["policy"].(map[string]any)["version"] = "disk-e1a6d72b07ff"
		answer["policy"].(map[string]any)["card"] = json.RawMessage(card)
	}
}

func withDisk(node fwk.NodeInfo, disk string) fwk.NodeInfo {
	changed := node.Node().DeepCopy()
	changed.Status.Allocatable[v1.ResourceEphemeralStorage] = resource.MustParse(disk)
	node.SetNode(changed)
	return node
}

func writing(pod *v1.Pod, disk string) *v1.Pod {
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage] = resource.MustParse(disk)
	return pod
}

func diskNodes() *aHandle {
	return &aHandle{nodes: []fwk.NodeInfo{
		withDisk(aNode("near", "4", "8Gi", writing(aPod("one", "1", "1Gi"), "5Gi")), "20Gi"),
		withDisk(aNode("far", "8", "16Gi"), "40Gi"),
	}}
}

func seen(p *Placement, row int) []float32 {
	return p.rows.alternative(row).Features
}

func TestPreScore_APolicyOnDiskSeesDisk(t *testing.T) {
	handle := diskNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, onDisk(t)))
	pod := writing(aPod("p", "100m", "1Gi"), "10Gi")
	if _, _, status := scores(t, p, pod, handle.nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	for row, want := range [][3]float32{{0.25, 0.75, 0.25}, {0, 0.25, 0.25}} {
		got := seen(p, row)
		if got[requestedShare] != want[0] || got[afterShare] != want[1] || got[requestShare] != want[2] {
			t.Fatalf("row %d: %v, want %v", row, got, want)
		}
	}
	other := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
	scores(t, other, pod, handle.nodes)
	if got := seen(other, 0); got[requestedShare] != 0.125 || got[afterShare] != 0.25 || got[requestShare] != 0.0625 {
		t.Fatalf("a policy on memory sees %v", got)
	}
}

func TestPreScore_OnDiskKeepsBetweenPodsOnlyWhatDidNotChange(t *testing.T) {
	handle := diskNodes()
	answer := aTable(t, onDisk(t))
	kept := aPlugin(t, withArgs(nil), handle, answer)
	change := map[string]func(){
		"nothing":            func() {},
		"a pod that writes":  func() { handle.nodes[1].AddPodInfo(mustPodInfo(t, writing(aPod("w", "0", "0"), "7Gi"))) },
		"a larger disk":      func() { handle.nodes[1] = withDisk(handle.nodes[1], "80Gi") },
		"another disk again": func() { handle.nodes[0] = withDisk(handle.nodes[0], "9Gi") },
	}
	for _, name := range []string{"nothing", "a pod that writes", "a larger disk", "another disk again"} {
		change[name]()
		for _, disk := range []string{"1Gi", "2Gi", "1Gi"} { // pods that differ in nothing else; the last like the next
			pod := writing(aPod("p", "100m", "64Mi"), disk)
			scores(t, kept, pod, handle.nodes)
			fresh := aPlugin(t, withArgs(nil), handle, answer)
			scores(t, fresh, pod, handle.nodes)
			for row, want := range fresh.rows.q {
				if kept.rows.q[row] != want {
					t.Fatalf("%s, %s: row %d has Q %g, from scratch %g", name, disk, row, kept.rows.q[row], want)
				}
			}
		}
	}
}

func TestPreScore_NodesOutsideTheSampleNeedTheDiskToo(t *testing.T) {
	handle := diskNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, onDisk(t)))
	for disk, want := range map[string]bool{"0": true, "15Gi": true, "16Gi": false} {
		scores(t, p, writing(aPod("p", "100m", "64Mi"), disk), handle.nodes[1:])
		if got := p.rows.nodes[0].Feasible; got != want {
			t.Fatalf("%s: feasible is %v", disk, got)
		}
	}
}

func TestSignPod_DependsOnDisk(t *testing.T) {
	p := aPlugin(t, withArgs(nil), diskNodes(), aTable(t, onDisk(t)))
	sign := func(disk string) any {
		fragments, _ := p.SignPod(context.Background(), writing(aPod("p", "100m", "64Mi"), disk))
		return fragments[0]
	}
	if sign("1Gi") != sign("1Gi") || sign("1Gi") == sign("2Gi") {
		t.Fatal("pods are alike when they ask for the same disk, and only then")
	}
}

func TestDescribe_SaysWhichResourceTheFeaturesHold(t *testing.T) {
	for want, answer := range map[string][]byte{"disk": aTable(t, onDisk(t)), "memory": aTable(t, nil)} {
		handle := diskNodes()
		p := aPlugin(t, withArgs(nil), handle, answer)
		_, state, _ := scores(t, p, aPod("p", "100m", "64Mi"), handle.nodes)
		record := p.describe(readCycle(state), 0)
		if record.BesideCPU != want || len(record.Chosen.Features) != policy.Features {
			t.Fatalf("%q, want %q", record.BesideCPU, want)
		}
	}
}
