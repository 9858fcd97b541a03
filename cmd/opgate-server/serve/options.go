package serve

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/controller/backstop"
	"github.com/opgate/opgate/rules"
	backstopcompiler "github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/grant"
)

// The bounds of MaxStaleness: a watch is asked for three fifths of it, at least three seconds, and less than longWatches
// makes longer.
const leastStaleness, mostStaleness = 5 * time.Second, 5 * time.Minute

// Options configure `opgate-server serve`. Each field is one flag, whose help describes it; what that leaves out is
// here.
type Options struct {
	Kubeconfig     string
	WebhookAddress string
	// Without CertFile and KeyFile, which are read again when they change, the replicas share a CA in a Secret and sign
	// certificates with it themselves. SelfSigned makes one in memory instead.
	CertFile, KeyFile string
	// TLSCipherSuites are those of TLS 1.2. Default: those of Go.
	TLSMinVersion                              string
	TLSCipherSuites                            []string
	CALifetime, CertificateLifetime, CAOverlap time.Duration
	SelfSigned                                 bool
	SelfSignedCA                               string
	// Without ClientCAFile, which is read again when it changes, the API server is known by a token in the paths that it
	// calls.
	ClientCAFile         string
	ClientNames          []string
	WebhookFailurePolicy string
	WebhookTimeout       time.Duration
	// Without WebhooksOwned a reference that was set before is removed.
	WebhooksOwned                 bool
	Register                      string
	MetricsAddress, HealthAddress string
	SecureMetrics, Profiling      bool
	// OLMIdentity is a list so that two are refused instead of one of them being dropped.
	OLMIdentity              []string
	OLMNamespaceUID          string
	ApprovalMode             string
	OperatorPolicyDefinition string
	Backstop                 string
	BackgroundLoop           bool
	Namespace                string
	// ExcludedNamespaces are besides Namespace.
	ExcludedNamespaces  []string
	Reports             bool
	Ungoverned          string
	Ordering            bool
	PendingGuards       string
	GatekeeperTemplates bool
	DefaultNamespace    string
	StatusHistoryLength int
	MaxStaleness        time.Duration
	ProbeStaticPolicies bool
	// An API server closes connections that it has not used for 90 seconds: DrainTimeout waits for that.
	DrainDelay, DrainTimeout time.Duration
	// Rights are those that the installation may withhold; see package grant.
	Rights              []string
	CatalogNamespaces   []string
	LogLevel, LogFormat string
}

