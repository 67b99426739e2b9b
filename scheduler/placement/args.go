// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// The version and kind of the plugin's arguments in a scheduler configuration.
const (
	ArgsVersion = "pilothouse.dev/v1alpha1"
	ArgsKind    = "PilothousePlacementArgs"
)

// Mode is how far the plugin may go.
type Mode string

// Enforce scores; Shadow works out and records what it would have done, then leaves the choice to
// the other plugins; Off does nothing at all.
const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow"
	Off     Mode = "off"
)

// Fallback is who scores in the policy's place when that does not: without a usable table, in shadow
// and when switched off. It is for profiles that switch scorers of the default off.
type Fallback string

// NoFallback skips, so that the other plugins decide. LeastAllocated and NetworkTraffic score
// in-process: by free CPU and memory, or by the fewest received bytes (by free CPU and memory where
// these are not known).
const (
	NoFallback     Fallback = "none"
	LeastAllocated Fallback = "leastAllocated"
	NetworkTraffic Fallback = "networkTraffic"
)

// Args configure the plugin. Unset fields take the value of DefaultArgs.
type Args struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// Mode is enforce, shadow or off.
	Mode Mode `json:"mode,omitempty"`
	// ScorerAddress is where the table comes from, e.g. http://127.0.0.1:10270.
	ScorerAddress string `json:"scorerAddress,omitempty"`
	// Refresh is how often the table is asked for.
	Refresh metav1.Duration `json:"refresh,omitempty"`
	// Timeout is how long one answer may take, all of it.
	Timeout metav1.Duration `json:"timeout,omitempty"`
	// MaximumAge is how old a table may be, whatever the scorer says about its expiry.
	MaximumAge metav1.Duration `json:"maximumAge,omitempty"`
	// EnforceHardLimit keeps pods off nodes whose known, fresh latency is above their hard limit.
	EnforceHardLimit bool `json:"enforceHardLimit,omitempty"`
	// JournalAddress is where records of placements go; empty: nowhere.
	JournalAddress string `json:"journalAddress,omitempty"`
	// JournalTokenFile holds the token of the ingest endpoint.
	JournalTokenFile string `json:"journalTokenFile,omitempty"`
	// QueueSize bounds the records that wait to be sent; what does not fit is dropped and counted.
	QueueSize int `json:"queueSize,omitempty"`
	// CompareShare is the share of enforced placements compared with the default's resource scores;
	// of many at once some are dropped and counted.
	CompareShare float64 `json:"compareShare,omitempty"`
	// UncountedNamespaces hold pods that do not make a node active.
	UncountedNamespaces []string `json:"uncountedNamespaces,omitempty"`
	// Fallback is none, leastAllocated or networkTraffic.
	Fallback Fallback `json:"fallback,omitempty"`
	// PrometheusAddress, NetworkInterface and TimeRangeInMinutes are for networkTraffic.
	PrometheusAddress  string `json:"prometheusAddress,omitempty"`
	NetworkInterface   string `json:"networkInterface,omitempty"`
	TimeRangeInMinutes int64  `json:"timeRangeInMinutes,omitempty"`
	// CAFile holds the certificates (PEM) of the authorities that the https addresses are checked
	// against; empty: the system's. It is read again when it changes. There is no way not to check.
	CAFile string `json:"caFile,omitempty"`
}

// DefaultArgs are safe: the plugin watches and records, and decides nothing.
func DefaultArgs() Args {
	return Args{
		APIVersion:          ArgsVersion,
		Kind:                ArgsKind,
		Mode:                Shadow,
		ScorerAddress:       "http://127.0.0.1:10270",
		Refresh:             metav1.Duration{Duration: time.Second},
		Timeout:             metav1.Duration{Duration: 800 * time.Millisecond},
		MaximumAge:          metav1.Duration{Duration: 15 * time.Second},
		QueueSize:           4096,
		CompareShare:        0.01,
		UncountedNamespaces: []string{"kube-system"},
		Fallback:            NoFallback,
		NetworkInterface:    "eth0",
		TimeRangeInMinutes:  5,
	}
}

