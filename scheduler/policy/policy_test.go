// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const fixtures = "../../api/fixtures/placement"

func readFixture(t testing.TB) *Network { return readPolicy(t, "fixture") }

func readPolicy(t testing.TB, name string) *Network {
	t.Helper()
	card, weights := policyFiles(t, name)
	network, err := Read(card, weights)
	if err != nil {
		t.Fatal(err)
	}
	return network
}

func fixtureFiles(t testing.TB) (card, weights []byte) { return policyFiles(t, "fixture") }

func policyFiles(t testing.TB, name string) (card, weights []byte) {
	t.Helper()
	var err error
	if card, err = os.ReadFile(filepath.Join(fixtures, name+".json")); err != nil {
		t.Fatal(err)
	}
	if weights, err = os.ReadFile(filepath.Join(fixtures, name+".safetensors")); err != nil {
		t.Fatal(err)
	}
	return card, weights
}

type goldenCase struct {
	Nodes struct {
		Pods              []float64  `json:"pods"`
		PodCapacity       []float64  `json:"pod_capacity"`
		CPURequested      []float64  `json:"cpu_requested"`
		CPUAllocatable    []float64  `json:"cpu_allocatable"`
		MemoryRequested   []float64  `json:"memory_requested"`
		MemoryAllocatable []float64  `json:"memory_allocatable"`
		DiskRequested     []float64  `json:"disk_requested"` // in the cases of a policy on disk only
		DiskAllocatable   []float64  `json:"disk_allocatable"`
		Active            []bool     `json:"active"`
		LatencyMS         []*float64 `json:"latency_ms"`
		IdlePowerShare    []*float64 `json:"idle_power_share"`
		Feasible          []bool     `json:"feasible"`
	} `json:"nodes"`
	Pod struct {
		CPURequest    float64  `json:"cpu_request"`
		MemoryRequest float64  `json:"memory_request"`
		DiskRequest   float64  `json:"disk_request"`
		SoftLimitMS   *float64 `json:"soft_limit_ms"`
		HardLimitMS   *float64 `json:"hard_limit_ms"`
	} `json:"pod"`
	Features [][]float32 `json:"features"`
	Q        []float32   `json:"q"`
	Choice   int         `json:"choice"`
	Scores   []int64     `json:"scores"`
}

func orUnknown(value *float64) float64 {
	if value == nil {
		return Unknown
	}
	return *value
}

func (g *goldenCase) world(card *Card) ([]Node, Ask) {
	nodes := make([]Node, len(g.Q))
	var largest Room
	for i := range nodes {
		nodes[i] = Node{
			Pods: g.Nodes.Pods[i], PodCapacity: g.Nodes.PodCapacity[i],
			CPURequested: g.Nodes.CPURequested[i], CPUAllocatable: g.Nodes.CPUAllocatable[i],
			MemoryRequested: g.Nodes.MemoryRequested[i], MemoryAllocatable: g.Nodes.MemoryAllocatable[i],
			Active: g.Nodes.Active[i], Feasible: g.Nodes.Feasible[i],
			LatencyMS: orUnknown(g.Nodes.LatencyMS[i]), IdlePowerShare: orUnknown(g.Nodes.IdlePowerShare[i]),
		}
		if g.Nodes.DiskRequested != nil {
			nodes[i].DiskRequested, nodes[i].DiskAllocatable = g.Nodes.DiskRequested[i], g.Nodes.DiskAllocatable[i]
		}
		largest.Include(&nodes[i])
	}
	pod := Pod{CPURequest: g.Pod.CPURequest, MemoryRequest: g.Pod.MemoryRequest, DiskRequest: g.Pod.DiskRequest,
		SoftLimitMS: orUnknown(g.Pod.SoftLimitMS), HardLimitMS: orUnknown(g.Pod.HardLimitMS)}
	return nodes, NewAsk(card, pod, largest)
}

func goldenCases(t testing.TB) []goldenCase { return casesIn(t, "cases.json") }

