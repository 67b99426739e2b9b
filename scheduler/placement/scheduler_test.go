// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
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

// running is the real scheduler with our plugin, in this process; its API server only keeps objects.
// Nothing happens by itself: the test asks for each cycle.
type running struct {
	*testing.T
	client *fake.Clientset
	s      *stockscheduler.Scheduler
	p      *Placement
}

// start queues the pods, so they are signed, in the order given.
func start(t *testing.T, args *Args, answer []byte, nodes []string, pods ...*v1.Pod) *running {
	t.Helper()
	r := &running{T: t, client: fake.NewClientset()}
	args.JournalAddress = "http://127.0.0.1:1"
	r.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "binding", nil, nil
	})
	for _, name := range nodes {
		r.addNode(name)
	}
	for place, pod := range pods {
		priority := int32(100 - place) // the queue goes by this first
		pod.Spec.Priority = &priority
		if _, err := r.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	made := func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		r.p = aPlugin(t, args, handle, answer)
		return r.p, nil
	}
	registry := frameworkruntime.Registry{Name: made}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: r.client.EventsV1()})
	informers := stockscheduler.NewInformerFactory(r.client, 0)
	s, err := stockscheduler.New(t.Context(), r.client, informers, nil, profile.NewRecorderFactory(broadcaster),
		stockscheduler.WithProfiles(profiles(t)...), stockscheduler.WithFrameworkOutOfTreeRegistry(registry))
	if err != nil {
		t.Fatal(err)
	}
	r.s = s
	informers.Start(t.Context().Done())
	informers.WaitForCacheSync(t.Context().Done())
	if err := s.WaitForHandlersSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// addNode adds one of one CPU.
func (r *running) addNode(name string) {
	r.Helper()
	node := aNode(name, "1", "8Gi").Node()
	if _, err := r.client.CoreV1().Nodes().Create(r.Context(), node, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// publish puts a table in place, as the refresher does.
func (r *running) publish(change func(answer map[string]any)) {
	r.Helper()
	made, err := readTable(aTable(r, change), r.p.refresher.current.Load(), time.Now(), time.Minute)
	if err != nil {
		r.Fatal(err)
	}
	r.p.refresher.current.Store(made)
	r.p.refresher.tell(made)
}

// cycle schedules the next pod; there has to be one.
func (r *running) cycle() { r.s.ScheduleOne(r.Context()) }

// record is of the next bind, which goes on beside the cycles.
func (r *running) record() *Record {
	r.Helper()
	select {
	case found := <-r.p.recorder.queue:
		return found
	case <-time.After(10 * time.Second):
		r.Fatal("nothing was bound")
		return nil
	}
}

// ready says whether a pod is to be tried again.
func (r *running) ready() bool {
	return len(r.s.SchedulingQueue.PodsInActiveQ())+len(r.s.SchedulingQueue.PodsInBackoffQ()) > 0
}

// queued is the only pod there is, as the queue has it.
func (r *running) queued() *v1.Pod {
	if pods, _ := r.s.SchedulingQueue.PendingPods(); len(pods) == 1 {
		return pods[0]
	}
	return &v1.Pod{}
}

func (r *running) eventually(what string, holds func() bool) {
	r.Helper()
	for until := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			r.Fatalf("never %s", what)
		}
	}
}

func scheduledBy(name string, pod *v1.Pod) *v1.Pod {
	pod.Spec.SchedulerName = name
	pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "c", "i"
	return pod
}
