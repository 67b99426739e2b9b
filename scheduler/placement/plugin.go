// SPDX-License-Identifier: Apache-2.0

// Package placement is the scheduler plugin PilothousePlacement: it scores nodes with a trained
// policy, in the scheduler's own process.
//
// A scheduling cycle never waits for anything: the policy, latencies and published suggestions
// come from a table that a background refresher keeps, and records of placements leave through a
// bounded queue. When the table is stale, missing or switched off, or when anything panics, the
// plugin skips and the other plugins decide; where too few others score a fallback does.
package placement

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name is what profiles call the plugin.
const Name = "PilothousePlacement"

const stateKey = fwk.StateKey(Name)

// Paths a placement can take, as records and metrics name them.
const (
	pathScored     = "scored"
	pathOverridden = "overridden" // by a suggestion published for this very pod
	pathFallback   = "fallback"
	pathSkipped    = "skipped"
	pathSingle     = "single"    // only one node was feasible: nobody scored
	pathHint       = "hint"      // the scheduler used its own result for an equal pod
	pathNominated  = "nominated" // preemption had made room there
)

// Placement is the plugin; one per profile.
type Placement struct {
	args      *Args
	handle    fwk.Handle
	refresher *refresher
	traffic   *traffic
	recorder  *recorder
	recording sync.WaitGroup
	stop      context.CancelFunc
	rejected  *rejected
	rows      *rows // only touched within scheduling cycles, which come one after the other
	hints     hints // likewise
	serial    uint64
	scoring   *cycle // the one in hand: set by PreScore, for the Scores that follow
	comparing atomic.Int32
}

var (
	_ fwk.PreScorePlugin    = (*Placement)(nil)
	_ fwk.ScorePlugin       = (*Placement)(nil)
	_ fwk.PreFilterPlugin   = (*Placement)(nil)
	_ fwk.FilterPlugin      = (*Placement)(nil)
	_ fwk.EnqueueExtensions = (*Placement)(nil)
	_ fwk.ReservePlugin     = (*Placement)(nil)
	_ fwk.PostBindPlugin    = (*Placement)(nil)
	_ fwk.SignPlugin        = (*Placement)(nil)
	_ io.Closer             = (*Placement)(nil)
)

// cycle is what the plugin remembers of one pod's scheduling cycle.
type cycle struct {
	pod        *v1.Pod
	path, why  string
	serial     uint64
	wish       wish
	suggestion suggestion
	table      *table
	took       time.Duration
	record     *Record
}

// Clone implements fwk.StateData; a cycle is not changed by simulated additions and removals.
func (c *cycle) Clone() fwk.StateData { return c }

// New makes the plugin and starts what runs beside the scheduling cycles; all of it ends with ctx,
// or with Close.
func New(ctx context.Context, given runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := ReadArgs(given)
	if err != nil {
		return nil, err
	}
	registerMetrics()
	trusted, err := newTrust(args.CAFile)
	if err != nil {
		return nil, err
	}
	p := newPlacement(args, handle, trusted)
	ctx, p.stop = context.WithCancel(ctx)
	if args.Mode != Off {
		go p.refresher.run(ctx)
		p.recording.Go(func() { p.recorder.run(ctx) })
	}
	if p.traffic != nil {
		go p.traffic.run(ctx)
	}
	klog.FromContext(ctx).Info("Placement plugin ready", "profile", handle.ProfileName(), "mode", args.Mode,
		"scorer", args.ScorerAddress, "fallback", args.Fallback)
	return p, nil
}

// newPlacement puts the parts together; nothing runs yet.
func newPlacement(args *Args, handle fwk.Handle, trusted *trust) *Placement {
	p := &Placement{args: args, handle: handle, rows: newRows(args.UncountedNamespaces)}
	p.hints.profile = handle.ProfileName()
	p.rejected = newRejected(handle)
	p.recorder = newRecorder(args, trusted)
	p.refresher = newRefresher(args, trusted, p.rejected.retry)
	if args.Fallback == NetworkTraffic {
		p.traffic = newTraffic(args, trusted)
	}
	return p
}