func casesIn(t testing.TB, file string) []goldenCase {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures, file))
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func everyRow(rows int) []bool {
	wanted := make([]bool, rows)
	for i := range wanted {
		wanted[i] = true
	}
	return wanted
}

func scoreAll(network *Network, nodes []Node, ask Ask) []float32 {
	cluster := NewCluster(network)
	cluster.Resize(len(nodes))
	for row := range nodes {
		cluster.Mark(row)
	}
	return cluster.Score(&ask, nodes, everyRow(len(nodes)))
}

func close(a, b float32, relative float64) bool {
	return math.Abs(float64(a-b)) <= relative*max(math.Abs(float64(b)), 1e-2)
}

func withAndWithoutVectors(t *testing.T, check func(t *testing.T)) {
	t.Run("vectors", check)
	before := vectors
	vectors = false
	defer func() { vectors = before }()
	t.Run("plain", check)
}

func TestNetwork_GivesTheGoldenValues(t *testing.T) {
	t.Run("memory", func(t *testing.T) { giveTheGoldenValues(t, readFixture(t), goldenCases(t)) })
	t.Run("disk", func(t *testing.T) { giveTheGoldenValues(t, readPolicy(t, "disk"), casesIn(t, "disk-cases.json")) })
}

func giveTheGoldenValues(t *testing.T, network *Network, cases []goldenCase) {
	withAndWithoutVectors(t, func(t *testing.T) {
		for number, golden := range cases {
			nodes, ask := golden.world(&network.Card)
			row := make([]float32, Features)
			for i := range nodes {
				ask.Fill(row, &nodes[i])
				for k, want := range golden.Features[i] {
					if !close(row[k], want, 1e-6) {
						t.Fatalf("case %d node %d feature %d: %g, want %g", number, i, k, row[k], want)
					}
				}
			}
			q := scoreAll(network, nodes, ask)
			for i, want := range golden.Q {
				if !close(q[i], want, 1e-4) {
					t.Fatalf("case %d node %d: Q %g, want %g", number, i, q[i], want)
				}
			}
			checkChoice(t, number, golden, q)
		}
	})
}

func checkChoice(t *testing.T, number int, golden goldenCase, q []float32) {
	t.Helper()
	choice := Choose(q, golden.Nodes.Feasible)
	if choice.Usable != (golden.Choice >= 0) {
		t.Fatalf("case %d: usable %v, but the choice is %d", number, choice.Usable, golden.Choice)
	}
	for i, want := range golden.Scores {
		if !golden.Nodes.Feasible[i] {
			continue
		}
		if got := choice.Score(q[i]); got < want-1 || got > want+1 { // a floor may fall either way
			t.Fatalf("case %d node %d: score %d, want %d", number, i, got, want)
		}
		if (i == golden.Choice) != choice.IsBest(q[i]) {
			t.Fatalf("case %d node %d: best is %v, but the choice is %d", number, i, choice.IsBest(q[i]), golden.Choice)
		}
	}
}

func TestNetwork_PermutingNodesPermutesScores(t *testing.T) {
	network := readFixture(t)
	for number, golden := range goldenCases(t) {
		nodes, ask := golden.world(&network.Card)
		q := append([]float32(nil), scoreAll(network, nodes, ask)...)
		order := rand.New(rand.NewPCG(1, uint64(number))).Perm(len(nodes))
		mixed := make([]Node, len(nodes))
		for i, from := range order {
			mixed[i] = nodes[from]
		}
		for i, got := range scoreAll(network, mixed, ask) {
			if !close(got, q[order[i]], 1e-5) {
				t.Fatalf("case %d: Q changed with the order: %g, was %g", number, got, q[order[i]])
			}
		}
	}
}