// AddFlags adds a flag for each field, with its default.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"kubeconfig file (default: the pod's service account, else $KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&o.WebhookAddress, "webhook-bind-address", ":9443", "address the webhook server binds to (HTTPS)")
	flags.StringVar(&o.CertFile, "tls-cert-file", "",
		"PEM file with the serving certificate, reloaded on change (default: self-managed certificates)")
	flags.StringVar(&o.KeyFile, "tls-key-file", "", "PEM file with the private key of --tls-cert-file")
	version, suites := tlsProfile()
	flags.StringVar(&o.TLSMinVersion, "tls-min-version", version,
		"lowest version of TLS that is served: VersionTLS12 or VersionTLS13")
	flags.StringSliceVar(&o.TLSCipherSuites, "tls-cipher-suites", suites,
		"cipher suites of TLS 1.2 that are served, by their IANA names, separated by commas (default: those of Go)")
	flags.DurationVar(&o.CALifetime, "ca-lifetime", 365*24*time.Hour,
		"lifetime of a self-managed CA, rotated at two thirds of it")
	flags.DurationVar(&o.CertificateLifetime, "certificate-lifetime", 7*24*time.Hour,
		"lifetime of a self-managed serving certificate, renewed at two thirds of it")
	flags.DurationVar(&o.CAOverlap, "ca-overlap", 10*time.Minute,
		"how long a new self-managed CA must be in every caBundle before it signs")
	flags.BoolVar(&o.SelfSigned, "self-signed", false,
		"serve with a self-signed certificate in memory, for local use only")
	flags.StringVar(&o.SelfSignedCA, "self-signed-ca-file", "",
		"file to write the CA of --self-signed to, for caBundle in the webhook configurations")
	flags.StringVar(&o.ClientCAFile, "client-ca-file", "",
		"PEM file with the CAs of the API server's client certificates (default: a token in the path)")
	flags.StringArrayVar(&o.ClientNames, "client-cn", nil,
		"common name of the API server's client certificate; repeatable (default: any)")
	flags.StringVar(&o.WebhookFailurePolicy, "webhook-failure-policy", string(admissionregistrationv1.Fail),
		"what the API server does with writes while Opgate does not answer: Fail (refuse) or Ignore (admit unjudged)")
	flags.DurationVar(&o.WebhookTimeout, "webhook-timeout", 5*time.Second,
		"how long the API server waits for an answer, in seconds from 1s to 30s")
	flags.BoolVar(&o.WebhooksOwned, "webhooks-owned-by-namespace", true,
		"make --namespace an owner of the webhook configurations; disable with Argo CD, which keeps what has an owner")
	flags.StringVar(&o.Register, "register", "",
		"directory with manifests of definitions and webhooks to apply at the start (set in OLM bundles)")
	o.addPolicyFlags(flags)
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080",
		`address the metrics server binds to (HTTP), "0" to disable`)
	flags.BoolVar(&o.SecureMetrics, "metrics-secure", false,
		"serve metrics, with names of policies, over HTTPS to authorized clients")
	flags.BoolVar(&o.Profiling, "profiling", false,
		"serve /debug/pprof beside the metrics to authorized clients; needs --metrics-secure")
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081",
		`address /healthz, /readyz and /snapshot bind to (HTTP), "0" to disable`)
	flags.BoolVar(&o.ProbeStaticPolicies, "probe-static-policies", false,
		"export whether the API server has loaded the files of \"opgate compile --static\", by a dry run every five minutes")
	flags.DurationVar(&o.MaxStaleness, "max-staleness", 10*time.Second,
		"how long a watch may show no progress before reviews are held, from 5s to 5m")
	flags.DurationVar(&o.DrainDelay, "drain-delay", 5*time.Second,
		"time to serve after SIGTERM, while /readyz fails, and after the last new connection")
	flags.DurationVar(&o.DrainTimeout, "drain-timeout", 100*time.Second,
		"time to wait after --drain-delay for the API server to close idle connections")
	flags.StringArrayVar(&o.Rights, "right", nil,
		"right of the ServiceAccount that the installation grants, or none; repeatable (default: all)")
	flags.StringArrayVar(&o.CatalogNamespaces, "catalog-namespace", nil,
		"namespace in which ConfigMaps, Pods and Services of catalogs are read; repeatable (default: all)")
	flags.StringVar(&o.LogLevel, "log-level", "info",
		"debug (one line a request), info (state changes and refusals), warn or error (errors alone)")
	flags.StringVar(&o.LogFormat, "log-format", "json", "json or console")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "enable-operator-policy" { // what the existing controller calls it
			name = "background-loop"
		}
		return pflag.NormalizedName(name)
	})
}

// addPolicyFlags adds the flags of what is judged and done.
func (o *Options) addPolicyFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.OLMIdentity, "olm-identity", nil,
		"user that OLM is, system:serviceaccount:NAMESPACE:NAME or that of a certificate; required, once, verified")
	flags.StringVar(&o.OLMNamespaceUID, "olm-namespace-uid", "",
		"UID of OLM's namespace, to trust it although it is younger than Opgate's")
	flags.StringVar(&o.ApprovalMode, "approval-mode", string(rules.MutateApproval),
		"action on a wrong installPlanApproval of a Subscription: mutate, or deny (for GitOps tools)")
	flags.StringVar(&o.OperatorPolicyDefinition, "operator-policy-definition", managedDefinition,
		"who owns the definition of OperatorPolicy: managed (Opgate) or external (it is read as it is)")
	flags.StringVar(&o.Backstop, "backstop", string(backstop.Off),
		"what the API server does by itself: off, compiled (applied by others), audit or enforce (written by Opgate)")
	flags.BoolVar(&o.BackgroundLoop, "background-loop", true,
		"approve InstallPlans, enforce policies and write status (also --enable-operator-policy)")
	flags.StringVar(&o.Namespace, "namespace", "opgate-system", "namespace of Opgate, its Leases and its Secrets")
	flags.StringArrayVar(&o.ExcludedNamespaces, "excluded-namespace", nil,
		"namespace that the webhook configurations and Constraints exclude; repeatable")
	flags.BoolVar(&o.Reports, "reports", false,
		"write a Report of OpenReports in each namespace, of installed operators and plans that wait")
	flags.StringVar(&o.Ungoverned, "ungoverned", string(rules.ApproveUngoverned),
		"action on plans of operators without a policy that wait because of one: approve or hold")
	flags.BoolVar(&o.Ordering, "ordering", true,
		"reconcile Policies and PolicySets; disable where Open Cluster Management's framework does")
	flags.StringVar(&o.PendingGuards, "pending-guards", string(dependency.Suspend),
		"action on OperatorPolicies and Constraints of a Policy with unmet dependencies: suspend or delete")
	flags.BoolVar(&o.GatekeeperTemplates, "gatekeeper-templates", false,
		"allow Gatekeeper's ConstraintTemplates and constraints as templates of Policies")
	flags.StringVar(&o.DefaultNamespace, "operator-policy-default-namespace", "",
		"namespace of operators whose policy and package name none")
	flags.IntVar(&o.StatusHistoryLength, "operator-policy-status-history-length", 10,
		"number of compliance messages in the status of a policy")
}

