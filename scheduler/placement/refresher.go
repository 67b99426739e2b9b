// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// refresher keeps the latest table. Scheduling cycles only ever load a pointer: whatever the
// scorer does (die, hang, answer garbage), they see the last good table until it expires.
type refresher struct {
	address    string
	client     *http.Client
	every      time.Duration
	timeout    time.Duration
	maximumAge time.Duration
	current    atomic.Pointer[table]
	// changed is told of every table that comes, and with none that the last one is too old.
	changed func(now *table)
}

func newRefresher(args *Args, trusted *trust, changed func(now *table)) *refresher {
	transport := &http.Transport{
		DisableCompression:    true, // a compressed answer may be larger than it looks
		MaxIdleConnsPerHost:   1,
		ResponseHeaderTimeout: args.Timeout.Duration,
	}
	return &refresher{
		address:    strings.TrimSuffix(args.ScorerAddress, "/") + "/v1/table",
		client:     &http.Client{Transport: trusted.transport(transport), CheckRedirect: noRedirects},
		every:      args.Refresh.Duration,
		timeout:    args.Timeout.Duration,
		maximumAge: args.MaximumAge.Duration,
		changed:    changed,
	}
}

func noRedirects(*http.Request, []*http.Request) error {
	return http.ErrUseLastResponse
}

// run refreshes until the context ends.
func (r *refresher) run(ctx context.Context) {
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		r.refreshAndCount(ctx)
		select {
		case <-ctx.Done():
			r.client.CloseIdleConnections()
			return
		case <-ticker.C:
		}
	}
}

// refreshAndCount also survives a panic: nothing the scorer sends may end the scheduler.
func (r *refresher) refreshAndCount(ctx context.Context) {
	defer func() {
		if caught := recover(); caught != nil {
			panics.WithLabelValues("refresh").Inc()
			klog.FromContext(ctx).Error(fmt.Errorf("%v", caught), "Recovered from a panic while refreshing the score table")
		}
	}()
	err := r.refresh(ctx)
	if err == nil {
		refreshes.WithLabelValues("ok").Inc()
		return
	}
	refreshes.WithLabelValues("failed").Inc()
	klog.FromContext(ctx).V(2).Info("Refreshing the score table failed", "err", err, "expiresIn", r.left())
	if !r.current.Load().isFresh(time.Now()) {
		r.tell(nil)
	}
}

func (r *refresher) tell(now *table) {
	if r.changed != nil {
		r.changed(now)
	}
}

func (r *refresher) left() time.Duration {
	if current := r.current.Load(); current != nil {
		return time.Until(current.expires).Round(time.Millisecond)
	}
	return 0
}

func (r *refresher) refresh(ctx context.Context) error {
	before := r.current.Load()
	data, err := r.fetch(ctx, before)
	if err != nil {
		return err
	}
	now := time.Now()
	after, err := readTable(data, before, now, r.maximumAge)
	if err != nil {
		return err
	}
	r.current.Store(after)
	r.tell(after)
	return nil
}

func (r *refresher) fetch(ctx context.Context, before *table) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	address := r.address
	if before != nil { // weights are sent only when they are others
		address += "?policy=" + url.QueryEscape(before.network.Card.Version())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no answer within %s: %w", r.timeout, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the scorer answered %d", answer.StatusCode)
	}
	if answer.ContentLength > mostTableBytes {
		return nil, fmt.Errorf("the answer has %d bytes, more than %d", answer.ContentLength, mostTableBytes)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, mostTableBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the answer broke off: %w", err)
	}
	if len(data) > mostTableBytes {
		return nil, fmt.Errorf("the answer is larger than %d bytes", mostTableBytes)
	}
	return data, nil
}
