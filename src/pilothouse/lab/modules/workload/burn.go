// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// period is how often a burner asks for its share; shorter than the kernel's quota period of
// 100 ms would only measure the kernel's rounding.
const period = 100 * time.Millisecond

// rusageThread is RUSAGE_THREAD, which package syscall does not name.
const rusageThread = 1

// threadCPU is the processor time of the calling thread; the caller must be locked to it.
func threadCPU() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(rusageThread, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// spin uses so much processor time, however long that takes: a throttled pod is slow, not cheap.
func spin(work time.Duration) {
	if work <= 0 {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	until := threadCPU() + work
	sink := uint64(1)
	for threadCPU() < until {
		for range 2000 {
			sink = sink*6364136223846793005 + 1442695040888963407
		}
	}
	runtime.KeepAlive(sink)
}

// burner asks for a constant number of millicores and never catches up on what it did not get.
type burner struct {
	millicores atomic.Int64
}

// run keeps one lane per core busy: lane n burns what lies between n and n+1 cores of the demand.
func (b *burner) run(lanes int) {
	for lane := range lanes {
		go func() {
			for {
				started := time.Now()
				mine := min(max(b.millicores.Load()-int64(lane)*1000, 0), 1000)
				spin(period * time.Duration(mine) / 1000)
				if rest := period - time.Since(started); rest > 0 {
					time.Sleep(rest)
				}
			}
		}()
	}
}

// flap alternates between full demand and none, which no forecast of a level can follow.
func (b *burner) flap(millicores int64, each time.Duration) {
	for range time.Tick(each) {
		if b.millicores.Load() > 0 {
			b.millicores.Store(0)
		} else {
			b.millicores.Store(millicores)
		}
	}
}
