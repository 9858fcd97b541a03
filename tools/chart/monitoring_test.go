package chart_test

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// What the chart uses of the kinds of the Prometheus operator.
type (
	namespaceSelector struct {
		MatchNames []string `json:"matchNames"`
	}
	monitorTLS struct {
		CA struct {
			Secret    corev1.SecretKeySelector    `json:"secret"`
			ConfigMap corev1.ConfigMapKeySelector `json:"configMap"`
		} `json:"ca"`
		ServerName string `json:"serverName"`
		Insecure   bool   `json:"insecureSkipVerify"`
	}
	monitorEndpoint struct {
		Port              string           `json:"port"`
		Scheme            string           `json:"scheme"`
		Interval          string           `json:"interval"`
		ScrapeTimeout     string           `json:"scrapeTimeout"`
		HonorLabels       bool             `json:"honorLabels"`
		Relabelings       []map[string]any `json:"relabelings"`
		MetricRelabelings []map[string]any `json:"metricRelabelings"`
		Token             string           `json:"bearerTokenFile"` // of a ServiceMonitor
		Authorization     map[string]any   `json:"authorization"`   // of a PodMonitor
		TLS               *monitorTLS      `json:"tlsConfig"`
	}
	serviceMonitor struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			JobLabel          string               `json:"jobLabel"`
			NamespaceSelector namespaceSelector    `json:"namespaceSelector"`
			Selector          metav1.LabelSelector `json:"selector"`
			Endpoints         []monitorEndpoint    `json:"endpoints"`
		} `json:"spec"`
	}
	podMonitor struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			JobLabel          string               `json:"jobLabel"`
			NamespaceSelector namespaceSelector    `json:"namespaceSelector"`
			Selector          metav1.LabelSelector `json:"selector"`
			Endpoints         []monitorEndpoint    `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}
	prometheusRule struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              ruleGroups `json:"spec"`
	}
)

// ruleGroups are the contents of a rules file of Prometheus.
type ruleGroups struct {
	Groups []struct {
		Name  string  `json:"name"`
		Rules []alert `json:"rules"`
	} `json:"groups"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Record      string            `json:"record"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// alerts returns the alerts of all groups, by name.
func (g *ruleGroups) alerts() map[string]alert {
	all := map[string]alert{}
	for _, group := range g.Groups {
		for _, a := range group.Rules {
			if a.Record == "" {
				all[a.Alert] = a
			}
		}
	}
	return all
}

func (r *prometheusRule) alerts() map[string]alert { return r.Spec.alerts() }

// chartFile returns a file of the chart.
func chartFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(checkout.Chart(), "files", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// alertsFile returns the alerts of the chart, by name.
func alertsFile(t *testing.T) map[string]alert {
	t.Helper()
	var groups ruleGroups
	if err := yaml.UnmarshalStrict(chartFile(t, "alerts.yaml"), &groups); err != nil {
		t.Fatal(err)
	}
	all := groups.alerts()
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}
