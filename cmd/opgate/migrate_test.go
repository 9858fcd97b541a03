package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/cmd/opgate/migrate"
)

// TestH3PagesAreSmall: a page of the largest objects fits into memory, and each object of each page is migrated.
func TestH3PagesAreSmall(t *testing.T) {
	const objects, most = 45, 24
	const definition = policyv1beta2.Resource + "." + policyv1beta2.Group
	pages := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/"+definition) {
			fmt.Fprint(w, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"`+definition+`"},
				"spec":{"versions":[{"name":"v1beta2","storage":true}]},"status":{"storedVersions":["v1beta1","v1beta2"]}}`)
			return
		}
		pages++
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil || limit < 1 || limit > most {
			t.Errorf("page %d has limit %q, want at most %d", pages, r.URL.Query().Get("limit"), most)
			limit = objects
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("continue")) // "" for the first page
		next, items := "", []string{}
		for i := from; i < min(from+limit, objects); i++ {
			items = append(items, fmt.Sprintf(`{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy",
				"metadata":{"namespace":"shop","name":"p%d"}}`, i))
		}
		if from+limit < objects {
			next = strconv.Itoa(from + limit)
		}
		fmt.Fprintf(w, `{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicyList","metadata":{"continue":%q},"items":[%s]}`,
			next, strings.Join(items, ","))
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":"`+server.URL+`"}}],
		"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`)
	var out bytes.Buffer
	cmd := migrate.Command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--dry-run", "--kubeconfig", kubeconfig})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "would write "); got != objects || pages < 2 {
		t.Errorf("%d objects in %d pages:\n%s", got, pages, out.String())
	}
}
