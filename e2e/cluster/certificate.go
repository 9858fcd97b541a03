package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
)

// servingCertificate is a certificate for 127.0.0.1, on disk.
type servingCertificate struct {
	cert, key string // paths of PEM files
	ca        []byte // PEM, what a client must trust
}

func writeServingCertificate(dir string) (servingCertificate, error) {
	const host = "127.0.0.1"
	// The chain that comes back ends with the authority that signed it, so it is a bundle to trust as well.
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, []net.IP{net.ParseIP(host)}, nil)
	if err != nil {
		return servingCertificate{}, fmt.Errorf("make a serving certificate: %w", err)
	}
	certificate := servingCertificate{
		cert: filepath.Join(dir, "tls.crt"),
		key:  filepath.Join(dir, "tls.key"),
		ca:   cert,
	}
	if err := os.WriteFile(certificate.cert, cert, 0o600); err != nil {
		return servingCertificate{}, fmt.Errorf("write a serving certificate: %w", err)
	}
	if err := os.WriteFile(certificate.key, key, 0o600); err != nil {
		return servingCertificate{}, fmt.Errorf("write a serving certificate: %w", err)
	}
	return certificate, nil
}
