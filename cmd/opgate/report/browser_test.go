package report

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// longNames is an operator of names as long as they may be.
const longNames = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: %[2]s
  namespace: %[1]s
  annotations: {operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"%[1]s","version":"1.0.0"}}]}'}
spec: {version: 1.0.0}
`

// measure is a page that has others in frames of a width each, and that states in its title what is wider than these, or
// not shown.
const measure = `<!DOCTYPE html><title></title>%s<script>
onload = () => {
  const wrong = [];
  for (const frame of document.querySelectorAll("iframe")) {
    const d = frame.contentDocument, width = frame.width;
    if (d.documentElement.scrollWidth > width) wrong.push(frame.title + ": scrolls");
    for (const e of d.querySelectorAll("body *")) {
      const r = e.getBoundingClientRect(), inside = r.left >= 0 && r.right <= width;
      if (e.tagName == "TD" ? !r.width || !inside : r.width && !inside) wrong.push(frame.title + ": " + e.outerHTML);
    }
  }
  document.title = wrong.length ? wrong[0] : "all is shown";
};
</script>`

// TestBrowser looks at pages in Chromium, where it is installed: at 1400 and at 420 pixels nothing is wider than the page,
// and every cell is visible. TestPage has what can be seen without a browser.
func TestBrowser(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil && browser == "" {
			browser = found
		}
	}
	if browser == "" {
		t.Skip("there is no Chromium")
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	long := strings.Repeat("x", 63)
	unreachable := file("config.yaml", `{apiVersion: v1, kind: Config, contexts: [{name: c, context: {cluster: c}}], current-context: c,
  clusters: [{name: c, cluster: {server: "https://127.0.0.1:1/`+long+`"}}]}`)
	names := file(long+".yaml", fmt.Sprintf(longNames, long, strings.Repeat("x", 253)))
	frames := ""
	for _, args := range [][]string{{"-f", "testdata/prod.yaml", "-f", names}, {"--kubeconfig", unreachable}} {
		var page, notes bytes.Buffer
		cmd := Command(noon)
		cmd.SetArgs(append(args, "-o", "html"))
		cmd.SetOut(&page)
		cmd.SetErr(&notes)
		_ = cmd.ExecuteContext(t.Context()) // a cluster that cannot be read is an error, and on the page
		if !strings.Contains(page.String(), long) {
			t.Fatalf("report %q: %s\n%s", args, &notes, &page)
		}
		for _, width := range []int{1400, 420} {
			frames += fmt.Sprintf(`<iframe title="%s at %[2]d" width="%[2]d" height="2000" style="border: 0" srcdoc="%[3]s"></iframe>`,
				args[0], width, html.EscapeString(page.String()))
		}
	}
	dom, err := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--virtual-time-budget=5000", "--dump-dom",
		"file://"+file("measure.html", fmt.Sprintf(measure, frames))).Output()
	if err != nil {
		t.Fatalf("%s: %v", browser, err)
	}
	if !bytes.Contains(dom, []byte("<title>all is shown</title>")) {
		title, _, _ := strings.Cut(string(dom), "</title>")
		t.Errorf("%s", title)
	}
}
