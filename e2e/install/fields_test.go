package install

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// setsFieldsBack changes fields of both webhook configurations. They are set back, and an event names them.
func (s *Site) setsFieldsBack(t *testing.T) {
	const changes = `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"},
		{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":1},
		{"op":"replace","path":"/webhooks/0/rules","value":[]},
		{"op":"add","path":"/webhooks/0/objectSelector","value":{"matchLabels":{"judge":"me"}}},
		{"op":"remove","path":"/webhooks/0/matchConditions"}]`
	admin := s.Clients[cluster.Admin]
	read := func(resource schema.GroupVersionResource) *unstructured.Unstructured {
		u, err := admin.Resource(resource).Get(t.Context(), "opgate", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for kind, resource := range map[string]schema.GroupVersionResource{
		"MutatingWebhookConfiguration": mutatingResource, "ValidatingWebhookConfiguration": harness.ValidatingResource,
	} {
		// After an upgrade the entries change when a pod of the new release leads.
		harness.Eventually(t, "see the entries of this release", func(context.Context) error {
			for _, entry := range read(resource).Object["webhooks"].([]any) {
				if seconds := entry.(map[string]any)["timeoutSeconds"]; seconds != int64(5) {
					return fmt.Errorf("a timeout is %v", seconds)
				}
			}
			return nil
		})
		before := read(resource)
		// A leader reports what it has seen complete before: where another takes over in between, the change is made again.
		harness.Eventually(t, "see the fields set back, and the event", func(context.Context) error {
			changed, err := admin.Resource(resource).Patch(t.Context(), "opgate", types.JSONPatchType, []byte(changes),
				metav1.PatchOptions{})
			if err != nil {
				return err
			}
			if reflect.DeepEqual(changed.Object["webhooks"], before.Object["webhooks"]) {
				t.Fatal("nothing was changed")
			}
			harness.Eventually(t, "see the fields set back", func(context.Context) error {
				if now := read(resource); !reflect.DeepEqual(now.Object["webhooks"], before.Object["webhooks"]) {
					return fmt.Errorf("%s has %v", kind, now.Object["webhooks"].([]any)[0])
				}
				return nil
			})
			return restoredEvent(t, s, kind)
		})
	}
}

// restoredEvent reports whether there is an event about each kind of field, within five seconds.
func restoredEvent(t *testing.T, s *Site, kind string) error {
	var events string
	for range 10 {
		events = s.Admin(t, "get", "events", "-n", "default", "-o", "jsonpath={.items[*].message}",
			"--field-selector", "reason=WebhookRestored,involvedObject.kind="+kind)
		if strings.Contains(events, `failurePolicy of subscriptions.opgate.io (it was "Ignore")`) &&
			strings.Contains(events, "timeoutSeconds of") && strings.Contains(events, "rules of") {
			return nil
		}
		time.Sleep(500 * time.Millisecond)
	}
	return errors.New("events: " + events)
}
