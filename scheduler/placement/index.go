// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"unsafe"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// index finds a node's row by the scheduler's own pointer to it. That happens twice for every
// candidate of every pod, and a Go map takes several times as long.
type index struct {
	slots []slot // a power of two, at most a quarter of them in use
	shift uint
}

type slot struct {
	node *framework.NodeInfo
	row  int32
}

func newIndex(nodes []fwk.NodeInfo) index {
	x := index{shift: 60}
	for 4*len(nodes) > 1<<(64-x.shift) {
		x.shift--
	}
	x.slots = make([]slot, 1<<(64-x.shift))
	for row, info := range nodes {
		node := concrete(info)
		at := x.home(node)
		for x.slots[at].node != nil {
			at = (at + 1) % len(x.slots)
		}
		x.slots[at] = slot{node: node, row: int32(row)}
	}
	return x
}

// home is where a node is looked for first. Pointers stay what they are: the rows hold on to them.
func (x *index) home(node *framework.NodeInfo) int {
	const golden = 0x9E3779B97F4A7C15
	return int(uint64(uintptr(unsafe.Pointer(node))) * golden >> x.shift)
}

func (x *index) find(info fwk.NodeInfo) (row int32, has bool) {
	node := concrete(info)
	if node == nil || len(x.slots) == 0 {
		return 0, false
	}
	for at := x.home(node); ; at = (at + 1) & (len(x.slots) - 1) {
		switch found := &x.slots[at]; found.node {
		case node:
			return found.row, true
		case nil:
			return 0, false
		}
	}
}

// concrete is the scheduler's own type behind the interface.
func concrete(info fwk.NodeInfo) *framework.NodeInfo {
	node, _ := info.(*framework.NodeInfo)
	return node
}