// Validate returns an error that names every invalid option.
func (o *Options) Validate() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: "+format, append([]any{flag}, args...)...))
	}
	if _, err := hostOf(o.WebhookAddress); err != nil {
		bad("webhook-bind-address", "%w", err)
	}
	switch files := o.CertFile != "" || o.KeyFile != ""; {
	case files && o.SelfSigned:
		bad("self-signed", "does not go together with --tls-cert-file and --tls-key-file")
	case files && (o.CertFile == "" || o.KeyFile == ""):
		bad("tls-cert-file", "--tls-cert-file and --tls-key-file go together")
	}
	if o.SelfSignedCA != "" && !o.SelfSigned {
		bad("self-signed-ca-file", "needs --self-signed")
	}
	if o.WebhookTimeout%time.Second != 0 || o.WebhookTimeout < time.Second || o.WebhookTimeout > 30*time.Second {
		bad("webhook-timeout", "%s is not a number of seconds from 1s to 30s", o.WebhookTimeout)
	}
	if o.Register != "" && o.WebhooksOwned {
		bad("register", "needs --webhooks-owned-by-namespace=false: ClusterRole %s owns what is registered",
			backstopcompiler.Name)
	}
	if o.Profiling && !o.SecureMetrics {
		bad("profiling", "needs --metrics-secure: profiles contain what the process has in memory")
	}
	if len(o.ClientNames) > 0 && o.ClientCAFile == "" {
		bad("client-cn", "needs --client-ca-file")
	}
	for _, name := range o.TLSCipherSuites {
		if suites := cipherSuites(); suites[name] == 0 {
			bad("tls-cipher-suites", "%q is not one of %q", name, slices.Sorted(maps.Keys(suites)))
		}
	}
	o.validateLifetimes(bad)
	if _, err := o.olmAccount(); err != nil {
		bad("olm-identity", "%w", err)
	}
	o.validateModes(bad)
	o.validateNamespaces(bad)
	if o.externalDefinition() && o.Ordering {
		bad("operator-policy-definition",
			"%q needs --ordering=false: who owns OperatorPolicies reconciles Policies as well",
			o.OperatorPolicyDefinition)
	}
	if o.Reports && !o.BackgroundLoop {
		bad("reports", "needs --background-loop: the leader writes the Reports")
	}
	if _, err := o.grants(); err != nil {
		bad("right", "%w", err)
	}
	if o.StatusHistoryLength < 1 {
		bad("operator-policy-status-history-length", "%d is less than 1", o.StatusHistoryLength)
	}
	if o.MaxStaleness < leastStaleness || o.MaxStaleness > mostStaleness {
		bad("max-staleness", "%s is not between %s and %s", o.MaxStaleness, leastStaleness, mostStaleness)
	}
	for flag, d := range map[string]time.Duration{"drain-delay": o.DrainDelay, "drain-timeout": o.DrainTimeout} {
		if d < 0 {
			bad(flag, "%s is negative", d)
		}
	}
	return errors.Join(errs...)
}

