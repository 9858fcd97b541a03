package serve

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// parsed returns the options of a command line, which has to name OLM.
func parsed(t *testing.T, args ...string) Options {
	t.Helper()
	return parsedAlone(t, append(args, "--olm-identity=system:serviceaccount:olm:olm-operator-serviceaccount")...)
}

// parsedAlone returns the options of exactly this command line.
func parsedAlone(t *testing.T, args ...string) Options {
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
	for _, line := range []string{"", "--self-signed", "--register=a --webhooks-owned-by-namespace=false",
		"--backstop=enforce", "--reports",
		"--backstop=off --background-loop=false",
		"--backstop=enforce --background-loop=false", "--operator-policy-definition=external --ordering=false",
		"--tls-min-version=VersionTLS13", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
		"--tls-cert-file=a --tls-key-file=b", "--ca-lifetime=1m --certificate-lifetime=15s --ca-overlap=1s"} {
		if o := parsed(t, strings.Fields(line)...); o.Validate() != nil {
			t.Errorf("%q is refused: %v", line, o.Validate())
		}
	}
	for line, wants := range map[string][]string{
		"--ca-lifetime=0 --certificate-lifetime=-1h --ca-overlap=0s": {"--ca-lifetime: 0s",
			"--certificate-lifetime: -1h0m0s", "--ca-overlap: 0s"},
		"--ca-lifetime=3h --certificate-lifetime=1h": {"--certificate-lifetime: 1h0m0s",
			"a third of --ca-lifetime, 3h0m0s"},
		"--ca-lifetime=29m --certificate-lifetime=1m": {"--ca-overlap: 10m0s",
			"a third of --ca-lifetime, 29m0s"},
		"--self-signed --tls-cert-file=a --tls-key-file=b": {"--self-signed"},
		"--tls-cert-file=a": {"--tls-cert-file"},
		"--tls-cert-file=a --tls-key-file=b --self-signed-ca-file=c": {"--self-signed-ca-file"},
		"--self-signed --webhook-bind-address=9443":                  {"--webhook-bind-address"},
		"--self-signed --webhook-bind-address=:https":                {"--webhook-bind-address", "port"},
		"--self-signed --webhook-bind-address=:70000":                {"70000"},
		"--self-signed --approval-mode=Deny":                         {"--approval-mode", `"Deny"`, `"deny"`},
		"--operator-policy-definition=theirs": {"--operator-policy-definition", `"theirs"`,
			`"external"`},
		"--operator-policy-definition=external": {"--operator-policy-definition",
			"--ordering=false"},
		"--tls-min-version=VersionTLS11":                  {"--tls-min-version", `"VersionTLS11"`, `"VersionTLS12"`},
		"--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA":    {"--tls-cipher-suites", `"TLS_RSA_WITH_RC4_128_SHA"`, `"TLS_AES_128`},
		"--self-signed --backstop=on":                     {"--backstop", `"on"`, `"enforce"`},
		"--self-signed --reports --background-loop=false": {"--reports", "--background-loop"},
		"--self-signed --register=a":                      {"--register", "--webhooks-owned-by-namespace"},
		"--self-signed --client-cn=kube-apiserver":        {"--client-cn", "--client-ca-file"},
		"--self-signed --profiling":                       {"--profiling", "--metrics-secure"},
		"--self-signed --drain-delay=-1s":                 {"--drain-delay"},
		// all of them at once
		"--self-signed --log-level=loud --log-format=xml": {"--log-level", "loud", "--log-format", "xml"},
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

// TestOLMIdentityIsRequired shows that no account is OLM by default (threat O16), and that the error explains how to
// find OLM.
func TestOLMIdentityIsRequired(t *testing.T) {
	const identity = "--olm-identity=system:serviceaccount:olm:olm-operator-serviceaccount"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"none": {nil, "0 are named"},
		"two": {[]string{identity,
			"--olm-identity=system:serviceaccount:openshift-operator-lifecycle-manager:olm-operator-serviceaccount"},
			"2 are named"},
		"no service account": {[]string{"--olm-identity=olm@example.com"},
			`"olm@example.com" is not the user name of a service account`},
		"no name": {[]string{"--olm-identity=system:serviceaccount:olm:"},
			"is not the user name of a service account"},
		"no namespace": {[]string{"--olm-identity=system:serviceaccount:olm-operator-serviceaccount"},
			"is not the user name of a service account"},
		"empty": {[]string{"--olm-identity="}, "is not the user name of a service account"},
	} {
		t.Run(name, func(t *testing.T) {
			o := parsedAlone(t, test.args...)
			err := o.Validate()
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range []string{"--olm-identity", test.want,
				"kubectl get deployments --all-namespaces --field-selector metadata.name=olm-operator"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
	o := parsedAlone(t, identity)
	if err := o.Validate(); err != nil {
		t.Errorf("one identity is refused: %v", err)
	}
}
