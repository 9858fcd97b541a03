package cluster

import (
	"io"

	"github.com/opgate/opgate/e2e/assets"
)

// Namespaces that every cluster has by default.
const (
	// OLMNamespace is the namespace of OLM and its catalogs.
	OLMNamespace = "olm"
	// OpgateNamespace is the namespace of Opgate.
	OpgateNamespace = "opgate-system"
	// PolicyNamespace is the namespace of the admins' OperatorPolicies.
	PolicyNamespace = "policies"
	// ShopNamespace is a tenant's.
	ShopNamespace = "shop"
)

// Options configure Start. The zero value is the cluster that most tests need.
type Options struct {
	// Assets are the binaries to run. Default: what assets.Find returns.
	Assets assets.Assets
	// Dir keeps everything that the cluster writes: data, certificates, kubeconfigs, logs. It must be empty or absent,
	// and Stop removes it. Default: a new temporary directory.
	Dir string
	// Programs are the binaries of Opgate to run. Default: those of this checkout, built in Dir.
	Programs *Programs
	// Namespaces are created besides those that the cluster itself needs (olm and, unless it is bare, opgate-system).
	// Default: policies.
	Namespaces []string
	// TenantNamespaces are created for the tenant. The first is the default of the tenant's kubectl.
	// Default: shop.
	TenantNamespaces []string
	// WithoutOLM leaves out OLM's resource definitions. InstallOLM adds them.
	WithoutOLM bool
	// Bare leaves out all that is Opgate's: its resource definition, its namespace, its permissions and the user of
	// that name. An installation brings them.
	Bare bool
	// ChartRights binds to Opgate the rights of the chart's defaults, and starts it with these, instead of all that
	// tests need.
	ChartRights bool
	// OpenShift is the version of OpenShift that the cluster reports, such as "4.19.3". Default: none.
	OpenShift string
	// Node makes the API server reach Services by way of EgressSocket, where package node answers. Without it, it
	// cannot reach any but those of type ExternalName.
	Node bool
	// Owners enables OwnerReferencesPermissionEnforcement, as on OpenShift and with Node: a user who sets owner
	// references needs the right to delete the object, and to block the deletion of its owner.
	Owners bool
	// WebhookClient makes the API server authenticate to webhooks by a client certificate, of which WebhookClientCA is
	// the CA.
	WebhookClient bool
	// AdmissionConfig is a file with an AdmissionConfiguration for the API server, in place of those that Node and
	// WebhookClient make.
	AdmissionConfig string
	// Audit makes the API server write an audit log of all requests of Opgate, and of the writes that Opgate judges.
	Audit bool
	// WithoutWatchCache makes the API server read every LIST from etcd, and so decode and convert each object for each
	// LIST.
	WithoutWatchCache bool
	// Log receives progress lines. Default: none.
	Log io.Writer
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Namespaces == nil {
		o.Namespaces = []string{PolicyNamespace}
	}
	if len(o.TenantNamespaces) == 0 {
		o.TenantNamespaces = []string{ShopNamespace}
	}
}

// plainNamespaces are all namespaces that do not belong to the tenant.
func (o *Options) plainNamespaces() []string {
	if o.Bare {
		return append([]string{OLMNamespace}, o.Namespaces...)
	}
	return append([]string{OLMNamespace, OpgateNamespace}, o.Namespaces...)
}
