package cluster

import (
	_ "embed"
	"os"
	"path/filepath"
)

// auditPolicy says what the API server's audit log holds.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// writeAuditPolicy returns the path of a file with the audit policy.
func writeAuditPolicy(dir string) (string, error) {
	path := filepath.Join(dir, "audit-policy.yaml")
	return path, os.WriteFile(path, auditPolicy, 0o600)
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }
