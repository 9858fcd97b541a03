package serve

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/controller/apply"
)

// registered is a metric as it was registered.
type registered struct {
	kind, labels, help string
}

// recorder is a registry that remembers what was registered with it.
type recorder struct {
	metrics.RegistererGatherer
	collectors []prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.RegistererGatherer.Register(c)
}

func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// registrations returns what `opgate-server serve` registers: in our own code by name, in libraries the names alone.
func registrations(t *testing.T) (ours map[string]registered, libraries map[string]bool) {
	t.Helper()
	recorded := &recorder{RegistererGatherer: metrics.Registry}
	libraries = map[string]bool{}
	for _, d := range describe(metrics.Registry.(prometheus.Collector)) { // before any of ours
		libraries[nameOf(t, d)] = true
	}
	metrics.Registry = recorded
	t.Cleanup(func() { metrics.Registry = recorded.RegistererGatherer })

	// Everything is registered before the first call of the API server, and the context has ended already.
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "none",
		"clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
		"contexts": [{"name": "none", "context": {"cluster": "none"}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := parsed(t, "--kubeconfig="+file, "--self-signed", "--metrics-secure", "--webhook-bind-address="+address,
		"--metrics-bind-address=0",
		"--health-probe-bind-address=0", "--drain-delay=0", "--drain-timeout=0", "--log-level=error",
		"--probe-static-policies")
	if err := Run(ctx, o); err != nil {
		t.Fatal(err)
	}

	ours = map[string]registered{}
	for _, c := range recorded.collectors {
		for _, d := range describe(c) {
			labels := regexp.MustCompile(`constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}`).FindStringSubmatch(
				d.String())
			names := strings.FieldsFunc(labels[2], func(r rune) bool { return r == ',' })
			for _, constant := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(labels[1], -1) {
				names = append(names, constant[1])
			}
			help := regexp.MustCompile(`help: "(.*?)", (?:unit: ".*?", )?constLabels`).FindStringSubmatch(d.String())
			ours[nameOf(t, d)] = registered{kind: kindOf(t, c), labels: strings.Join(names, ", "), help: help[1]}
		}
	}
	return ours, libraries
}

func describe(c prometheus.Collector) (all []*prometheus.Desc) {
	out := make(chan *prometheus.Desc)
	go func() {
		c.Describe(out)
		close(out)
	}()
	for d := range out {
		all = append(all, d)
	}
	return all
}

func nameOf(t *testing.T, d *prometheus.Desc) string {
	t.Helper()
	m := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())
	if m == nil {
		t.Fatalf("%s has no name", d)
	}
	return m[1]
}

// kindOf returns the type of a metric. A vector may have no sample yet, from which to read it.
func kindOf(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case interface {
		GetMetricWith(prometheus.Labels) (prometheus.Gauge, error)
	}:
		return "gauge"
	case apply.Gauge:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	alone := prometheus.NewRegistry()
	alone.MustRegister(c)
	families, err := alone.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ToLower(families[0].GetType().String())
}

// TestMetricsDocument compares docs/metrics.md with what is registered, both ways: name, type, labels and unit of our
// own metrics, of which the meaning begins with the help, and the names of those that libraries register.
func TestMetricsDocument(t *testing.T) {
	data, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	ours, libraries := registrations(t)
	if len(ours) == 0 || len(libraries) == 0 {
		t.Fatal("nothing was registered, so nothing was compared")
	}
	row := regexp.MustCompile("(?m)^\\| `(\\w+\\*?)` \\| (.*) \\|$")
	words := regexp.MustCompile(`^(Total number of|Number of|Seconds since|Seconds from|Whether|Compliance of) `)
	for _, m := range row.FindAllStringSubmatch(string(data), -1) {
		name, cells := m[1], strings.Split(m[2], " | ")
		if prefix, all := strings.CutSuffix(name, "*"); all {
			removePrefix(libraries, prefix)
			continue
		}
		if libraries[name] {
			delete(libraries, name)
			continue
		}
		want, known := ours[name]
		delete(ours, name)
		if !known || len(cells) != 4 {
			t.Errorf("docs/metrics.md has %s, which is not registered, or has not type, labels, unit and meaning", name)
			continue
		}
		if got := strings.ReplaceAll(cells[1], "`", ""); cells[0] != want.kind || got != want.labels ||
			cells[2] != unitOf(name) {
			t.Errorf("docs/metrics.md has %s as %s, labels %q, unit %q; it is %s, labels %q, unit %q",
				name, cells[0], got, cells[2], want.kind, want.labels, unitOf(name))
		}
		if !strings.HasPrefix(cells[3], want.help) {
			t.Errorf("docs/metrics.md explains %s with %q, its help is %q", name, cells[3], want.help)
		}
		if total := strings.HasSuffix(name, "_total"); total != (want.kind == "counter") ||
			total != strings.HasPrefix(want.help, "Total number of ") {
			t.Errorf("%s: the name of a counter ends with _total, its help begins with %q", name, "Total number of")
		}
		if !words.MatchString(want.help) {
			t.Errorf("%s: its help %q does not begin as %s", name, want.help, words)
		}
	}
	for name := range ours {
		t.Errorf("metric %s is not in docs/metrics.md", name)
	}
	for name := range libraries {
		t.Errorf("metric %s, which a library registers, is not in docs/metrics.md", name)
	}
}

// removePrefix removes the names with a prefix.
func removePrefix(names map[string]bool, prefix string) {
	for name := range names {
		if strings.HasPrefix(name, prefix) {
			delete(names, name)
		}
	}
}

// unitOf returns the unit that the name of a metric ends with.
func unitOf(name string) string {
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}
