package cluster

import (
	"os"
	"path/filepath"
)

// quotaConfig refuses pods of class system-cluster-critical in namespaces without a ResourceQuota for them, as GKE
// does.
const quotaConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: ResourceQuota
    configuration:
      apiVersion: apiserver.config.k8s.io/v1
      kind: ResourceQuotaConfiguration
      limitedResources:
        - resource: pods
          matchScopes:
            - {scopeName: PriorityClass, operator: In, values: [system-cluster-critical]}
`

// writeQuotaConfig returns the path of a file with it.
func writeQuotaConfig(dir string) (string, error) {
	path := filepath.Join(dir, "quota.yaml")
	return path, os.WriteFile(path, []byte(quotaConfig), 0o600)
}
