// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"
	"slices"
)

// lane is how many columns the kernel works on at once; widths are padded to a multiple of it.
const lane = 16

// rowGroup is how many rows the kernel works on at once; buffers hold a multiple of it.
const rowGroup = 4

// Network is the set network. It is read-only once made and may be shared.
//
// A node's encoding depends on that node and the pod alone, so it can be kept between pods (see
// Cluster). What the rest of the cluster looks like enters through the pool, in the head.
type Network struct {
	Card    Card
	encoder []layer
	own     layer     // the head's first layer, as far as it concerns the node's own encoding
	shared  layer     // the head's first layer, as far as it concerns the pool; holds the bias
	rest    []layer   // the head's other layers
	final   []float32 // the weights of a head's second and last layer, without their padding
	width   int       // of an encoding, padded
	scratch int       // widest hidden layer, padded
}

// layer is y = x W + b with the output padded to whole lanes by zeros.
type layer struct {
	in, out int
	weight  []float32 // (in, out)
	bias    []float32 // (out)
}

func padded(width int) int {
	return (width + lane - 1) / lane * lane
}

func newNetwork(c Card, tensors map[string]tensor) (*Network, error) {
	n := &Network{Card: c}
	encoder, err := takeLayers(tensors, "encoder", c.Network.Encoder)
	if err != nil {
		return nil, err
	}
	head, err := takeLayers(tensors, "head", c.Network.Head)
	if err != nil {
		return nil, err
	}
	if len(tensors) > 0 {
		return nil, fmt.Errorf("the weights hold %d tensors that the card does not know", len(tensors))
	}
	n.scaleInputs(encoder[0])
	in := Features
	for _, l := range encoder {
		n.encoder = append(n.encoder, l.pad(in))
		in = padded(l.out)
	}
	n.width = in
	n.splitHead(head, c.Network.Encoder[len(c.Network.Encoder)-1])
	n.scratch = n.width
	for _, l := range slices.Concat(n.encoder, n.rest, []layer{n.own}) {
		n.scratch = max(n.scratch, l.out)
	}
	return n, nil
}

// scaleInputs folds the card's divisors into the first layer, so that they cost nothing per node.
func (n *Network) scaleInputs(first layer) {
	names := slices.Concat(n.Card.NodeFeatures, n.Card.PodFeatures)
	for k, name := range names {
		if divisor, has := n.Card.Scaling[name]; has {
			for j := range first.out {
				first.weight[k*first.out+j] /= float32(divisor)
			}
		}
	}
}

// splitHead takes the head's first layer apart: the pool is the same for all nodes, so its share
// of the product is worked out once per pod and not once per node.
func (n *Network) splitHead(head []layer, encoding int) {
	first := head[0]
	rows := func(from int) []float32 { return first.weight[from*first.out : (from+encoding)*first.out] }
	own := layer{in: encoding, out: first.out, weight: rows(0), bias: make([]float32, first.out)}
	n.own = own.pad(n.width)
	mean := layer{in: encoding, out: first.out, weight: rows(encoding), bias: first.bias}.pad(n.width)
	most := layer{in: encoding, out: first.out, weight: rows(2 * encoding), bias: first.bias}.pad(n.width)
	n.shared = layer{in: 2 * n.width, out: mean.out, weight: slices.Concat(mean.weight, most.weight), bias: mean.bias}
	in := n.own.out
	for _, l := range head[1:] {
		n.rest = append(n.rest, l.pad(in))
		in = padded(l.out)
	}
	if len(n.rest) == 1 {
		n.final = make([]float32, n.rest[0].in)
		for k := range n.final {
			n.final[k] = n.rest[0].weight[k*n.rest[0].out]
		}
	}
}

// pad gives a layer inputs zero rows of weights and outputs zero columns.
func (l layer) pad(in int) layer {
	out := padded(l.out)
	wide := layer{in: in, out: out, weight: make([]float32, in*out), bias: make([]float32, out)}
	for k := range l.in {
		copy(wide.weight[k*out:], l.weight[k*l.out:(k+1)*l.out])
	}
	copy(wide.bias, l.bias)
	return wide
}

func takeLayers(tensors map[string]tensor, part string, widths []int) ([]layer, error) {
	layers := make([]layer, 0, len(widths)-1)
	for k := range len(widths) - 1 {
		weight, err := take(tensors, fmt.Sprintf("%s.%d.weight", part, k), widths[k:k+2])
		if err != nil {
			return nil, err
		}
		bias, err := take(tensors, fmt.Sprintf("%s.%d.bias", part, k), widths[k+1:k+2])
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer{in: widths[k], out: widths[k+1], weight: weight, bias: bias})
	}
	return layers, nil
}

func take(tensors map[string]tensor, name string, shape []int) ([]float32, error) {
	found, has := tensors[name]
	if !has {
		return nil, fmt.Errorf("the tensor %q is missing", name)
	}
	if !slices.Equal(found.shape, shape) {
		return nil, fmt.Errorf("the tensor %q is %v, but the card says %v", name, found.shape, shape)
	}
	delete(tensors, name)
	return found.data, nil
}

// apply runs rows (a multiple of rowGroup) through the layer; with relu nothing stays negative.
func (l *layer) apply(y, x []float32, rows int, relu bool) {
	least := float32(-math.MaxFloat32)
	if relu {
		least = 0
	}
	for column := 0; column < l.out; column += lane {
		dense(y[column:], x, l.weight[column:], l.bias[column:], rows/rowGroup, l.in, l.in, l.out, l.out, least)
	}
}
