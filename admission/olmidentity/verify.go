package olmidentity

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// evidence is what an identity is judged by. The API server writes or computes all of it, so a tenant cannot forge any.
type evidence struct {
	account Account
	// namespace and serviceAccount are nil where they do not exist.
	namespace, serviceAccount *metav1.PartialObjectMetadata
	// home is the name of Opgate's own namespace, installed its age.
	home      string
	installed time.Time
	// acknowledged is the UID of a namespace that an administrator acknowledged; "" for none.
	acknowledged types.UID
}

// HowToFind is a command that prints the user name that OLM writes as.
const HowToFind = "kubectl get deployments --all-namespaces --field-selector metadata.name=olm-operator -o " +
	`jsonpath='{range .items[*]}system:serviceaccount:{.metadata.namespace}:{.spec.template.spec.serviceAccountName}{"\n"}{end}'`

// examine returns the state that follows from the objects, and reports whether they fit. An account that fits is
// trusted once it has OLM's rights as well.
func (e *evidence) examine() (State, bool) {
	reject := func(reason Reason, format string, args ...any) (State, bool) {
		return State{Reason: reason, Problem: fmt.Sprintf(format, args...)}, false
	}
	const rename = "; --olm-identity (olm.identity of the chart) has to name the account that OLM runs as, the serviceAccountName of Deployment olm-operator" +
		", or, on a hosted control plane, the user that it authenticates as"
	switch {
	case e.namespace == nil:
		return reject(NamespaceMissing, "namespace %s of OLM does not exist"+rename, e.account.Namespace)
	case e.younger():
		return reject(NamespaceYounger,
			"namespace %s of OLM is younger than %s of Opgate; an administrator who has installed OLM there "+
				"acknowledges it with --olm-namespace-uid=%s (olm.namespaceUID of the chart)", e.account.Namespace, e.home,
			e.namespace.UID)
	case e.serviceAccount == nil || e.serviceAccount.DeletionTimestamp != nil:
		return reject(ServiceAccountMissing, "service account %s of OLM does not exist"+rename, e.account)
	}
	return State{Reason: Trusted, UID: e.serviceAccount.UID}, true
}

// younger reports whether the namespace was created after Opgate's and is not acknowledged. Both times have a
// resolution of one second: a namespace of the same second counts as older.
func (e *evidence) younger() bool {
	return e.namespace.UID != e.acknowledged && e.namespace.CreationTimestamp.After(e.installed)
}
