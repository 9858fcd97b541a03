package local

import (
	_ "embed"
	"fmt"
)

// example is a policy that can be applied as it is.
//
//go:embed etcd.yaml
var example []byte

// nextSteps states what people can do with what is up.
func (l layout) nextSteps(opts Options) string {
	switch {
	case opts.Install:
		return fmt.Sprintf(`
A Kubernetes API server, OLM with a catalog, and a node that has Opgate's image of this checkout, are up. Opgate is not
installed yet. To install it as on any cluster, and to let it install the etcd operator in namespace shop:

    export KUBECONFIG=%[1]s
    export PATH=%[2]s:$PATH
    helm install opgate manifests/chart/opgate --namespace opgate-system --create-namespace
    kubectl rollout status deployment/opgate --namespace opgate-system
    kubectl apply -f %[3]s

The node runs Opgate's pods as processes; those of operators do nothing. Contexts are admin, tenant and olm.
Logs are in %[4]s. To stop it: make down

`, l.kubeconfig(), l.bin(), l.example(), l.dir)
	case !opts.OLM:
		return fmt.Sprintf(`
A Kubernetes API server with Opgate in front of it is up. To use it:

    export KUBECONFIG=%s
    export PATH=%s:$PATH
    kubectl --context tenant get subscriptions

Contexts are admin, tenant and olm. OLM itself does not run: for that, make up OLM=1.
Logs are in %s. To stop it: make down

`, l.kubeconfig(), l.bin(), l.dir)
	}
	return fmt.Sprintf(`
A Kubernetes API server with Opgate in front of it, and OLM with a catalog, are up. To use them:

    export KUBECONFIG=%[1]s
    export PATH=%[2]s:$PATH
    kubectl get packagemanifests

Let Opgate install version 0.9.2 of the etcd operator in namespace shop, see what it does, and what holds the upgrade that
OLM plans next:

    kubectl apply -f %[3]s
    kubectl get subscriptions,installplans,clusterserviceversions -n shop
    kubectl describe operatorpolicy etcd -n policies

Nothing runs pods: that an operator is available is only said. Contexts are admin, tenant and olm.
Logs are in %[4]s. To stop it: make down

`, l.kubeconfig(), l.bin(), l.example(), l.dir)
}
