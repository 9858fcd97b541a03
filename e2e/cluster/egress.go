package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// EgressSocket is the Unix socket by which the API server, where Options say Node, opens every connection to a Service:
// by HTTP CONNECT requests that name the address and the port of the Service.
func (c *Cluster) EgressSocket() string { return egressSocket(c.dir) }

func egressSocket(dir string) string { return filepath.Join(dir, "egress.sock") }

// writeEgressConfig returns the path of a file that makes the API server use the socket. What it sends to etcd, and to
// webhooks that are configured by URL, is sent directly.
func writeEgressConfig(dir string) (string, error) {
	config, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.k8s.io/v1beta1",
		"kind":       "EgressSelectorConfiguration",
		"egressSelections": []any{map[string]any{
			"name": "cluster",
			"connection": map[string]any{
				"proxyProtocol": "HTTPConnect",
				"transport":     map[string]any{"uds": map[string]any{"udsName": egressSocket(dir)}},
			},
		}},
	})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "egress.json")
	return path, os.WriteFile(path, config, 0o600)
}
