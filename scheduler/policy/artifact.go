// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
)

const (
	schema       = "pilothouse.placement/v1"
	mostBytes    = 8 << 20
	mostHeader   = 64 << 10
	mostWidth    = 512
	mostLayers   = 6
	mostWeight   = 1e6
	dtypeFloat32 = "F32"
)

// Card says what a policy is; only what running it needs is read here.
type Card struct {
	Schema        string             `json:"schema"`
	Policy        string             `json:"policy"`
	NodeFeatures  []string           `json:"node_features"`
	PodFeatures   []string           `json:"pod_features"`
	Scaling       map[string]float64 `json:"scaling"`
	Network       Shape              `json:"network"`
	WeightsSHA256 string             `json:"weights_sha256"`
}

// Shape is the widths of the layers, input first.
type Shape struct {
	Encoder    []int    `json:"encoder"`
	Head       []int    `json:"head"`
	Activation string   `json:"activation"`
	Pool       []string `json:"pool"`
}

// Version tells two policies apart.
func (c Card) Version() string {
	if len(c.WeightsSHA256) < 12 {
		return c.Policy
	}
	return c.Policy + "-" + c.WeightsSHA256[:12]
}

// BesideCPU is the resource that the policy sees beside CPU: "memory" or "disk".
func (c *Card) BesideCPU() string {
	if slices.Contains(c.NodeFeatures, seesDisk) {
		return disk
	}
	return memory
}

// Read makes a network of a card and its weights, or says why it cannot be run.
func Read(card, weights []byte) (*Network, error) {
	var c Card
	if err := json.Unmarshal(card, &c); err != nil {
		return nil, fmt.Errorf("the card cannot be read: %w", err)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(weights)
	if found := hex.EncodeToString(sum[:]); found != c.WeightsSHA256 {
		return nil, fmt.Errorf("the card is about weights %.12s, but these are %.12s", c.WeightsSHA256, found)
	}
	tensors, err := decodeSafetensors(weights)
	if err != nil {
		return nil, err
	}
	return newNetwork(c, tensors)
}

func (c Card) check() error {
	if c.Schema != schema {
		return fmt.Errorf("the policy follows %q, but this build runs %q", c.Schema, schema)
	}
	ofNode, ofPod := seeing(NodeFeatures, c.BesideCPU()), seeing(PodFeatures, c.BesideCPU())
	if !slices.Equal(c.NodeFeatures, ofNode) || !slices.Equal(c.PodFeatures, ofPod) {
		return fmt.Errorf("the policy sees the features %v and %v, but this build makes %v and %v, "+
			"all with memory or all with disk",
			c.NodeFeatures, c.PodFeatures, NodeFeatures, PodFeatures)
	}
	for name, divisor := range c.Scaling {
		known := slices.Contains(ofNode, name) || slices.Contains(ofPod, name)
		if !known || !(divisor >= 1e-6 && divisor <= 1e6) {
			return fmt.Errorf("the scaling of %q by %g cannot be used", name, divisor)
		}
	}
	return c.Network.check()
}

func (s Shape) check() error {
	for _, part := range [][]int{s.Encoder, s.Head} {
		if len(part) < 2 || len(part) > mostLayers+1 {
			return fmt.Errorf("a part of the network has %d widths, not 2 to %d", len(part), mostLayers+1)
		}
		for _, width := range part {
			if width < 1 || width > mostWidth {
				return fmt.Errorf("a layer is %d wide, not 1 to %d", width, mostWidth)
			}
		}
	}
	last := s.Encoder[len(s.Encoder)-1]
	if s.Encoder[0] != Features || s.Head[0] != 3*last || s.Head[len(s.Head)-1] != 1 {
		return fmt.Errorf("the network %v, %v does not go from %d features over 3 encodings to one Q",
			s.Encoder, s.Head, Features)
	}
	if s.Activation != "relu" || !slices.Equal(s.Pool, []string{"mean", "max"}) {
		return fmt.Errorf("the network asks for %q and %v, not relu and mean, max", s.Activation, s.Pool)
	}
	return nil
}

type tensor struct {
	shape []int
	data  []float32
}

type entry struct {
	Dtype   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

func decodeSafetensors(data []byte) (map[string]tensor, error) {
	if len(data) > mostBytes {
		return nil, fmt.Errorf("the weights are larger than %d bytes", mostBytes)
	}
	if len(data) < 8 {
		return nil, fmt.Errorf("the weights are cut off")
	}
	length := binary.LittleEndian.Uint64(data)
	if length < 2 || length > mostHeader || length > uint64(len(data)-8) {
		return nil, fmt.Errorf("the weights' header is missing, cut off or too long: not a safetensors file")
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(data[8:8+length], &header); err != nil {
		return nil, fmt.Errorf("the weights' header cannot be read: %w", err)
	}
	delete(header, "__metadata__")
	return sliceTensors(header, data[8+length:])
}

func sliceTensors(header map[string]json.RawMessage, data []byte) (map[string]tensor, error) {
	entries := make(map[string]entry, len(header))
	names := make([]string, 0, len(header))
	for name, raw := range header {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		var e entry
		if err := decoder.Decode(&e); err != nil {
			return nil, fmt.Errorf("the header of tensor %q cannot be read: %w", name, err)
		}
		entries[name] = e
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return entries[names[i]].Offsets[0] < entries[names[j]].Offsets[0] })
	tensors := make(map[string]tensor, len(names))
	expected := int64(0)
	for _, name := range names {
		e := entries[name]
		size, err := e.elements()
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		// Without gaps or overlaps: what is claimed and what is there must be the same bytes.
		if e.Offsets[0] != expected || e.Offsets[1]-e.Offsets[0] != 4*size || e.Offsets[1] > int64(len(data)) {
			return nil, fmt.Errorf("the bytes of tensor %q are not where its header says", name)
		}
		values, err := floats(data[e.Offsets[0]:e.Offsets[1]])
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		tensors[name] = tensor{shape: e.Shape, data: values}
		expected = e.Offsets[1]
	}
	if expected != int64(len(data)) {
		return nil, fmt.Errorf("%d bytes follow the last tensor", int64(len(data))-expected)
	}
	return tensors, nil
}

func (e entry) elements() (int64, error) {
	if e.Dtype != dtypeFloat32 {
		return 0, fmt.Errorf("it holds %q, but only %s is read", e.Dtype, dtypeFloat32)
	}
	if len(e.Shape) == 0 || len(e.Shape) > 2 {
		return 0, fmt.Errorf("it has the shape %v", e.Shape)
	}
	size := int64(1)
	for _, width := range e.Shape {
		if width < 1 || width > 3*mostWidth {
			return 0, fmt.Errorf("it has the shape %v", e.Shape)
		}
		size *= int64(width)
	}
	return size, nil
}

func floats(data []byte) ([]float32, error) {
	values := make([]float32, len(data)/4)
	for i := range values {
		value := math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		if !isFinite(float64(value)) || math.Abs(float64(value)) > mostWeight {
			return nil, fmt.Errorf("it holds the weight %g", value)
		}
		values[i] = value
	}
	return values, nil
}