// validateModes checks options of which each is one of several words.
func (o *Options) validateModes(bad func(flag, format string, args ...any)) {
	for _, mode := range []struct {
		flag, value string
		choices     []string
	}{
		{"webhook-failure-policy", o.WebhookFailurePolicy,
			[]string{string(admissionregistrationv1.Fail), string(admissionregistrationv1.Ignore)}},
		{"operator-policy-definition", o.OperatorPolicyDefinition, []string{managedDefinition, externalDefinition}},
		{"approval-mode", o.ApprovalMode, []string{string(rules.MutateApproval), string(rules.DenyApproval)}},
		{"ungoverned", o.Ungoverned, []string{string(rules.ApproveUngoverned), string(rules.HoldUngoverned)}},
		{"pending-guards", o.PendingGuards, []string{string(dependency.Suspend), string(dependency.Delete)}},
		{"backstop", o.Backstop, []string{string(backstop.Off), string(backstop.Compiled), string(backstop.Audit),
			string(backstop.Enforce)}},
		{"tls-min-version", o.TLSMinVersion, slices.Sorted(maps.Keys(tlsVersions))},
		{"log-level", o.LogLevel, slices.Sorted(maps.Keys(logLevels))},
		{"log-format", o.LogFormat, []string{"json", "console"}},
	} {
		if !slices.Contains(mode.choices, mode.value) {
			bad(mode.flag, "%q is not one of %q", mode.value, mode.choices)
		}
	}
}

// validateNamespaces checks the names of namespaces.
func (o *Options) validateNamespaces(bad func(flag, format string, args ...any)) {
	all := map[string][]string{"namespace": {o.Namespace}, "excluded-namespace": o.ExcludedNamespaces,
		"catalog-namespace": o.CatalogNamespaces}
	if o.DefaultNamespace != "" {
		all["operator-policy-default-namespace"] = []string{o.DefaultNamespace}
	}
	for flag, names := range all {
		for _, name := range names {
			if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
				bad(flag, "%q is not the name of a namespace: %s", name, problems[0])
			}
		}
	}
}

// grants returns what the installation withholds.
func (o *Options) grants() (grant.Set, error) {
	if len(o.Rights) == 0 {
		return grant.Set{Catalogs: o.CatalogNamespaces}, nil
	}
	return grant.NewSet(o.Rights, o.CatalogNamespaces)
}

// unbacked returns why the API server refuses no deletion by itself, and what would change that; "" if it does, or if
// what was compiled is not known here.
func (o *Options) unbacked() string {
	const enforce = ": the API server alone judges deletions, with chart values policy.backstop: enforce and policy.backgroundLoop.enabled: true"
	switch mode := backstop.Mode(o.Backstop); mode {
	case backstop.Enforce, backstop.Compiled:
		return ""
	default:
		return "--backstop is " + string(mode) + " here" + enforce
	}
}

// olmAccount returns the account that OLM runs as. There is no default: an account that does not exist on this cluster
// belongs to the first user who creates it.
func (o *Options) olmAccount() (olmidentity.Account, error) {
	const how = "name the service account that OLM runs as, exactly once; this prints it: " + olmidentity.HowToFind
	if len(o.OLMIdentity) != 1 {
		return olmidentity.Account{}, fmt.Errorf("%d are named; %s", len(o.OLMIdentity), how)
	}
	account, err := olmidentity.Parse(o.OLMIdentity[0])
	if err != nil {
		return olmidentity.Account{}, fmt.Errorf("%w; %s", err, how)
	}
	return account, nil
}

// validateLifetimes checks that an old CA outlives what it signed, also while the next one overlaps with it.
func (o *Options) validateLifetimes(bad func(flag, format string, args ...any)) {
	positive := true
	for flag, d := range map[string]time.Duration{"ca-lifetime": o.CALifetime,
		"certificate-lifetime": o.CertificateLifetime, "ca-overlap": o.CAOverlap} {
		if d <= 0 {
			bad(flag, "%s is not a positive duration", d)
			positive = false
		}
	}
	if !positive {
		return
	}
	if o.CertificateLifetime >= o.CALifetime/3 {
		bad("certificate-lifetime",
			"%s is not less than a third of --ca-lifetime, %s: the CA would end before the certificates that it signed",
			o.CertificateLifetime, o.CALifetime)
	}
	if o.CAOverlap >= o.CALifetime/3 {
		bad("ca-overlap", "%s is not less than a third of --ca-lifetime, %s: the CA would end before the next one signs", o.CAOverlap, o.CALifetime)
	}
}

// hostOf returns the host of host:port, "" for all addresses of the machine.
func hostOf(address string) (string, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if port, err := strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
		return "", fmt.Errorf("port %q of %q is not a number from 1 to 65535", text, address)
	}
	return host, nil
}
