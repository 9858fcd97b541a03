package cluster

import (
	"io"

	"github.com/opgate/opgate/e2e/assets"
)

// Namespaces that every cluster has unless Options says otherwise.
const (
	// OLMNamespace is where OLM and its catalogs live.
	OLMNamespace = "olm"
	// OpgateNamespace is where Opgate lives.
	OpgateNamespace = "opgate-system"
	// PolicyNamespace is where admins keep their OperatorPolicies.
	PolicyNamespace = "policies"
	// ShopNamespace is a tenant's.
	ShopNamespace = "shop"
)

// Options says what Start starts. The zero value gives the cluster that most tests want.
type Options struct {
	// Assets are the binaries to run. Default: what assets.Find returns.
	Assets assets.Assets
	// Dir keeps everything that the cluster writes: data, certificates, kubeconfigs, logs. It must be empty or absent, and
	// Stop removes it. Default: a new temporary directory.
	Dir string
	// Opgate is the binary of opgate that StartOpgate runs. Default: one that is built from this checkout when it is needed.
	Opgate string
	// Namespaces are created besides those that the cluster itself needs (olm and, unless it is bare, opgate-system).
	// Default: policies.
	Namespaces []string
	// TenantNamespaces are created, and given to the tenant. The first is the default of the tenant's kubectl.
	// Default: shop.
	TenantNamespaces []string
	// WithoutOLM leaves out OLM's resource definitions. InstallOLM adds them.
	WithoutOLM bool
	// Bare leaves out all that is Opgate's: its resource definition, its namespace, its permissions and the user of that name.
	// An installation brings them.
	Bare bool
	// OpenShift is the version of OpenShift that the cluster says it is, such as "4.19.3". Default: it is none.
	OpenShift string
	// Node makes the API server reach Services by way of EgressSocket, where package node answers. Without it, it cannot reach
	// any but those of type ExternalName.
	Node bool
	// Owners makes the API server ask, as on OpenShift and with Node, whether somebody who makes an object go with its owner has the
	// right to delete it, and to keep the owner from going first.
	Owners bool
	// WebhookClient makes the API server authenticate to webhooks by a client certificate, of which WebhookClientCA is the CA.
	WebhookClient bool
	// Audit makes the API server write an audit log of all that Opgate asks of it, and of the writes that Opgate judges.
	Audit bool
	// WithoutWatchCache makes the API server read every LIST from etcd, and so decode and convert each object for each LIST.
	WithoutWatchCache bool
	// Log receives lines for people about what goes on. Default: nowhere.
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