// Name implements fwk.Plugin.
func (p *Placement) Name() string { return Name }

// Close ends what New started and waits, for lastSends at most, until the last records are sent.
// The scheduler calls it when it ends.
func (p *Placement) Close() error {
	p.stop()
	p.recording.Wait()
	return nil
}

// recovered turns a panic into a count and a line in the log. Deferred, and only deferred.
func recovered(where string) {
	if caught := recover(); caught != nil {
		note(where, caught)
	}
}

func note(where string, caught any) {
	panics.WithLabelValues(where).Inc()
	klog.Background().Error(fmt.Errorf("%v", caught), "Recovered from a panic in the placement plugin", "where", where)
}

// PreScore works out the scores of all candidates at once.
func (p *Placement) PreScore(
	_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) (status *fwk.Status) {
	started := time.Now()
	p.serial++
	c := &cycle{pod: pod, serial: p.serial}
	p.scoring = c
	defer func() {
		if caught := recover(); caught != nil {
			note("prescore", caught)
			p.rows = newRows(p.args.UncountedNamespaces) // whatever it was halfway through is gone
			status = p.skip(c, "panic")
		}
		c.took = time.Since(started)
		path := c.path
		if c.why != "" {
			path += ": " + c.why
		}
		cycles.WithLabelValues(path).Inc()
		forward.WithLabelValues(c.path).Observe(c.took.Seconds())
		state.Write(stateKey, c)
	}()
	return p.preScore(c, pod, nodes, started)
}

func (p *Placement) preScore(c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo, now time.Time) *fwk.Status {
	c.wish = wishOf(pod)
	if p.args.Mode == Off {
		return p.skip(c, "off")
	}
	t := p.refresher.current.Load()
	if t == nil {
		return p.skip(c, "no table")
	}
	if !t.isFresh(now) {
		return p.skip(c, "stale table")
	}
	tableAge.Set(now.Sub(t.fetched).Seconds())
	c.table = t
	list, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return p.skip(c, "no snapshot")
	}
	if err := p.rows.score(list, nodes, t, c.wish); err != nil {
		c.table = nil // there are no numbers to record
		return p.skip(c, "unknown candidate")
	}
	if !p.rows.choice.Usable {
		return p.skip(c, "scores that are no numbers")
	}
	if p.args.Mode == Shadow {
		return p.skip(c, "shadow")
	}
	c.path = pathScored
	if given, has := t.suggestionFor(string(pod.UID), now); has {
		p.override(c, given)
	}
	return nil
}

// override puts a suggestion in the policy's place, unless it favors no candidate: all would score
// alike then, and nobody would have chosen.
func (p *Placement) override(c *cycle, given suggestion) {
	if !p.rows.favors(given) {
		c.why = "suggestion favors no candidate"
		return
	}
	c.path, c.suggestion = pathOverridden, given
	p.hints.overridden()
}

// skip leaves the choice to the others, or to the fallback where they are too few. Who else would
// decide in shadow? The fallback then, too.
func (p *Placement) skip(c *cycle, why string) *fwk.Status {
	c.path, c.why = pathSkipped, why
	if p.args.Fallback != NoFallback {
		c.path = pathFallback
		return nil
	}
	return fwk.NewStatus(fwk.Skip)
}

// Score looks up what PreScore worked out.
func (p *Placement) Score(
	_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo,
) (score int64, status *fwk.Status) {
	defer recovered("score")
	c := p.scoring // spares a lookup per node
	if c == nil || c.pod != pod {
		c = readCycle(state)
	}
	switch {
	case c == nil:
		return 0, nil
	case c.path == pathFallback:
		return p.fallback(&c.wish, info), nil
	case c.path == pathOverridden && c.serial == p.serial:
		return p.rows.suggestedScore(c.suggestion, info), nil
	case c.path == pathScored && c.serial == p.serial:
		return p.rows.scoreOf(info), nil
	}
	return 0, nil
}

