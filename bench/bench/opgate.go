package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate-server/serve"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
)

// serveOpgate serves Opgate's reviews, with its defaults, and a snapshot with a number of policies.
func serveOpgate(ctx context.Context, policies int, listening func(net.Addr, []byte) error) error {
	store, err := storeOf(policies)
	if err != nil {
		return err
	}
	var o serve.Options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)
	// The log goes to the error output of this process; what is allowed is logged at another level.
	if err := flags.Parse([]string{"--webhook-bind-address=127.0.0.1:0",
		"--olm-identity=system:serviceaccount:olm:olm-operator-serviceaccount"}); err != nil {
		return err
	}
	return serve.Reviews(ctx, o, store, listening)
}

// storeOf has a snapshot of the objects in testdata, and of policies for other packages in the same namespace, so many
// that there is the number asked for; and of the policy of S-bare, which states no config, in its namespace.
func storeOf(policies int) (*snapshot.Store, error) {
	var failed error
	reader := snapshot.Reader{Unreadable: func(k *snapshot.Kind, name types.NamespacedName, err error) {
		failed = fmt.Errorf("%s %s: %w", k.Kind, name, err)
	}}
	var objects []*snapshot.Object
	add := func(k *snapshot.Kind, u *unstructured.Unstructured) error {
		data, err := json.Marshal(u.Object)
		if err != nil {
			return err
		}
		objects = append(objects, reader.Read(k, data))
		return failed
	}
	for _, name := range []string{"shop", bareNamespace, "policies"} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName(name)
		u.SetLabels(map[string]string{"kubernetes.io/metadata.name": name})
		if err := add(snapshot.Namespaces, u); err != nil {
			return nil, err
		}
	}
	for _, k := range []*snapshot.Kind{snapshot.Subscriptions, snapshot.InstallPlans} {
		u, err := fixture(k.Kind)
		if err != nil {
			return nil, err
		}
		if err := add(k, u); err != nil {
			return nil, err
		}
	}
	policy, err := fixture(snapshot.OperatorPolicies.Kind)
	if err != nil {
		return nil, err
	}
	if err := add(snapshot.OperatorPolicies, policy); err != nil {
		return nil, err
	}
	bare := policy.DeepCopy()
	bare.SetName(bareNamespace)
	subscription := bare.Object["spec"].(map[string]any)["subscription"].(map[string]any)
	subscription["namespace"] = bareNamespace
	delete(subscription, "config")
	if err := add(snapshot.OperatorPolicies, bare); err != nil {
		return nil, err
	}
	for i := range policies - 1 {
		other := policy.DeepCopy()
		other.SetName(fmt.Sprintf("other-%d", i))
		other.Object["spec"].(map[string]any)["subscription"].(map[string]any)["name"] = fmt.Sprintf("package-%d", i)
		if err := add(snapshot.OperatorPolicies, other); err != nil {
			return nil, err
		}
	}
	var builder snapshot.Builder
	builder.Put(time.Time{}, objects...)
	return snapshot.NewStore(builder.SetCluster(time.Time{}, facts.Cluster{Version: "1.36.2"})), nil
}
