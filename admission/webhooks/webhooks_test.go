package webhooks

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestEntries holds what makes failurePolicy Fail acceptable, and that no condition trusts the name of OLM alone (threat
// O16).
func TestEntries(t *testing.T) {
	const olm = "system:serviceaccount:a:b.c"
	settings := Settings{OLM: olm, FailurePolicy: admissionregistrationv1.Fail, TimeoutSeconds: 9}
	c, err := New(settings)
	if err != nil {
		t.Fatal(err)
	}
	const entitled = "authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('escalate').allowed()"
	isOLM := "request.userInfo.username == '" + olm + "' && " + entitled
	byWriter, ignored, kinds, groups := 0, 0, map[string]bool{}, map[string]bool{}
	for _, e := range slices.Concat(c.Mutating, c.Validating) {
		kinds[strings.TrimSuffix(e.Rules[0].Resources[0], "/status")] = true
		groups[e.Rules[0].APIGroups[0]] = true
		if *e.FailurePolicy == admissionregistrationv1.Ignore {
			ignored++
			if !slices.ContainsFunc(e.MatchConditions,
				func(m admissionregistrationv1.MatchCondition) bool { return m.Expression == isOLM }) {
				t.Errorf("%s may be ignored for others than OLM", e.Name)
			}
		}
		if e.Rules[0].Scope == nil || *e.TimeoutSeconds != 9 || !strings.HasSuffix(e.Name, ".opgate.io") {
			t.Errorf("%s: scope %v, timeout %d", e.Name, e.Rules[0].Scope, *e.TimeoutSeconds)
		}
		for _, m := range e.MatchConditions {
			if !strings.Contains(m.Expression, "userInfo") && !strings.Contains(m.Expression, "serviceaccount") {
				continue
			}
			byWriter++
			if want := map[string]string{
				"olm": isOLM, "not-olm": "!( " + isOLM + ")",
				"not-generated": "!( " + isOLM + ") || request.operation != 'CREATE'",
				"not-pending": "!( " + isOLM +
					") || request.operation != 'CREATE' || object.?spec.?approved.orValue(true) != false",
			}[m.Name]; m.Expression != want {
				t.Errorf("%s: condition %s is\n%s\nwant\n%s", e.Name, m.Name, m.Expression, want)
			}
		}
	}
	if byWriter != 9 || ignored != 3 || len(kinds) != 11 || len(groups) != 3 ||
		!strings.Contains(string(entries), "eleven kinds of three API groups") {
		t.Errorf("%d conditions about who writes, %d entries with Ignore, kinds %v of groups %v", byWriter, ignored, kinds, groups)
	}
	settings.FailurePolicy, settings.ExternalDefinition = admissionregistrationv1.Ignore, true
	if c, err = New(settings); err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Concat(c.Mutating, c.Validating) {
		if *e.FailurePolicy != admissionregistrationv1.Ignore {
			t.Errorf("%s has failurePolicy %s", e.Name, *e.FailurePolicy)
		}
		if e.Name == "operatorpolicies.opgate.io" && !slices.Equal(e.Rules[0].APIVersions, []string{"*"}) {
			t.Errorf("policies whose definition is external are asked about in %v", e.Rules[0].APIVersions)
		}
	}
}
