// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

const (
	trafficEvery  = 10 * time.Second
	trafficMemory = 60 * time.Second
)

// traffic keeps the received bytes per second of every node, from Prometheus: the fallback of the
// thesis, which preferred the node that received least.
type traffic struct {
	query   string
	client  *http.Client
	current atomic.Pointer[received]
}

type received struct {
	rate map[string]float64 // by node name, instance host or address
	most float64
	at   time.Time
}

func newTraffic(args *Args, trusted *trust) *traffic {
	expression := fmt.Sprintf(`rate(node_network_receive_bytes_total{device=%q}[%dm])`,
		args.NetworkInterface, args.TimeRangeInMinutes)
	return &traffic{
		query:  strings.TrimSuffix(args.PrometheusAddress, "/") + "/api/v1/query?query=" + url.QueryEscape(expression),
		client: &http.Client{Timeout: 5 * time.Second, Transport: trusted.usual(), CheckRedirect: noRedirects},
	}
}

func (t *traffic) run(ctx context.Context) {
	ticker := time.NewTicker(trafficEvery)
	defer ticker.Stop()
	for {
		t.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (t *traffic) refresh(ctx context.Context) {
	defer recovered("traffic")
	found, err := t.ask(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Reading network traffic failed", "err", err)
		return
	}
	t.current.Store(found)
}

func (t *traffic) ask(ctx context.Context) (*received, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.query, nil)
	if err != nil {
		return nil, err
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, mostTableBytes)).Decode(&body); err != nil {
		return nil, fmt.Errorf("Prometheus answered %d with something else: %w", answer.StatusCode, err)
	}
	found := &received{rate: map[string]float64{}, at: time.Now()}
	for _, series := range body.Data.Result {
		text, _ := series.Value[1].(string)
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(rate) || math.IsInf(rate, 0) || rate < 0 {
			continue
		}
		found.most = max(found.most, rate)
		for _, label := range []string{"node", "kubernetes_node", "instance"} {
			name := series.Metric[label]
			if host, _, err := net.SplitHostPort(name); err == nil {
				name = host
			}
			found.rate[name] = rate
		}
	}
	delete(found.rate, "")
	return found, nil
}

// score is higher the less a node receives; a node nobody measured, or an old measurement, is unknown.
func (t *traffic) score(node *v1.Node) (int64, bool) {
	current := t.current.Load()
	if current == nil || time.Since(current.at) > trafficMemory {
		return 0, false
	}
	rate, known := current.rate[node.Name]
	for i := 0; !known && i < len(node.Status.Addresses); i++ {
		rate, known = current.rate[node.Status.Addresses[i].Address]
	}
	if !known {
		return 0, false
	}
	if current.most == 0 {
		return 100, true
	}
	return int64(math.Round((1 - rate/current.most) * 100)), true
}
