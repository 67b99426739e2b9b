// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// pause sleeps until it is told to end, and reaps the orphans of its process namespace meanwhile.
func pause([]string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return 0
		}
		for {
			reaped, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if reaped <= 0 || err != nil {
				break
			}
		}
	}
	return 0
}
