// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// overTLS is the scorer, the journal's owner and Prometheus in one, with a certificate that no system
// knows, and the file with its authority.
func overTLS(t *testing.T) (address, file string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/table":
			_, _ = w.Write(aTable(t, nil))
		case "/v1/records":
			w.WriteHeader(http.StatusAccepted)
		default:
			fmt.Fprint(w, `{"data": {"result": []}}`)
		}
	}))
	t.Cleanup(server.Close)
	file = filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return server.URL, file
}

// anotherAuthority signed nothing here.
func anotherAuthority(t *testing.T) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	card := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	made, err := x509.CreateCertificate(rand.Reader, card, card, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made})
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// asks are requests of the three clients of a plugin with this trust.
func asks(address string, trusted *trust) map[string]func(context.Context) error {
	args := withArgs(func(a *Args) {
		a.ScorerAddress, a.JournalAddress, a.PrometheusAddress = address, address, address
		a.Timeout.Duration = patient
	})
	refresher, recorder, traffic := newRefresher(args, trusted, nil), newRecorder(args, trusted), newTraffic(args, trusted)
	return map[string]func(context.Context) error{
		"scorer":     refresher.refresh,
		"journal":    func(ctx context.Context) error { _, err := recorder.send(ctx, nil); return err },
		"prometheus": func(ctx context.Context) error { _, err := traffic.ask(ctx); return err },
	}
}

func TestTrust_EveryClientBelievesTheFilesAuthoritiesAndNobodyElse(t *testing.T) {
	address, file := overTLS(t)
	trusted, err := newTrust(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range asks(address, trusted) {
		if err := ask(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, ask := range asks(address, &trust{}) {
		if err := ask(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Fatalf("%s is believed without the file: %v", name, err)
		}
	}
}

func TestTrust_FollowsTheFile(t *testing.T) {
	address, file := overTLS(t)
	right, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := anotherAuthority(t)
	write(t, file, other)
	trusted, err := newTrust(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range asks(address, trusted) {
		write(t, file, other)
		if ask(t.Context()) == nil {
			t.Fatalf("%s is believed by another's authority", name)
		}
		write(t, file, right)
		if err := ask(t.Context()); err != nil {
			t.Fatalf("%s: after the file changed: %v", name, err)
		}
		for _, broken := range []string{"", "-----BEGIN CERTIFICATE-----"} {
			write(t, file, []byte(broken))
			if err := ask(t.Context()); err != nil {
				t.Fatalf("%s: a broken file took the authorities away: %v", name, err)
			}
		}
		write(t, file, other)
		if ask(t.Context()) == nil {
			t.Fatalf("%s: the authority is gone, but still believed", name)
		}
	}
}

func TestNew_RefusesAFileWithoutAuthorities(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, nil)
	for _, file := range []string{empty, filepath.Join(t.TempDir(), "missing")} {
		_, err := New(t.Context(), &runtime.Unknown{Raw: fmt.Appendf(nil, `{"caFile": %q}`, file)}, &aHandle{})
		if err == nil || !strings.Contains(err.Error(), "pilothousePlacementArgs.caFile") {
			t.Fatalf("%s: %v", file, err)
		}
	}
}
