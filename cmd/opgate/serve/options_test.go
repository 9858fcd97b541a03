package serve

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
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
	if o := parsed(t, "--self-signed"); o.Validate() != nil {
		t.Errorf("the defaults with a certificate are refused: %v", o.Validate())
	}
	for line, wants := range map[string][]string{
		"": {"--tls-cert-file"},
		"--self-signed --tls-cert-file=a --tls-key-file=b": {"--self-signed"},
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
	manifest, err := os.ReadFile("../../../manifests/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lists := strings.Count(string(manifest), "request.userInfo.username in [")
	for _, identity := range DefaultOLMIdentities() {
		if got := strings.Count(string(manifest), "'"+identity+"'"); got != lists {
			t.Errorf("%d of %d lists in manifests/webhooks.yaml name %s", got, lists, identity)
		}
	}
	if got, want := strings.Count(string(manifest), "'system:serviceaccount:"), lists*len(DefaultOLMIdentities()); got != want || lists == 0 {
		t.Errorf("the %d lists in manifests/webhooks.yaml name %d identities, want %d", lists, got, want)
	}
}