// ScoreExtensions implements fwk.ScorePlugin; scores are between 0 and 100 already.
func (p *Placement) ScoreExtensions() fwk.ScoreExtensions { return nil }

func readCycle(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// fallback scores where the policy does not. It is asked for every candidate of every pod.
func (p *Placement) fallback(w *wish, info fwk.NodeInfo) int64 {
	if p.traffic != nil {
		if score, known := p.traffic.score(info.Node()); known {
			return score
		}
	}
	return leastAllocated(w, info)
}

// SignPod says what of a pod the scores depend on, so that the scheduler may use one result for
// several equal pods. A pod with a suggestion of its own is like no other; what is published after
// this the filter looks after, as long as it can (see hints).
func (p *Placement) SignPod(_ context.Context, pod *v1.Pod) (fragments []fwk.SignFragment, status *fwk.Status) {
	defer func() {
		if caught := recover(); caught != nil {
			note("sign", caught)
			fragments, status = nil, fwk.NewStatus(fwk.Unschedulable, "the pod could not be looked at")
		}
	}()
	if p.args.Mode == Off {
		return nil, nil
	}
	if p.args.Mode == Enforce && !countsHints() {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the scheduler does not count its hints")
	}
	if t := p.refresher.current.Load(); t != nil {
		if _, has := t.suggestions[string(pod.UID)]; has {
			return nil, fwk.NewStatus(fwk.Unschedulable, "a suggestion was published for this pod")
		}
	}
	w := wishOf(pod)
	value := fmt.Sprintf("%g %g %g %g %g %s",
		w.CPURequest, w.MemoryRequest, w.DiskRequest, w.SoftLimitMS, w.HardLimitMS, w.user)
	return []fwk.SignFragment{{Key: prefix + "placement()", Value: value}}, nil
}

// Reserve notes the facts of the placement while they are at hand; it never refuses.
func (p *Placement) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	defer recovered("reserve")
	p.rejected.forget(pod)
	c := readCycle(state)
	if c == nil || c.path != pathOverridden {
		hinted := p.hints.end() && !refusesHints(state)
		if c == nil {
			state.Write(stateKey, &cycle{pod: pod, path: unscoredPath(pod, nodeName, hinted)})
			return nil
		}
	}
	if c.table == nil || c.serial != p.serial || p.rows.q == nil {
		return nil
	}
	row, has := p.rows.byName[nodeName]
	if !has {
		return nil
	}
	agreed := p.rows.candidate[row] && p.rows.choice.IsBest(p.rows.q[row])
	if p.args.Mode == Shadow && p.rows.choice.Usable {
		compared(Shadow, agreed)
	}
	c.record = p.describe(c, row)
	if p.args.Mode == Enforce && rand.Float64() < p.args.CompareShare {
		p.compareWithDefault(pod, row)
	}
	return nil
}

// Unreserve implements fwk.ReservePlugin.
func (p *Placement) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}

// PostBind hands the record over. It runs outside the scheduling cycle.
func (p *Placement) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	defer recovered("postbind")
	if p.args.Mode == Off || p.args.JournalAddress == "" {
		return
	}
	record := &Record{}
	if c := readCycle(state); c != nil {
		if c.record != nil {
			record = c.record
		}
		record.Path, record.Why = c.path, c.why
		record.PreScoreMicroseconds = c.took.Microseconds()
	} else {
		record.Path, record.Why = pathSkipped, "not seen when it was reserved"
	}
	record.Pod, record.Namespace, record.UID, record.Node = pod.Name, pod.Namespace, string(pod.UID), nodeName
	record.Mode, record.Profile, record.At = p.args.Mode, p.handle.ProfileName(), time.Now().UTC()
	p.recorder.enqueue(record)
}
