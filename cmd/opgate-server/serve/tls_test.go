package serve

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/opgate/opgate/certs"
)

// TestTLS connects with what the options leave out and with what they offer.
func TestTLS(t *testing.T) {
	const suite = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
	source, _, err := certs.SelfSigned("localhost")
	if err != nil {
		t.Fatal(err)
	}
	// profiled has the TLS profile of a cluster in its environment.
	profiled := func(version, suites string, args ...string) Options {
		t.Setenv("OPGATE_TLS_MIN_VERSION", version)
		t.Setenv("OPGATE_TLS_CIPHER_SUITES", suites)
		defer t.Setenv("OPGATE_TLS_MIN_VERSION", "")
		defer t.Setenv("OPGATE_TLS_CIPHER_SUITES", "")
		return parsed(t, args...)
	}
	for name, c := range map[string]struct {
		options Options
		client  tls.Config
		want    bool
	}{
		"TLS 1.2 by default":    {parsed(t), tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"TLS 1.1":               {parsed(t), tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"TLS 1.2 where 1.3 is":  {parsed(t, "--tls-min-version=VersionTLS13"), tls.Config{MaxVersion: tls.VersionTLS12}, false},
		"TLS 1.3":               {parsed(t, "--tls-min-version=VersionTLS13"), tls.Config{}, true},
		"a suite of the list":   {parsed(t, "--tls-cipher-suites="+suite), tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"a suite that is not":   {parsed(t, "--tls-cipher-suites="+suite), only(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256), false},
		"any suite by default":  {parsed(t), only(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256), true},
		"a profile's version":   {profiled("VersionTLS13", ""), tls.Config{MaxVersion: tls.VersionTLS12}, false},
		"a profile's suite":     {profiled("VersionTLS12", "NOT_ONE_OF_GO, "+suite), only(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256), false},
		"a profile with less":   {profiled("VersionTLS10", ""), tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"a flag above it":       {profiled("VersionTLS13", "", "--tls-min-version=VersionTLS12"), tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"TLS 1.3 has no choice": {parsed(t, "--tls-cipher-suites="+suite), tls.Config{MinVersion: tls.VersionTLS13}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := net.Pipe()
			defer client.Close()
			go func() {
				_ = tls.Server(server, c.options.tls(source)).HandshakeContext(t.Context()) // the client reports it
				_ = server.Close()
			}()
			c.client.InsecureSkipVerify = true
			if err := tls.Client(client, &c.client).HandshakeContext(t.Context()); (err == nil) != c.want {
				t.Errorf("the handshake ends with %v", err)
			}
		})
	}
}

// only is for clients of TLS 1.2 with one cipher suite.
func only(suite uint16) tls.Config {
	return tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}
}
