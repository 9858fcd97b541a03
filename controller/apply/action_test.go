package apply

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/stream"
)

// TestReplacing: a field that is too large to be stored is replaced as a whole, and only if the policy sets it.
func TestReplacing(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a",
		"resourceVersion": "7"}, "spec": map[string]any{"name": "etcd", "config": stream.Withhold("it has 5000 values")}}}
	same := live.DeepCopy()
	same.Object["spec"].(map[string]any)["channel"] = "stable"
	if fields := replaced(live, same); len(fields) > 0 {
		t.Errorf("%v would be replaced", fields)
	}
	other := live.DeepCopy()
	other.Object["spec"].(map[string]any)["config"] = map[string]any{"env": []any{}}
	data, err := replacing(live, replaced(live, other)).Data(other)
	const want = `[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},{"op":"replace","path":"/spec/config","value":{"env":[]}}]`
	if err != nil || string(data) != want {
		t.Errorf("%s (%v), want %s", data, err, want)
	}
}

func TestPatchesAreOfTheStateThatWasJudged(t *testing.T) {
	changes := []verdict.Change{{Path: "/spec/installPlanApproval", Value: "Manual"}, {Path: "/metadata/annotations/x",
		Remove: true}}
	data, err := Locked("17", verdict.Patch(changes)).Data(nil)
	const want = `[{"op":"replace","path":"/metadata/resourceVersion","value":"17"},{"op":"add","path":"/spec/installPlanApproval","value":"Manual"},` +
		`{"op":"remove","path":"/metadata/annotations/x"}]`
	if err != nil || string(data) != want {
		t.Errorf("%s (%v), want %s", data, err, want)
	}
}

// TestDifference checks that a status patch has only what differs, and applies to the version that was read, if any.
func TestDifference(t *testing.T) {
	type status struct {
		State  string `json:"state,omitempty"`
		Reason string `json:"reason,omitempty"`
	}
	for version, want := range map[string]string{
		"7": `{"metadata":{"resourceVersion":"7"},"status":{"reason":null}}`,
		"":  `{"status":{"reason":null}}`,
	} {
		patch, err := difference(version, status{State: "Pending", Reason: "new"}, status{State: "Pending"})
		if err != nil {
			t.Fatal(err)
		}
		if data, err := patch.Data(nil); err != nil || string(data) != want {
			t.Errorf("%s (%v), want %s", data, err, want)
		}
	}
}