func TestCluster_KeepsOnlyWhatDidNotChange(t *testing.T) {
	network := readFixture(t)
	random := rand.New(rand.NewPCG(7, 7))
	nodes, ask := aCluster(random, 333)
	cluster := NewCluster(network)
	cluster.Resize(len(nodes))
	for row := range nodes {
		cluster.Mark(row)
	}
	cluster.Score(&ask, nodes, everyRow(len(nodes)))
	for range 50 {
		for range random.IntN(4) + 1 {
			row := random.IntN(len(nodes))
			nodes[row].CPURequested = random.Float64() * nodes[row].CPUAllocatable
			nodes[row].Feasible = !nodes[row].Feasible
			if !contains(cluster.dirty, row) {
				cluster.Mark(row)
			}
		}
		q := cluster.Score(&ask, nodes, everyRow(len(nodes)))
		for row, want := range scoreAll(network, nodes, ask) {
			if q[row] != want {
				t.Fatalf("row %d: %g, but from scratch %g", row, q[row], want)
			}
		}
	}
}

func TestCluster_ForgettingToMarkARowShows(t *testing.T) {
	network := readFixture(t)
	nodes, ask := aCluster(rand.New(rand.NewPCG(7, 7)), 40)
	cluster := NewCluster(network)
	cluster.Resize(len(nodes))
	for row := range nodes {
		cluster.Mark(row)
	}
	before := cluster.Score(&ask, nodes, everyRow(len(nodes)))[3]
	nodes[3].CPURequested += 1000
	if after := cluster.Score(&ask, nodes, everyRow(len(nodes)))[3]; after != before {
		t.Fatalf("an unmarked row changed from %g to %g", before, after)
	}
	if fresh := scoreAll(network, nodes, ask)[3]; fresh == before {
		t.Fatal("the change does not matter, so this test shows nothing")
	}
}

func contains(rows []int32, row int) bool {
	for _, one := range rows {
		if int(one) == row {
			return true
		}
	}
	return false
}

func aCluster(random *rand.Rand, size int) ([]Node, Ask) {
	nodes := make([]Node, size)
	for i := range nodes {
		nodes[i] = Node{
			Pods: float64(random.IntN(50)), PodCapacity: 110,
			CPURequested: float64(random.IntN(4000)), CPUAllocatable: 8000,
			MemoryRequested: float64(random.IntN(8000)), MemoryAllocatable: 16000,
			LatencyMS: random.Float64() * 60, IdlePowerShare: 0.4, Active: i%3 > 0, Feasible: i%5 > 0,
		}
	}
	pod := Pod{CPURequest: 250, MemoryRequest: 100, SoftLimitMS: 20, HardLimitMS: 30}
	return nodes, NewAsk(&Card{}, pod, Room{CPU: 8000, Memory: 16000})
}

func TestKernels_VectorsGiveWhatPlainLoopsGive(t *testing.T) {
	if !vectors {
		t.Skip("this processor has no AVX2: only the plain loops run here")
	}
	random := rand.New(rand.NewPCG(3, 3))
	numbers := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(random.NormFloat64())
		}
		return values
	}
	for _, in := range []int{1, 2, 17, 18, 32, 96} {
		for _, least := range []float32{0, -math.MaxFloat32} {
			x, w, b := numbers(8*in), numbers(in*32), numbers(32)
			want, got := make([]float32, 8*32), make([]float32, 8*32)
			for column := 0; column < 32; column += lane {
				plainDense(want[column:], x, w[column:], b[column:], 2, in, in, 32, 32, least)
				dense(got[column:], x, w[column:], b[column:], 2, in, in, 32, 32, least)
			}
			for i := range want {
				if math.Abs(float64(got[i]-want[i])) > 1e-4 {
					t.Fatalf("in %d: %g, want %g", in, got[i], want[i])
				}
			}
		}
	}
	a, b, w := numbers(48), numbers(48), numbers(48)
	if got, want := reluDot(a, b, w), plainReluDot(a, b, w); math.Abs(float64(got-want)) > 1e-4 {
		t.Fatalf("reluDot: %g, want %g", got, want)
	}
}

