package olmidentity

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// facts are what decides about an identity. The API server writes or computes all of them, so a tenant cannot forge any.
type facts struct {
	account Account
	// namespace and serviceAccount are nil where they do not exist.
	namespace, serviceAccount *metav1.PartialObjectMetadata
	// home is the name of Opgate's own namespace, installed its age.
	home      string
	installed time.Time
	// acknowledged is the UID of a namespace that an administrator has vouched for; "" for none.
	acknowledged types.UID
}

// HowToFind is a command that prints the user name that OLM writes as.
const HowToFind = "kubectl get deployments --all-namespaces --field-selector metadata.name=olm-operator -o " +
	`jsonpath='{range .items[*]}system:serviceaccount:{.metadata.namespace}:{.spec.template.spec.serviceAccountName}{"\n"}{end}'`

// examine decides by what the objects say. It reports whether they fit; what fits still has to show that it has OLM's rights.
func (f *facts) examine() (State, bool) {
	reject := func(reason Reason, format string, args ...any) (State, bool) {
		return State{Reason: reason, Problem: fmt.Sprintf(format, args...)}, false
	}
	const rename = "; --olm-identity (olm.identity of the chart) has to name the account that OLM runs as, the serviceAccountName of Deployment olm-operator"
	switch {
	case f.namespace == nil:
		return reject(NamespaceMissing, "namespace %s of OLM does not exist"+rename, f.account.Namespace)
	case f.younger():
		return reject(NamespaceYounger, "namespace %s of OLM is younger than %s of Opgate; an administrator who has installed OLM there "+
			"acknowledges it with --olm-namespace-uid=%s (olm.namespaceUID of the chart)", f.account.Namespace, f.home, f.namespace.UID)
	case f.serviceAccount == nil || f.serviceAccount.DeletionTimestamp != nil:
		return reject(ServiceAccountMissing, "service account %s of OLM does not exist"+rename, f.account)
	}
	return State{Reason: Trusted, UID: f.serviceAccount.UID}, true
}

// younger reports whether the namespace was created after Opgate's and is not acknowledged. Both times have a resolution of one second:
// what was created in the same second counts as older.
func (f *facts) younger() bool {
	return f.namespace.UID != f.acknowledged && f.namespace.CreationTimestamp.After(f.installed)
}
