package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// override is an argument of "opgate-server serve" that differs from the shipped one.
type override struct{ flag, value, reason string }

// removes reports whether the override only removes shipped arguments: the flag has its default then.
func (o *override) removes() bool { return o.flag == "right" || o.flag == "catalog-namespace" }

// maxStaleness is for a machine that is as fast as usual. The chart has ten seconds, which TestG1Stalled and the
// campaign of faults keep.
const maxStaleness = time.Minute

// MaxStaleness is the one of each gate that is started without another.
func MaxStaleness() time.Duration {
	return min(speed.Scale(maxStaleness).Round(time.Second), 5*time.Minute)
}

// overrides are all arguments in which the harness differs from the chart with its default values. A process outside a
// pod needs most of them, the options of a test the others.
func (c *Cluster) overrides(gate *Gate, opts *GateOptions) []override {
	all := []override{
		{"kubeconfig", c.OpgateKubeconfig(), "no token of a ServiceAccount is mounted outside a pod"},
		{"namespace", OpgateNamespace, "a pod reads it from its own fields"},
		{"webhook-bind-address", gate.webhook, "processes of one machine share its ports"},
		{"metrics-bind-address", gate.metrics, "processes of one machine share its ports"},
		{"health-probe-bind-address", gate.health, "processes of one machine share its ports"},
		{"tls-cert-file", gate.certificate.cert,
			"the API server calls an address, and self-managed certificates are for a Service"},
		{"tls-key-file", gate.certificate.key, "as tls-cert-file"},
		{"drain-delay", "0s", "no load balancer has to observe the endpoints before the listener closes"},
		{"drain-timeout", "0s", "as drain-delay"},
	}
	add := func(when bool, flag, value, reason string) {
		if when {
			all = append(all, override{flag, value, reason})
		}
	}
	add(true, "max-staleness", MaxStaleness().String(),
		"a machine that many processes share, on which a watch may end late")
	add(opts.OLMIdentity != OLMUserName, "olm-identity", opts.OLMIdentity, "a test of OLM as another user")
	add(!opts.Loop, "background-loop", strconv.FormatBool(false),
		"a test of the gate alone: what users write is not approved meanwhile")
	if !c.chartRights && !opts.ChartRights {
		for _, flag := range []string{"right", "catalog-namespace"} { // later ones add to the first, so all of them go
			all = append(all, override{flag: flag, reason: "a test of what the chart grants by value"})
		}
	}
	add(opts.WithoutBackstop, "backstop", "off",
		"a test of what only the webhooks say, or of a cluster without the backstop")
	add(opts.SecureMetrics, "metrics-secure", strconv.FormatBool(true), "a test of the chart's metrics.secure")
	add(opts.Reports, "reports", strconv.FormatBool(true), "a test of the chart's policy.reports.enabled")
	return all
}

// serveArguments returns shipped arguments with overrides in place of those of the same flag. It returns an error for
// an override that repeats what is shipped or has no reason, and for an argument that only a pod can expand.
func serveArguments(shipped []string, overrides []override) ([]string, error) {
	var errs []error
	args := slices.Clone(shipped)
	for _, o := range overrides {
		replacement := "--" + o.flag + "=" + o.value
		if o.reason == "" || slices.Contains(shipped, replacement) {
			errs = append(errs, fmt.Errorf("override %s: has no reason, or is shipped", replacement))
		}
		args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--"+o.flag+"=") })
		if !o.removes() {
			args = append(args, replacement)
		}
	}
	for _, arg := range args {
		if strings.Contains(arg, "$(") {
			errs = append(errs, fmt.Errorf("argument %s of the chart needs an override: only a pod expands it", arg))
		}
	}
	return args, errors.Join(errs...)
}

// shippedArguments reads the arguments of the Deployment that is rendered from the chart with its default values.
func shippedArguments() ([]string, error) {
	checkout, err := repo.Find()
	if err != nil {
		return nil, err
	}
	documents, err := readDocuments(checkout.Deployment())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", checkout.Deployment(), err)
	}
	for _, d := range documents {
		if d.Kind != "Deployment" {
			continue
		}
		var deployment appsv1.Deployment
		if err := yaml.UnmarshalStrict(d.text, &deployment); err != nil {
			return nil, fmt.Errorf("read %s: %w", checkout.Deployment(), err)
		}
		return deployment.Spec.Template.Spec.Containers[0].Args, nil
	}
	return nil, fmt.Errorf("no Deployment in %s", checkout.Deployment())
}
