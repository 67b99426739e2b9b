// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// trust is whose certificates the plugin's clients believe: the system's authorities, or those of a
// file and no others. The scheduler's image has none of its own.
type trust struct {
	file string
	pem  []byte
}

// newTrust reads the file at once: a scheduler that cannot be told whom to believe should not start.
func newTrust(file string) (*trust, error) {
	if file == "" {
		return &trust{}, nil
	}
	pem, err := os.ReadFile(file)
	if err == nil {
		_, err = authorities(pem)
	}
	if err != nil {
		return nil, fmt.Errorf("pilothousePlacementArgs.caFile: %q: %w", file, err)
	}
	return &trust{file: file, pem: pem}, nil
}

func authorities(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no PEM certificate is among its %d bytes", len(pem))
	}
	return pool, nil
}

// usual is the transport of clients that ask for nothing else.
func (t *trust) usual() http.RoundTripper {
	if shared, ok := http.DefaultTransport.(*http.Transport); ok && t.file != "" {
		return t.transport(shared.Clone())
	}
	return http.DefaultTransport
}

// transport makes one believe the file's authorities, as they are at each request.
func (t *trust) transport(base *http.Transport) http.RoundTripper {
	if t.file == "" {
		return base
	}
	made := &trusting{file: t.file, current: base}
	made.take(t.pem)
	return made
}

// trusting follows its file: authorities are replaced while schedulers run. Requests are few, one a
// second, so each looks at the file.
type trusting struct {
	file    string
	mutex   sync.Mutex
	pem     []byte
	current *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *trusting) RoundTrip(request *http.Request) (*http.Response, error) {
	return t.renewed().RoundTrip(request)
}

// CloseIdleConnections is what http.Client asks of a transport when it is done.
func (t *trusting) CloseIdleConnections() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.current.CloseIdleConnections()
}

func (t *trusting) renewed() *http.Transport {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if pem, err := os.ReadFile(t.file); err == nil && !bytes.Equal(pem, t.pem) {
		t.take(pem)
	}
	return t.current
}

// take keeps the authorities there were when the new ones cannot be read, and says so once.
func (t *trusting) take(pem []byte) {
	t.pem = pem
	pool, err := authorities(pem)
	if err != nil {
		klog.Background().Error(err, "The authorities stay as they were", "caFile", t.file)
		return
	}
	next := t.current.Clone()
	next.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	t.current.CloseIdleConnections() // nobody asks through it any more
	t.current = next
}
