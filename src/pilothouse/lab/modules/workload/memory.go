// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"syscall"
	"time"
)

const mebibyte = 1 << 20

// hoard is memory that is really touched, outside Go's heap, so that it counts and can be returned.
type hoard struct {
	mutex         sync.Mutex
	blocks        [][]byte
	perMinuteMebi int64
}

// resize grows or shrinks to so many mebibytes.
func (h *hoard) resize(mebi int64) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.resizeLocked(mebi)
}

func (h *hoard) resizeLocked(mebi int64) error {
	for int64(len(h.blocks)) > max(mebi, 0) {
		last := len(h.blocks) - 1
		if err := syscall.Munmap(h.blocks[last]); err != nil {
			return err
		}
		h.blocks = h.blocks[:last]
	}
	for int64(len(h.blocks)) < mebi {
		block, err := syscall.Mmap(-1, 0, mebibyte,
			syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return err
		}
		for at := 0; at < mebibyte; at += 4096 {
			block[at] = 1
		}
		h.blocks = append(h.blocks, block)
	}
	return nil
}

func (h *hoard) size() int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return int64(len(h.blocks))
}

// growBy sets the growth in mebibytes per minute; 0 stops it and keeps what there is.
func (h *hoard) growBy(perMinute int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.perMinuteMebi = perMinute
}

// run grows once a second; what is less than a mebibyte is carried over.
func (h *hoard) run() {
	owed := int64(0)
	for range time.Tick(time.Second) {
		h.mutex.Lock()
		owed += h.perMinuteMebi
		step := owed / 60
		owed -= step * 60
		if step != 0 {
			_ = h.resizeLocked(int64(len(h.blocks)) + step) // out of memory ends the process anyway
		}
		h.mutex.Unlock()
	}
}
