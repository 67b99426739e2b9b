// SPDX-License-Identifier: Apache-2.0

// Command policy-scores runs a policy over clusters given as plain columns, so that tests can hold
// this implementation against the others: policy-scores CARD WEIGHTS < clusters > answers.
//
// A cluster is a little-endian uint32 (nodes), five float64 of the pod (CPU, memory, soft and hard
// limit, disk) and twelve float64 per node, in the order below; what comes out is per node a float32,
// its value, and an int32, its score among the feasible ones: 100 is this implementation's choice.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"pilothouse.dev/scheduler/policy"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "policy-scores:", err)
		os.Exit(1)
	}
}

func run(arguments []string, in io.Reader, out io.Writer) error {
	if len(arguments) != 2 {
		return errors.New("give a card and its weights")
	}
	card, err := os.ReadFile(arguments[0])
	if err != nil {
		return err
	}
	weights, err := os.ReadFile(arguments[1])
	if err != nil {
		return err
	}
	network, err := policy.Read(card, weights)
	if err != nil {
		return err
	}
	reader, writer := bufio.NewReader(in), bufio.NewWriter(out)
	cluster := policy.NewCluster(network)
	for {
		var count uint32
		if err := binary.Read(reader, binary.LittleEndian, &count); errors.Is(err, io.EOF) {
			return writer.Flush()
		} else if err != nil {
			return err
		}
		if err := scoreOne(&network.Card, cluster, int(count), reader, writer); err != nil {
			return err
		}
	}
}

const ofPod, ofNode = 5, 12

func scoreOne(card *policy.Card, cluster *policy.Cluster, count int, in io.Reader, out io.Writer) error {
	values := make([]float64, ofPod+ofNode*count)
	if err := binary.Read(in, binary.LittleEndian, values); err != nil {
		return err
	}
	pod := policy.Pod{
		CPURequest: values[0], MemoryRequest: values[1], DiskRequest: values[4],
		SoftLimitMS: values[2], HardLimitMS: values[3],
	}
	nodes, wanted, feasible := make([]policy.Node, count), make([]bool, count), make([]bool, count)
	var largest policy.Room
	cluster.Resize(count)
	for i := range nodes {
		v := values[ofPod+ofNode*i:]
		nodes[i] = policy.Node{
			Pods: v[0], PodCapacity: v[1], CPURequested: v[2], CPUAllocatable: v[3],
			MemoryRequested: v[4], MemoryAllocatable: v[5], Active: v[6] != 0,
			LatencyMS: v[7], IdlePowerShare: v[8], Feasible: v[9] != 0,
			DiskRequested: v[10], DiskAllocatable: v[11],
		}
		largest.Include(&nodes[i])
		wanted[i], feasible[i] = true, nodes[i].Feasible
		cluster.Mark(i)
	}
	ask := policy.NewAsk(card, pod, largest)
	q := cluster.Score(&ask, nodes, wanted)
	choice := policy.Choose(q, feasible)
	told := make([]answer, count)
	for i := range told {
		told[i].Value = q[i]
		if feasible[i] && choice.Usable {
			told[i].Score = int32(choice.Score(q[i]))
		}
	}
	return binary.Write(out, binary.LittleEndian, told)
}

// answer is what is told of a node.
type answer struct {
	Value float32
	Score int32
}
