package conversion

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/e2e/harness"
)

// TestConversionForms writes a policy in one form, and then states the opposite in each other form, as other authors do
// who know nothing of the first. Verbs and values take turns.
func TestConversionForms(t *testing.T) {
	e := shared(t)
	forms := map[string]struct {
		version          string
		upgrade, install bool
	}{
		"v1beta2":                {version: harness.Present, upgrade: true},
		"v1beta1, present":       {version: harness.Earlier, upgrade: true},
		"v1beta1, first":         {version: harness.Earlier, install: true},
		"v1beta1, in both forms": {version: harness.Earlier, upgrade: true, install: true},
	}
	write := func(form, name, approval string) *unstructured.Unstructured {
		f := forms[form]
		p := versioned(f.version, name)
		spec := p.Object["spec"].(map[string]any)
		delete(spec, "upgradeApproval")
		if f.upgrade {
			spec["upgradeApproval"] = approval
		}
		if f.install {
			spec["subscription"].(map[string]any)["installPlanApproval"] = map[string]string{"Automatic": "Automatic",
				"None": "Manual"}[approval]
		}
		return p
	}
	names := slices.Sorted(maps.Keys(forms))
	for i, first := range names {
		for j, then := range names {
			form := forms[then]
			for k, verb := range []string{"merge patch", "json patch", "forced apply", "replace"} {
				for l, before := range []string{"Automatic", "None"} {
					if (i+j+k)%2 == 1 || l != (i+(j+k)/2)%2 {
						continue
					}
					after := map[string]string{"Automatic": "None", "None": "Automatic"}[before]
					t.Run(strings.Join([]string{first, then, verb, after}, "/"), func(t *testing.T) {
						p := write(first, "form-"+utilrand.String(6), before)
						if _, err := created(t.Context(), e, p); err != nil {
							t.Fatal(err)
						}
						t.Cleanup(func() { e.Remove(t, p) })
						err := edit(t.Context(), e, verb, read(t, e, form.version, p), write(then, p.GetName(), after))
						if verb != "replace" && first == "v1beta1, present" && form.version == harness.Earlier &&
							form.install && !form.upgrade {
							if says := "spec.upgradeApproval: " + before +
								" says already what becomes of upgrades"; err == nil ||
								!strings.Contains(err.Error(), says) {
								t.Fatalf("%v, want %s", err, says)
							}
							return
						}
						if err != nil {
							t.Fatal(err)
						}
						if upgrade, install := approvalForms(read(t, e, harness.Present, p)); upgrade != after ||
							install != "" {
							t.Errorf("v1beta2 has upgradeApproval %q and installPlanApproval %q, want %q", upgrade,
								install, after)
						}
					})
				}
			}
		}
	}
	t.Run("conflicts", func(t *testing.T) {
		for _, forms := range [][2]string{{"v1beta2", "v1beta1, first"}, {"v1beta2", "v1beta1, present"},
			{"v1beta1, first", "v1beta2"}, {"v1beta1, present", "v1beta2"}} {
			p := write(forms[0], "form-"+utilrand.String(6), "None")
			if _, err := created(t.Context(), e, p); err != nil {
				t.Fatal(err)
			}
			err := edit(t.Context(), e, "server-side apply", nil, write(forms[1], p.GetName(), "Automatic"))
			if err == nil || !strings.Contains(err.Error(), "conflict") || !strings.Contains(err.Error(), "Approval") {
				t.Errorf("%s applied over %s by another manager: %v, want a conflict", forms[1], forms[0], err)
			}
			e.Remove(t, p)
		}
	})
	t.Run("a document that contradicts itself", func(t *testing.T) {
		// Applied again and again, it would open and close the gate. A patch does not show that it sets what was there
		// before, so it is refused at the latest the second time.
		for first := range forms {
			for _, verb := range []string{"merge patch", "forced apply", "replace"} {
				p := write(first, "form-"+utilrand.String(6), "None")
				if _, err := created(t.Context(), e, p); err != nil {
					t.Fatal(err)
				}
				document := write("v1beta1, present", p.GetName(), "Automatic")
				document.Object["spec"].(map[string]any)["subscription"].(map[string]any)["installPlanApproval"] = "Manual"
				times := 1
				if verb == "merge patch" {
					times = 3
				}
				var err error
				for range times {
					err = edit(t.Context(), e, verb, read(t, e, harness.Earlier, p), document)
				}
				if says := "spec.subscription.installPlanApproval: Invalid value"; err == nil ||
					!strings.Contains(err.Error(), says) {
					t.Errorf("%s after %s: %v, want %s", verb, first, err, says)
				}
				e.Remove(t, p)
			}
		}
	})
}
