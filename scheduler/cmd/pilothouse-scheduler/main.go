// SPDX-License-Identifier: Apache-2.0

// Command pilothouse-scheduler is the stock kube-scheduler with the PilothousePlacement plugin.
// Whether the plugin takes part, and with which policy, is a matter of the profile.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"pilothouse.dev/scheduler/placement"
)

func main() {
	command := app.NewSchedulerCommand(app.WithPlugin(placement.Name, placement.New))
	os.Exit(cli.Run(command))
}
