package serve

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/opgate/opgate/rules"
)

// Options configure `opgate serve`; each field is one flag.
type Options struct {
	// Kubeconfig is the file to reach the API server with. Default: the service account of the pod, else
	// $KUBECONFIG, else ~/.kube/config.
	Kubeconfig string
	// WebhookAddress is host:port for admission reviews.
	WebhookAddress string
	// CertFile and KeyFile hold the serving certificate, PEM-encoded; they are read again when they change.
	CertFile, KeyFile string
	// SelfSigned makes a certificate in memory instead; SelfSignedCA is a file to write its CA to.
	SelfSigned   bool
	SelfSignedCA string
	// MetricsAddress and HealthAddress are host:port for plain HTTP; "0" serves none.
	MetricsAddress, HealthAddress string
	// OLMIdentities are the user names that OLM writes as.
	OLMIdentities []string
	// ApprovalMode is mutate or deny.
	ApprovalMode string
	// DrainDelay is how long the server goes on answering after it was told to stop and has said that it is
	// not ready: the time for the API server to learn of it.
	DrainDelay time.Duration
	// LogLevel is debug, info or error; LogFormat is json or console.
	LogLevel, LogFormat string
}

// DefaultOLMIdentities are those of upstream OLM and of OpenShift.
func DefaultOLMIdentities() []string {
	return []string{
		"system:serviceaccount:olm:olm-operator-serviceaccount",
		"system:serviceaccount:openshift-operator-lifecycle-manager:olm-operator-serviceaccount",
	}
}

// AddFlags binds each field to its flag, with the default.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "file to reach the API server with (default: the pod's service account, else $KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&o.WebhookAddress, "webhook-bind-address", ":9443", "host:port that admission reviews come to, by TLS")
	flags.StringVar(&o.CertFile, "tls-cert-file", "", "PEM file with the serving certificate; read again when it changes")
	flags.StringVar(&o.KeyFile, "tls-key-file", "", "PEM file with its private key")
	flags.BoolVar(&o.SelfSigned, "self-signed", false, "serve with a certificate made in memory, for local use only")
	flags.StringVar(&o.SelfSignedCA, "self-signed-ca-file", "", "file to write the CA of the self-signed certificate to, for caBundle in the webhook configurations")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", `host:port for /metrics by HTTP, "0" for none`)
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", `host:port for /healthz, /readyz and /snapshot by HTTP, "0" for none`)
	flags.StringArrayVar(&o.OLMIdentities, "olm-identity", DefaultOLMIdentities(),
		"user name that OLM writes as; repeatable, and replaces the default. Whoever can write as one of these can start a plan past the gate")
	flags.StringVar(&o.ApprovalMode, "approval-mode", string(rules.MutateApproval),
		"what becomes of a Subscription with the wrong installPlanApproval: mutate changes it with a warning, deny refuses it and names the value to write (for GitOps tools that would fight a changed field)")
	flags.DurationVar(&o.DrainDelay, "drain-delay", 5*time.Second, "how long to go on answering after SIGTERM, while /readyz already fails")
	flags.StringVar(&o.LogLevel, "log-level", "info", "debug (one line for each request), info (state changes and refusals) or error")
	flags.StringVar(&o.LogFormat, "log-format", "json", "json or console")
}

// Validate names every option that cannot work.
func (o *Options) Validate() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: "+format, append([]any{flag}, args...)...))
	}
	if _, _, err := splitAddress(o.WebhookAddress); err != nil {
		bad("webhook-bind-address", "%w", err)
	}
	switch files := o.CertFile != "" || o.KeyFile != ""; {
	case files && o.SelfSigned:
		bad("self-signed", "does not go together with --tls-cert-file and --tls-key-file")
	case !files && !o.SelfSigned:
		bad("tls-cert-file", "give --tls-cert-file and --tls-key-file, or --self-signed to try things out on one machine")
	case files && (o.CertFile == "" || o.KeyFile == ""):
		bad("tls-cert-file", "--tls-cert-file and --tls-key-file go together")
	}
	if o.SelfSignedCA != "" && !o.SelfSigned {
		bad("self-signed-ca-file", "needs --self-signed")
	}
	if len(o.OLMIdentities) == 0 {
		bad("olm-identity", "name at least one; without it OLM's own writes would be refused")
	}
	if o.ApprovalMode != string(rules.MutateApproval) && o.ApprovalMode != string(rules.DenyApproval) {
		bad("approval-mode", "%q is not one of %q, %q", o.ApprovalMode, rules.MutateApproval, rules.DenyApproval)
	}
	if o.DrainDelay < 0 {
		bad("drain-delay", "%s is negative", o.DrainDelay)
	}
	if _, err := zapcore.ParseLevel(o.LogLevel); err != nil {
		bad("log-level", "%q is not one of debug, info, error", o.LogLevel)
	}
	if o.LogFormat != "json" && o.LogFormat != "console" {
		bad("log-format", "%q is not one of json, console", o.LogFormat)
	}
	return errors.Join(errs...)
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("port %q of %q is not a number from 1 to 65535", text, address)
	}
	return host, port, nil
}