// ReadArgs decodes, defaults and validates what a profile says. Unknown fields are errors.
func ReadArgs(given runtime.Object) (*Args, error) {
	args := DefaultArgs()
	raw, err := rawArgs(given)
	if err != nil {
		return nil, err
	}
	if len(raw) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&args); err != nil {
			return nil, fmt.Errorf("pilothousePlacementArgs: %w", err)
		}
	}
	if args.UncountedNamespaces == nil { // null is unset; who wants none says []
		args.UncountedNamespaces = DefaultArgs().UncountedNamespaces
	}
	return &args, args.validate().ToAggregate()
}

func rawArgs(given runtime.Object) ([]byte, error) {
	if given == nil {
		return nil, nil
	}
	unknown, ok := given.(*runtime.Unknown)
	if !ok {
		return nil, fmt.Errorf("pilothousePlacementArgs: got a %T", given)
	}
	if unknown.ContentType == runtime.ContentTypeYAML {
		return yaml.YAMLToJSONStrict(unknown.Raw)
	}
	return unknown.Raw, nil
}

func (a *Args) validate() field.ErrorList {
	var found field.ErrorList
	at := field.NewPath("pilothousePlacementArgs")
	if a.APIVersion != ArgsVersion {
		found = append(found, field.NotSupported(at.Child("apiVersion"), a.APIVersion, []string{ArgsVersion}))
	}
	if a.Kind != ArgsKind {
		found = append(found, field.NotSupported(at.Child("kind"), a.Kind, []string{ArgsKind}))
	}
	if a.Mode != Enforce && a.Mode != Shadow && a.Mode != Off {
		found = append(found, field.NotSupported(at.Child("mode"), a.Mode, []Mode{Enforce, Shadow, Off}))
	}
	if a.Fallback != NoFallback && a.Fallback != LeastAllocated && a.Fallback != NetworkTraffic {
		known := []Fallback{NoFallback, LeastAllocated, NetworkTraffic}
		found = append(found, field.NotSupported(at.Child("fallback"), a.Fallback, known))
	}
	for name, duration := range map[string]time.Duration{
		"refresh": a.Refresh.Duration, "timeout": a.Timeout.Duration, "maximumAge": a.MaximumAge.Duration,
	} {
		if duration <= 0 {
			found = append(found, field.Invalid(at.Child(name), duration.String(), "must be greater than 0"))
		}
	}
	if a.QueueSize < 1 || a.QueueSize > 1<<20 {
		found = append(found, field.Invalid(at.Child("queueSize"), a.QueueSize, "must be between 1 and 1048576"))
	}
	if share := a.CompareShare; !(share >= 0 && share <= 1) {
		found = append(found, field.Invalid(at.Child("compareShare"), share, "must be between 0 and 1"))
	}
	return append(found, a.validateAddresses(at)...)
}

func (a *Args) validateAddresses(at *field.Path) field.ErrorList {
	var found field.ErrorList
	if a.Mode != Off || a.ScorerAddress != "" {
		found = append(found, checkAddress(at.Child("scorerAddress"), a.ScorerAddress)...)
	}
	if a.JournalAddress != "" {
		found = append(found, checkAddress(at.Child("journalAddress"), a.JournalAddress)...)
	}
	if a.Fallback == NetworkTraffic || a.PrometheusAddress != "" {
		found = append(found, checkAddress(at.Child("prometheusAddress"), a.PrometheusAddress)...)
	}
	if a.Fallback == NetworkTraffic {
		if a.NetworkInterface == "" {
			found = append(found, field.Required(at.Child("networkInterface"), "networkTraffic needs it"))
		}
		if a.TimeRangeInMinutes < 1 {
			found = append(found, field.Invalid(at.Child("timeRangeInMinutes"), a.TimeRangeInMinutes, "must be at least 1"))
		}
	}
	return found
}

func checkAddress(at *field.Path, address string) field.ErrorList {
	parsed, err := url.Parse(address)
	if err == nil && parsed.Host == "" {
		err = errors.New("no host")
	}
	if err == nil && parsed.Scheme != "http" && parsed.Scheme != "https" {
		err = errors.New("neither http nor https")
	}
	if err != nil {
		return field.ErrorList{field.Invalid(at, address, "must be an http or https address: "+err.Error())}
	}
	return nil
}