func TestRead_RefusesWhatItCannotRun(t *testing.T) {
	card, weights := fixtureFiles(t)
	changed := func(old, new string) []byte { return []byte(strings.Replace(string(card), old, new, 1)) }
	cases := map[string]struct {
		card, weights []byte
		says          string
	}{
		"truncated weights":    {card, weights[:len(weights)-1], "but these are"},
		"empty weights":        {card, nil, "but these are"},
		"card that is no JSON": {[]byte("\x80\x04."), weights, "cannot be read"},
		"another schema":       {changed("placement/v1", "placement/v2"), weights, "placement/v2"},
		"another feature":      {changed("pods_share", "disk_share"), weights, "disk_share"},
		"another resource":     {changed("memory_requested_share", "gpu_requested_share"), weights, "gpu_requested_share"},
		"half of a resource":   {changed("memory_requested_share", "disk_requested_share"), weights, "all with disk"},
		"the pod's half":       {changed("memory_request_share", "disk_request_share"), weights, "all with disk"},
		"another size":         {changed("96", "48"), weights, "3 encodings"},
		"a divisor of zero":    {changed("100.0", "0.0"), weights, "scaling"},
		"another activation":   {changed("relu", "tanh"), weights, "tanh"},
		"weights of another":   {changed("e1a6", "0000"), weights, "but these are"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Read(c.card, c.weights)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("said %v, want something about %q", err, c.says)
			}
		})
	}
}

func TestDecodeSafetensors_RefusesWhatIsNotThere(t *testing.T) {
	_, weights := fixtureFiles(t)
	nan := append([]byte(nil), weights...)
	copy(nan[len(nan)-4:], []byte{0, 0, 0xc0, 0x7f})
	huge := append([]byte(nil), weights...)
	copy(huge[len(huge)-4:], []byte{0, 0, 0x80, 0x7e})
	cases := map[string][]byte{
		"truncated": weights[:len(weights)-4], "longer": append(append([]byte(nil), weights...), 0),
		"pickle": []byte("\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins"),
		"zip":    []byte("PK\x03\x04\x14\x00\x00\x00\x08\x00aaaaaaaaaaaaaaaa"),
		"nan":    nan, "huge": huge, "empty": nil,
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := decodeSafetensors(data); err == nil {
				t.Fatal("it was read")
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	card, weights := fixtureFiles(f)
	f.Add(card, weights)
	f.Add([]byte("{}"), []byte("PK"))
	f.Fuzz(func(t *testing.T, card, weights []byte) {
		_, _ = Read(card, weights)
		_, _ = decodeSafetensors(weights)
	})
}

func TestScore_AllocatesNothing(t *testing.T) {
	nodes, ask := aCluster(rand.New(rand.NewPCG(1, 1)), 1000)
	cluster := NewCluster(readFixture(t))
	cluster.Resize(len(nodes))
	wanted := everyRow(len(nodes))
	if allocations := testing.AllocsPerRun(20, func() {
		for row := range nodes {
			cluster.Mark(row)
		}
		Choose(cluster.Score(&ask, nodes, wanted), wanted)
	}); allocations != 0 {
		t.Fatalf("%g allocations per cycle", allocations)
	}
}

// One cycle at 1,000 and 5,000 nodes: a pod unlike the one before (every node anew), and one like
// it (two nodes changed).
func BenchmarkScore(b *testing.B) {
	for _, size := range []int{1000, 5000} {
		nodes, ask := aCluster(rand.New(rand.NewPCG(1, 1)), size)
		cluster := NewCluster(readFixture(b))
		cluster.Resize(size)
		wanted := everyRow(size)
		run := func(changed int) func(b *testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for row := range changed {
						cluster.Mark(row)
					}
					Choose(cluster.Score(&ask, nodes, wanted), wanted)
				}
			}
		}
		name := map[int]string{1000: "1000", 5000: "5000"}[size]
		b.Run(name+"nodes/anotherpod", run(size))
		b.Run(name+"nodes/likebefore", run(2))
	}
}
