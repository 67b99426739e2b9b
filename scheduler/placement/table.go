// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"pilothouse.dev/scheduler/policy"
)

// TableVersion is the version of the scorer's table that this plugin reads.
const TableVersion = "pilothouse.dev/v1alpha1"

const (
	mostTableBytes   = 16 << 20
	mostUsers        = 256
	mostSuggestions  = 10_000
	mostScorePerNode = 100
)

// wireTable is the scorer's answer at /v1/table.
type wireTable struct {
	APIVersion string  `json:"apiVersion"`
	Serial     string  `json:"serial"`
	TTLSeconds float64 `json:"ttlSeconds"`
	Policy     *struct {
		Version string          `json:"version"`
		Card    json.RawMessage `json:"card"`
		Weights string          `json:"weights"`
	} `json:"policy"`
	// Latency is by user ("" is the default one), then by node, in milliseconds; only fresh values.
	Latency map[string]map[string]float64 `json:"latency"`
	// IdlePowerShare is by node.
	IdlePowerShare map[string]float64 `json:"idlePowerShare"`
	Avoid          []string           `json:"avoid"`
	Suggestions    map[string]struct {
		Scores           map[string]float64 `json:"scores"`
		ExpiresInSeconds float64            `json:"expiresInSeconds"`
	} `json:"suggestions"`
}

// table is what the plugin works with: checked, and never changed once it is in use.
type table struct {
	serial         string
	network        *policy.Network
	latency        map[string]map[string]float64
	idlePowerShare map[string]float64
	avoid          map[string]bool
	suggestions    map[string]suggestion
	expires        time.Time
	fetched        time.Time
}

// suggestion is what an external policy published for one pod: nodes it does not name score 0.
type suggestion struct {
	scores  map[string]int64
	expires time.Time
}

var errNoPolicy = errors.New("the scorer has no policy")

// readTable checks an answer. A value that makes no sense is left out where only itself is
// affected (a latency of NaN, a node nobody knows) and refuses the table where all of it is.
func readTable(data []byte, before *table, now time.Time, maximumAge time.Duration) (*table, error) {
	var wire wireTable
	if err := json.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	if wire.APIVersion != TableVersion {
		return nil, fmt.Errorf("the table has version %.60q, but this plugin reads %q", wire.APIVersion, TableVersion)
	}
	if !(wire.TTLSeconds > 0) {
		return nil, fmt.Errorf("the table says it lives for %g seconds", wire.TTLSeconds)
	}
	network, err := wire.network(before)
	if err != nil {
		return nil, err
	}
	if len(wire.Latency) > mostUsers || len(wire.Suggestions) > mostSuggestions {
		return nil, fmt.Errorf("the table has %d users and %d suggestions, more than %d and %d",
			len(wire.Latency), len(wire.Suggestions), mostUsers, mostSuggestions)
	}
	made := &table{serial: wire.Serial, network: network, fetched: now, avoid: map[string]bool{}}
	made.renew(now, wire.TTLSeconds, maximumAge)
	made.latency = make(map[string]map[string]float64, len(wire.Latency))
	for user, values := range wire.Latency {
		made.latency[user] = within(values, 0, math.MaxFloat64)
	}
	made.idlePowerShare = within(wire.IdlePowerShare, 0, 1)
	for _, node := range wire.Avoid {
		made.avoid[node] = true
	}
	made.suggestions = wire.suggestions(now, maximumAge)
	return made, nil
}

func (t *table) renew(now time.Time, ttlSeconds float64, maximumAge time.Duration) {
	t.expires = now.Add(min(time.Duration(min(ttlSeconds, 1e6)*float64(time.Second)), maximumAge))
}

func (t *table) isFresh(now time.Time) bool {
	return t != nil && now.Before(t.expires)
}

// network is the policy of the table, taken from the table before when it is still the same.
func (w *wireTable) network(before *table) (*policy.Network, error) {
	if w.Policy == nil {
		return nil, errNoPolicy
	}
	if before != nil && before.network.Card.Version() == w.Policy.Version {
		return before.network, nil
	}
	weights, err := base64.StdEncoding.DecodeString(w.Policy.Weights)
	if err != nil {
		return nil, fmt.Errorf("the policy's weights are not base64: %w", err)
	}
	network, err := policy.Read(w.Policy.Card, weights)
	if err != nil {
		return nil, fmt.Errorf("the policy %.80q is refused: %w", w.Policy.Version, err)
	}
	return network, nil
}

func (w *wireTable) suggestions(now time.Time, maximumAge time.Duration) map[string]suggestion {
	made := make(map[string]suggestion, len(w.Suggestions))
	for uid, given := range w.Suggestions {
		scores := make(map[string]int64, len(given.Scores))
		for node, score := range within(given.Scores, 0, mostScorePerNode) {
			scores[node] = int64(math.Round(score))
		}
		if seconds := given.ExpiresInSeconds; seconds > 0 && len(scores) > 0 {
			made[uid] = suggestion{scores: scores, expires: now.Add(time.Duration(min(seconds, 1e6) * float64(time.Second)))}
		}
	}
	return made
}

func within(values map[string]float64, low, high float64) map[string]float64 {
	kept := make(map[string]float64, len(values))
	for name, value := range values {
		if value >= low && value <= high {
			kept[name] = value
		}
	}
	return kept
}

// latencyOf is the fresh latency of a node to a user, or NaN.
func (t *table) latencyOf(user, node string) float64 {
	if value, has := t.latency[user][node]; has {
		return value
	}
	return policy.Unknown
}

func (t *table) idlePowerOf(node string) float64 {
	if value, has := t.idlePowerShare[node]; has {
		return value
	}
	return policy.Unknown
}

// suggests says whether a suggestion may decide about a pod now.
func (t *table) suggests(pod *v1.Pod, now time.Time) bool {
	if !t.isFresh(now) {
		return false
	}
	_, has := t.suggestionFor(string(pod.UID), now)
	return has
}

// suggestionFor is what was published for a pod, unless it has expired.
func (t *table) suggestionFor(uid string, now time.Time) (suggestion, bool) {
	given, has := t.suggestions[uid]
	return given, has && now.Before(given.expires)
}
