package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"testing"
	"time"
)

// noon is the time of all tests.
func noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// run returns what the command prints of the clusters in testdata.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var out, notes bytes.Buffer
	cmd := Command(noon)
	cmd.SetArgs(append(args, "-f", "testdata/prod.yaml", "-f", "testdata/stage.yaml"))
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("report %s: %v\n%s", strings.Join(args, " "), err, &notes)
	}
	return out.String()
}

func TestOperators(t *testing.T) {
	var got report
	if err := json.Unmarshal([]byte(run(t, "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, o := range got.Operators {
		row := fmt.Sprintf("%s %s/%s %s %s %s %v next %q", o.Cluster, o.Namespace, o.Package, o.CSV, o.Version, o.Decision, o.Policies, o.Next)
		if w := o.Waiting; w != nil {
			row += fmt.Sprintf(" waits with %s %s since %s for %s", w.Plan, w.Decision, w.Since, strings.Join(w.For, ", "))
		}
		rows = append(rows, row)
	}
	want := []string{
		`prod cache/redis redis.v7 7.0.0 Deny [OperatorPolicy policies/redis] next ""`,
		`prod shop/etcd etcd.v1 1.0.0 Allow [OperatorPolicy policies/etcd] next "etcd.v2" waits with install-e Deny since 2026-11-27T12:00:00Z for OperatorPolicy policies/etcd`,
		`prod tools/argo argo.v1 1.0.0 Allow [] next "argo.v2" waits with install-a Allow since 2026-11-29T11:00:00Z for Opgate`,
		`stage shop/etcd etcd.v2 2.0.0 Allow [OperatorPolicy policies/etcd] next ""`,
	}
	if got, want := strings.Join(rows, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	text := run(t)
	for _, want := range []string{"2 allowed, 0 held, 1 refused, 1 governed by no policy; 2 wait for approval",
		"etcd.v2 is not allowed by OperatorPolicy policies/etcd (bundle/version): allowed is etcd.v1", "✗ refused", "2d"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text has no %q:\n%s", want, text)
		}
	}
}

// TestPage: the page is of one file, has no script, and escapes what tenants wrote.
func TestPage(t *testing.T) {
	page := run(t, "-o", "html")
	for _, never := range []string{"<script", "src=", "href=", "url(", "@import", "http://", "https://", "<img", "\u202e"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	for _, want := range []string{`<b class="Deny">✗ refused</b>`, "2d for OperatorPolicy policies/etcd", "As of 2026-11-29 12:00 UTC",
		`<td data-column="Version">7.0.0</td>`, "governed by no policy", `content="default-src &#39;none&#39;`} {
		if !strings.Contains(page, want) && !strings.Contains(page, html.UnescapeString(want)) {
			t.Errorf("the page has no %s", want)
		}
	}
	r := &report{Generated: noon(), Clusters: []*reported{{Name: "<b>", Error: "<script>alert(1)</script>"}},
		Operators: []*operator{{Namespace: "shop", Package: "\u202e<script>", Messages: []string{"</small><script>"}}}}
	var hostile bytes.Buffer
	if err := printPage(&hostile, r); err != nil {
		t.Fatal(err)
	}
	if s := hostile.String(); strings.Contains(s, "<script") || strings.Contains(s, "\u202e") {
		t.Errorf("what tenants wrote is not escaped:\n%s", s)
	}
}
