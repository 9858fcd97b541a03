package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// fieldsAreSetBack changes fields of both webhook configurations. They are set back, and an event names them.
func (r *certified) fieldsAreSetBack(t *testing.T) {
	const changes = `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"},
		{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":1},
		{"op":"replace","path":"/webhooks/0/rules","value":[]},
		{"op":"add","path":"/webhooks/0/objectSelector","value":{"matchLabels":{"judge":"me"}}},
		{"op":"remove","path":"/webhooks/0/matchConditions"}]`
	for _, address := range r.health { // a replica that was never ready leaves the webhooks alone
		harness.Eventually(t, "see both replicas ready", func(ctx context.Context) error {
			code, body, err := harness.GetURL(ctx, "http://"+address+"/readyz")
			if err == nil && code != http.StatusOK {
				err = errors.New(body)
			}
			return err
		})
	}
	for kind, resource := range map[string]schema.GroupVersionResource{
		"MutatingWebhookConfiguration": mutatingResource, "ValidatingWebhookConfiguration": harness.ValidatingResource,
	} {
		before := r.read(t, resource, cluster.Admin, "", "opgate")
		changed, err := r.admin().Resource(resource).Patch(t.Context(), "opgate", types.JSONPatchType, []byte(changes),
			metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(changed.Object["webhooks"], before.Object["webhooks"]) {
			t.Fatal("nothing was changed")
		}
		harness.Eventually(t, "see the fields set back", func(context.Context) error {
			if now := r.read(t, resource, cluster.Admin, "", "opgate"); !reflect.DeepEqual(now.Object["webhooks"],
				before.Object["webhooks"]) {
				return fmt.Errorf("%s has %v", kind, now.Object["webhooks"].([]any)[0])
			}
			return nil
		})
		harness.Eventually(t, "see the event", func(context.Context) error {
			events := harness.Kubectl(t, r.Cluster, cluster.Admin, "", "get", "events", "-n", "default", "-o",
				"jsonpath={.items[*].message}",
				"--field-selector", "reason=WebhookRestored,involvedObject.kind="+kind)
			for _, want := range []string{`failurePolicy of subscriptions.opgate.io (it was "Ignore")`,
				"timeoutSeconds of", "rules of"} {
				if !strings.Contains(events, want) {
					return errors.New("events: " + events)
				}
			}
			return nil
		})
	}
}
