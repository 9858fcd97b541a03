package matrix

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
)

// TestDocument: results are not written by hand. The document has each row, and states what the results say.
func TestDocument(t *testing.T) {
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	docs := filepath.Join(checkout.Root, "docs")
	results, err := Load(docs)
	if err != nil {
		t.Fatal(err)
	}
	kubernetes, olm, err := assets.PinnedVersions()
	if err != nil {
		t.Fatal(err)
	}
	ignoreNotRun := cmpopts.IgnoreFields(Row{}, "NotRun")
	if diff := cmp.Diff(Merge(Rows(kubernetes, olm), results, nil), results, ignoreNotRun); diff != "" {
		t.Errorf("rows and results differ, run make matrix (-rows +results):\n%s", diff)
	}
	document, err := os.ReadFile(filepath.Join(docs, documentFile))
	if err != nil {
		t.Fatal(err)
	}
	want, err := insert(string(document), Table(results))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(document)); diff != "" {
		t.Errorf("the document differs from the results, run make matrix (-want +got):\n%s", diff)
	}
	for _, test := range Tests {
		if !strings.Contains(string(document), "| `"+test.Name+"` | "+test.Shows+" |") {
			t.Errorf("%s does not say that %s shows: %s", documentFile, test.Name, test.Shows)
		}
	}
	for _, result := range results {
		if judged := result; result.Status != NotRun {
			judged.judge()
			if judged.Status != result.Status || len(result.Tests) != len(Tests) || result.Date == "" {
				t.Errorf("%s %s is %q on %q, but its %d tests say %q", result.Kubernetes, result.OLM, result.Status,
					result.Date, len(result.Tests), judged.Status)
			}
		}
	}
}

// TestRead: events of three tests, of which one passes, one fails with a subtest, and one never ends.
func TestRead(t *testing.T) {
	const events = `{"Action":"start"}
{"Action":"run","Test":"TestOne"}
not an event
{"Action":"pass","Test":"TestOne/sub","Elapsed":1}
{"Action":"pass","Test":"TestOne","Elapsed":1.5}
{"Action":"run","Test":"TestTwo"}
{"Action":"fail","Test":"TestTwo/a plan is held","Elapsed":2}
{"Action":"fail","Test":"TestTwo","Elapsed":2.5}
{"Action":"run","Test":"TestThree"}
{"Action":"fail"}
`
	got, err := read(strings.NewReader(events), []string{"TestOne", "TestTwo", "TestThree"})
	if err != nil {
		t.Fatal(err)
	}
	want := []TestResult{
		{Name: "TestOne", Status: "pass", Seconds: 1.5},
		{Name: "TestTwo", Status: "fail", Seconds: 2.5, Failed: []string{"a plan is held"}},
		{Name: "TestThree", Status: "missing"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	result := Result{Tests: got}
	result.judge()
	if result.Status != Failed || result.Reason != "TestTwo fail, a plan is held; TestThree missing" {
		t.Errorf("got %s: %s", result.Status, result.Reason)
	}
}
