// SPDX-License-Identifier: Apache-2.0

// Command workload gives the lab's pods a behavior that can be measured.
//
//	workload serve   burns CPU by demand, grows memory on command, answers requests
//	workload load    offers requests to a service and counts what became of each
//	workload meter   speaks for one worker as a node exporter would
//	workload targets tells Prometheus which pods to scrape
//	workload pause   holds a pod's namespaces
package main

import (
	"fmt"
	"os"
)

// commands maps a verb to what it does; each returns the process's exit code.
var commands = map[string]func(arguments []string) int{
	"serve":   serve,
	"load":    load,
	"meter":   meter,
	"pause":   pause,
	"targets": targets,
}

func main() {
	if len(os.Args) > 1 {
		if run, known := commands[os.Args[1]]; known {
			os.Exit(run(os.Args[2:]))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: workload serve|load|meter|targets|pause [flags]; each takes -h")
	os.Exit(2)
}
