package serve

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// parsed gives the options of a command line.
func parsed(t *testing.T, args ...string) Options {
	t.Helper()
	var o Options
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestValidate(t *testing.T) {
	for _, line := range []string{"", "--self-signed", "--tls-cert-file=a --tls-key-file=b", "--ca-lifetime=1m --certificate-lifetime=15s --ca-overlap=1s"} {
		if o := parsed(t, strings.Fields(line)...); o.Validate() != nil {
			t.Errorf("%q is refused: %v", line, o.Validate())
		}
	}
	for line, wants := range map[string][]string{
		"--ca-lifetime=0 --certificate-lifetime=-1h --ca-overlap=0s": {"--ca-lifetime: 0s", "--certificate-lifetime: -1h0m0s", "--ca-overlap: 0s"},
		"--ca-lifetime=3h --certificate-lifetime=1h":                 {"--certificate-lifetime: 1h0m0s", "a third of --ca-lifetime, 3h0m0s"},
		"--ca-lifetime=29m --certificate-lifetime=1m":                {"--ca-overlap: 10m0s", "a third of --ca-lifetime, 29m0s"},
		"--self-signed --tls-cert-file=a --tls-key-file=b":           {"--self-signed"},
		"--tls-cert-file=a": {"--tls-cert-file"},
		"--tls-cert-file=a --tls-key-file=b --self-signed-ca-file=c": {"--self-signed-ca-file"},
		"--self-signed --webhook-bind-address=9443":                  {"--webhook-bind-address"},
		"--self-signed --webhook-bind-address=:https":                {"--webhook-bind-address", "port"},
		"--self-signed --webhook-bind-address=:70000":                {"70000"},
		"--self-signed --approval-mode=Deny":                         {"--approval-mode", `"Deny"`, `"deny"`},
		"--self-signed --drain-delay=-1s":                            {"--drain-delay"},
		"--self-signed --log-level=loud --log-format=xml":            {"--log-level", "loud", "--log-format", "xml"}, // all of them at once
	} {
		o := parsed(t, strings.Fields(line)...)
		err := o.Validate()
		if err == nil {
			t.Errorf("%q is accepted", line)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %q does not say %q", line, err, want)
			}
		}
	}
}

// TestOLMIdentities shows that the flag replaces the defaults, and that those are the ones which the webhook
// configurations name: the lists must not drift apart.
func TestOLMIdentities(t *testing.T) {
	o := parsed(t, "--self-signed", "--olm-identity=system:serviceaccount:a:b", "--olm-identity=system:serviceaccount:c:d")
	if got := strings.Join(o.OLMIdentities, " "); got != "system:serviceaccount:a:b system:serviceaccount:c:d" {
		t.Errorf("identities are %q", got)
	}
	manifest, err := os.ReadFile("../../../manifests/base/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration // what it reads is the same in the mutating one
		if err := yaml.Unmarshal([]byte(document), &configuration); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			for _, condition := range webhook.MatchConditions {
				_, list, ok := strings.Cut(condition.Expression, "request.userInfo.username in [")
				if !ok {
					continue
				}
				lists++
				list, _, _ = strings.Cut(list, "]")
				if got, want := strings.Join(strings.Fields(list), ""), "'"+strings.Join(DefaultOLMIdentities(), "','")+"'"; got != want {
					t.Errorf("%s of %s: condition %s names %s, want %s", webhook.Name, configuration.Kind, condition.Name, got, want)
				}
			}
		}
	}
	if want := 7; lists != want {
		t.Errorf("%d conditions name identities, want %d", lists, want)
	}
}
