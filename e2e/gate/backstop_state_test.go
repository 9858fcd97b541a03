package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// tooMany writes more policies than an object holds: the newest are left to the webhooks, and all others are held,
// edits included.
func (s *backstopSite) tooMany(t *testing.T) {
	const policies = 22 // of 60 KB each
	var large []*unstructured.Unstructured
	for i := range policies {
		p := harness.OperatorPolicy(fmt.Sprintf("large-%02d", i))
		var versions []any
		for v := range 250 {
			versions = append(versions, fmt.Sprintf("etcdoperator.v%d-%02d-%s", v, i, strings.Repeat("x", 210)))
		}
		p.Object["spec"].(map[string]any)["versions"] = versions
		large = append(large, s.Put(t, p))
	}
	harness.Eventually(t, "see event TableFull", func(ctx context.Context) error {
		result, err := s.Kubectl(ctx, cluster.Admin, "", "get", "events", "-A", "--field-selector",
			"reason=TableFull,involvedObject.kind=OperatorPolicy")
		if err == nil && !strings.Contains(result.Stdout, "the table of backstop has no room") {
			err = fmt.Errorf("there are %q", result.Stdout)
		}
		return err
	})
	s.wantLogged(t, "table full")
	s.wantMetrics(t, `opgate_backstop_active{state="enforced"} 1`)
	s.Edit(t, s.policy, `{"spec":{"versions":["`+harness.AllowedCSV+`","`+harness.ForbiddenCSV+`"]}}`)
	harness.Eventually(t, "an edit is in force", s.approvable(s.namespace, "forbidden", true))
	s.Edit(t, s.policy, `{"spec":{"versions":["`+harness.AllowedCSV+`"]}}`)
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
	for _, p := range large {
		s.Remove(t, p)
	}
}

// unowned deletes the ClusterRole that owns the objects: nothing is written until it is back.
func (s *backstopSite) unowned(t *testing.T) {
	const role, table = "clusterrole/opgate-backstop", "validatingadmissionpolicies/opgate-backstop"
	var owner map[string]any
	if err := json.Unmarshal([]byte(harness.Kubectl(t, s.Cluster, cluster.Admin, "", "get", role, "-o", "json")),
		&owner); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		delete(owner["metadata"].(map[string]any), set)
	}
	before := s.backstopObject(t, table)
	harness.Kubectl(t, s.Cluster, cluster.Admin, "", "delete", role)
	s.wantMetrics(t, `opgate_backstop_active{state="unowned"} 0`)
	s.wantLogged(t, "it grants the rights to the admission policies and owns them, so nothing is written without it")
	// As the garbage collector does, which a cluster of tests does not have.
	for _, object := range backstopObjects {
		harness.Kubectl(t, s.Cluster, cluster.Admin, "", "delete", object)
	}
	got, err := s.try(t.Context(), cluster.Admin, true, "forbidden", "", `{"spec":{"approved":true}}`)
	if err != nil || got.OK() || got.Code != http.StatusForbidden {
		t.Errorf("the webhooks answer %s, %v", got, err)
	}
	s.wantMetrics(t, `opgate_backstop_active{state="unowned"} 0`)
	s.wantGone(t, backstopObjects...)

	harness.Kubectl(t, s.Cluster, cluster.Admin, harness.Normal(owner), "create", "-f", "-")
	s.wantMetrics(t, `opgate_backstop_active{state="enforced"} 1`)
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
	after := s.backstopObject(t, table)
	if slices.Equal(before.GetOwnerReferences(), after.GetOwnerReferences()) || len(after.GetOwnerReferences()) != 1 {
		t.Errorf("the owners are %v, want the ClusterRole that was created last", after.GetOwnerReferences())
	}
}

// wantLogged waits for a line in the log of Opgate.
func (s *backstopSite) wantLogged(t *testing.T, message string) {
	t.Helper()
	harness.Eventually(t, "see the log line", func(context.Context) error {
		log, err := os.ReadFile(s.Gate.LogPath())
		if err == nil && !strings.Contains(string(log), message) {
			err = errors.New("it is not there")
		}
		return err
	})
}
