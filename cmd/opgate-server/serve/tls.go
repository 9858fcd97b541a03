package serve

import (
	"crypto/tls"

	"github.com/opgate/opgate/certs"
)

// tlsVersions are those that can be the lowest one.
var tlsVersions = map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

// cipherSuites returns the suites that Go has no security objections to, by their names.
func cipherSuites() map[string]uint16 {
	suites := map[string]uint16{}
	for _, suite := range tls.CipherSuites() {
		suites[suite.Name] = suite.ID
	}
	return suites
}

// tls returns how HTTPS is served.
func (o *Options) tls(source certs.Source) *tls.Config {
	config := &tls.Config{
		MinVersion:     tlsVersions[o.TLSMinVersion],
		GetCertificate: source.GetCertificate,
		// The API server speaks HTTP/1.1 to webhooks on purpose; without h2 its attack surface is gone.
		NextProtos: []string{"http/1.1"},
	}
	suites := cipherSuites()
	for _, name := range o.TLSCipherSuites {
		config.CipherSuites = append(config.CipherSuites, suites[name])
	}
	return config
}
