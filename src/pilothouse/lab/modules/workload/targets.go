// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"
)

// group is one entry of Prometheus' HTTP service discovery.
type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// listing is what is read of a list of pods.
type listing struct {
	Items []struct {
		Metadata struct {
			Name        string            `json:"name"`
			Namespace   string            `json:"namespace"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			NodeName string `json:"nodeName"`
		} `json:"spec"`
		Status struct {
			PodIP string `json:"podIP"`
		} `json:"status"`
	} `json:"items"`
}

// targets tells Prometheus which pods want to be scraped. Debian builds Prometheus without
// Kubernetes' own discovery.
func targets(arguments []string) int {
	flags := flag.NewFlagSet("targets", flag.ExitOnError)
	listen := flags.String("listen", "", "address to answer on")
	api := flags.String("api", "", "address of the API server")
	authority := flags.String("ca", "", "its certificate authority")
	certificate := flags.String("cert", "", "our certificate")
	key := flags.String("key", "", "our key")
	nodes := flags.String("node-prefix", "", "only pods on nodes whose name begins with this")
	_ = flags.Parse(arguments)

	client, err := clientOf(*authority, *certificate, *key)
	if err != nil {
		fmt.Fprintf(os.Stderr, "workload targets: %v\n", err)
		return 2
	}
	answer := func(w http.ResponseWriter, _ *http.Request) {
		groups, err := discover(client, *api, *nodes)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(groups)
	}
	if err := http.ListenAndServe(*listen, http.HandlerFunc(answer)); err != nil {
		fmt.Fprintf(os.Stderr, "workload targets: listening on %s: %v\n", *listen, err)
	}
	return 1
}

func clientOf(authority, certificate, key string) (*http.Client, error) {
	pool := x509.NewCertPool()
	if content, err := os.ReadFile(authority); err != nil || !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("-ca must name a certificate, but %q is none (%v)", authority, err)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("-cert and -key: %w", err)
	}
	settings := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
	return &http.Client{
		Timeout:   4 * time.Second,
		Transport: &http.Transport{TLSClientConfig: settings},
	}, nil
}

// discover lists running pods that carry the usual annotations.
func discover(client *http.Client, api, prefix string) ([]group, error) {
	response, err := client.Get(api + "/api/v1/pods?fieldSelector=status.phase%3DRunning&resourceVersion=0")
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	defer response.Body.Close()
	var pods listing
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("listing pods: the API server answered %s", response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&pods); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	groups := []group{}
	for _, pod := range pods.Items {
		notes := pod.Metadata.Annotations
		wanted := notes["prometheus.io/scrape"] == "true" && notes["prometheus.io/port"] != ""
		here := len(pod.Spec.NodeName) >= len(prefix) && pod.Spec.NodeName[:len(prefix)] == prefix
		if !wanted || !here || pod.Status.PodIP == "" {
			continue
		}
		groups = append(groups, group{
			Targets: []string{pod.Status.PodIP + ":" + notes["prometheus.io/port"]},
			Labels: map[string]string{
				"namespace": pod.Metadata.Namespace,
				"pod":       pod.Metadata.Name,
				"node":      pod.Spec.NodeName,
			},
		})
	}
	return groups, nil
}
