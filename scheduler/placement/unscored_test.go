// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	stockscheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

const ours = "pilothouse"

// profiles are the default one and ours: with the plugin, and without the default spread, as
// shipped. With that spread the scheduler gives no hints.
func profiles(t *testing.T) []config.KubeSchedulerProfile {
	t.Helper()
	defaults, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	made := defaults.Profiles[0].DeepCopy()
	made.SchedulerName = ours
	made.Plugins.MultiPoint.Enabled = append(made.Plugins.MultiPoint.Enabled, config.Plugin{Name: Name, Weight: 10})
	for _, given := range made.PluginConfig {
		if args, is := given.Args.(*config.PodTopologySpreadArgs); is {
			args.DefaultingType = config.ListDefaulting
		}
	}
	return []config.KubeSchedulerProfile{defaults.Profiles[0], *made}
}

// placed runs the real scheduler over nodes of one CPU each until every pod has its place, in the
// order given, and tells the paths the plugin recorded.
func placed(t *testing.T, nodes []string, pods ...*v1.Pod) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "binding", nil, nil
	})
	for _, name := range nodes {
		if _, err := client.CoreV1().Nodes().Create(ctx, aNode(name, "1", "8Gi").Node(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for place, pod := range pods {
		priority := int32(100 - place) // the queue goes by this first
		pod.Spec.Priority = &priority
		if _, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var p *Placement
	registry := frameworkruntime.Registry{Name: func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		p = aPlugin(t, withArgs(func(a *Args) { a.JournalAddress = "http://127.0.0.1:1" }), &aHandle{}, aTable(t, nil))
		p.handle = handle
		return p, nil
	}}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	informers := stockscheduler.NewInformerFactory(client, 0)
	s, err := stockscheduler.New(ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster),
		stockscheduler.WithProfiles(profiles(t)...), stockscheduler.WithFrameworkOutOfTreeRegistry(registry))
	if err != nil {
		t.Fatal(err)
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for range pods {
		s.ScheduleOne(ctx)
	}
	for _, pod := range pods {
		if pod.Spec.SchedulerName != ours {
			continue
		}
		select {
		case record := <-p.recorder.queue:
			paths = append(paths, record.Pod+": "+record.Path)
		case <-time.After(10 * time.Second):
			t.Fatalf("not every pod was bound: %v", paths)
		}
	}
	slices.Sort(paths) // binding goes on beside the cycles
	return paths
}

func scheduledBy(name string, pod *v1.Pod) *v1.Pod {
	pod.Spec.SchedulerName = name
	pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "c", "i"
	return pod
}

// Two of these do not fit on one node.
func large(name string) *v1.Pod { return scheduledBy(ours, aPod(name, "800m", "64Mi")) }

func TestPostBind_APodThatTookOverAnEqualPodsResultIsAHint(t *testing.T) {
	want := "[1: scored 2: hint 3: hint]"
	found := ""
	for range 5 { // the scheduler forgets a result after half a second, which a busy machine may take
		if found = fmt.Sprint(placed(t, []string{"a", "b", "c"}, large("1"), large("2"), large("3"))); found == want {
			return
		}
	}
	t.Fatalf("%s instead of %s", found, want)
}

func TestPostBind_TheOnlyFeasibleNodeIsNoHintThoughThePodEqualsTheOneBefore(t *testing.T) {
	between := scheduledBy("default-scheduler", aPod("between", "10m", "64Mi")) // makes the scheduler forget
	paths := placed(t, []string{"a", "b"}, large("1"), between, large("2"))
	if want := "[1: scored 2: single]"; fmt.Sprint(paths) != want {
		t.Fatalf("%v instead of %s", paths, want)
	}
}

func TestPostBind_ANominatedNodeIsNeitherHintNorSingle(t *testing.T) {
	nominated := large("1")
	nominated.Status.NominatedNodeName = "c"
	if paths := placed(t, []string{"a", "b", "c"}, nominated); fmt.Sprint(paths) != "[1: nominated]" {
		t.Fatal(paths)
	}
}

// A cycle that used a hint and then failed elsewhere must not make a hint of the next pod.
func TestReserve_AHintOfAnEarlierCycleIsNotThisCycles(t *testing.T) {
	handle := threeNodes()
	p := aPlugin(t, withArgs(nil), handle, aTable(t, nil))
	ctx, pod := context.Background(), aPod("p", "100m", "64Mi")
	path := func(hinted bool) string {
		state := newState()
		p.PreFilter(ctx, state, pod, handle.nodes)
		if hinted {
			hintUsed(p).Inc()
		}
		p.Reserve(ctx, state, pod, "near")
		return readCycle(state).path
	}
	hintUsed(p).Inc()
	if found := path(false); found != pathSingle {
		t.Fatalf("after somebody else's hint: %q", found)
	}
	if found := path(true); found != pathHint {
		t.Fatalf("with a hint of its own: %q", found)
	}
	if found := path(false); found != pathSingle {
		t.Fatalf("after a hint: %q", found)
	}
}
